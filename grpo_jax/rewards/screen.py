"""What may reach the symbolic tier: short, of known words, and no tower.

Screening is cheap and coarse. It keeps most of what would take for ever away
from the worker processes; what slips through is killed at its time limit.
"""

import math
import re
from collections.abc import Iterator

from grpo_jax.rewards.extraction import unwrap
from grpo_jax.rewards.notation import clean

_MAX_LENGTH = 200
_MAX_DIGITS = 30
_MAX_EXPONENT = 10_000
_MAX_FACTORIAL = 1_000
_MAX_COMMANDS = 30
# Of e^{-x^2}; and of all powers of brackets together, times the largest other.
_MAX_EXPONENT_IN_EXPONENT = 10
_MAX_TOWER = 1_000

_COMMANDS = frozenset(
  "frac sqrt pi sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log"
  " ln exp infty pm le ge ne neq in cup cap setminus emptyset mathbb begin end"
  " alpha beta gamma delta theta lambda mu rho sigma tau phi omega binom"
  " lfloor rfloor lceil rceil lvert rvert vert left right overline langle"
  " rangle".split()
)
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_CHARACTERS = re.compile(r"[\w\s\\{}()\[\]^+\-*/=<>,.|!&:;'%]*", re.ASCII)
_INTEGER = re.compile(r"[0-9]+")
_FACTORIAL = re.compile(r"([0-9]*)\s*!")
_SHORT_EXPONENT = re.compile(r"\s*[-+]?(?:[0-9]+|\\[a-zA-Z]+|\S)?")


def readable(answer: str) -> str | None:
  """The answer in the spelling that Math-Verify gets; None if refused.

  Refused are texts over 200 characters, integers over 30 digits, exponents
  over 10,000, powers of numbers in exponents, factorials over 1,000 or of
  expressions, sums, products and integrals, and all but a list of characters
  and commands.
  """
  # Longer ones are not even cleaned.
  if len(answer) > 2 * _MAX_LENGTH:
    return None
  text = clean(unwrap(answer))
  if not text or len(text) > _MAX_LENGTH or "__" in text:
    return None
  if not _CHARACTERS.fullmatch(text):
    return None
  commands = _COMMAND.findall(text)
  if len(commands) > _MAX_COMMANDS or not _COMMANDS.issuperset(commands):
    return None
  if any(len(digits) > _MAX_DIGITS for digits in _INTEGER.findall(text)):
    return None
  factorials = [match[1] for match in _FACTORIAL.finditer(text)]
  if any(not n or int(n) > _MAX_FACTORIAL for n in factorials):
    return None
  return text if _powers_are_small(text) else None


def _powers_are_small(text: str) -> bool:
  of_brackets, others = [], [1]
  for base, exponent, after in _powers(text):
    if _size(exponent) > _MAX_EXPONENT or after == "^":
      return False
    if "!" in exponent or "\\binom" in exponent:
      return False
    for inner_base, inner, _ in _powers(exponent):
      of_number = not inner_base.isalpha()
      if of_number or _size(inner) > _MAX_EXPONENT_IN_EXPONENT:
        return False
    (of_brackets if base in ")]}" else others).append(_size(exponent))
  return not of_brackets or math.prod(of_brackets) * max(others) <= _MAX_TOWER


def _size(exponent: str) -> int:
  """No integer that the exponent's own make by products is larger."""
  return math.prod(max(1, int(n)) for n in _INTEGER.findall(exponent))


def _powers(text: str) -> Iterator[tuple[str, str, str]]:
  """Of each power: the base's last character, the exponent, what follows."""
  for match in re.finditer(r"\^", text):
    end = _exponent_end(text, match.end())
    before = text[: match.start()].rstrip()[-1:] or " "
    yield before, text[match.end() : end], text[end:].lstrip()[:1]


def _exponent_end(text: str, start: int) -> int:
  short = _SHORT_EXPONENT.match(text, start)
  if short[0].strip() not in ("{", "(", "["):
    return short.end()
  depth = 0
  for at in range(short.end() - 1, len(text)):
    depth += (text[at] in "{([") - (text[at] in "})]")
    if depth == 0:
      return at + 1
  return len(text)
