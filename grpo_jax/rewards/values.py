"""Keys of single answers: numbers in all their spellings, and words."""

import math
import re
from collections.abc import Hashable
from fractions import Fraction

from grpo_jax.rewards import algebra
from grpo_jax.rewards.algebra import ONE, UndecidedError, Value
from grpo_jax.rewards.expressions import parse_expression
from grpo_jax.rewards.units import split_unit

Key = tuple[Hashable, ...]

_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_FRACTION = re.compile(
  r"([-+]?)(?:\\[dt]?frac\{([0-9]{1,99})\}\{([0-9]{1,99})\}"
  r"|([0-9]{1,99})/([0-9]{1,99}))"
)
_DECIMAL = re.compile(r"([-+]?)([0-9]{0,99})\.([0-9]{1,99})")
_MIXED = re.compile(
  r"([-+]?)\s*([0-9]{1,99})\s*(?:\\frac\s*\{([0-9]{1,99})\}\{([0-9]{1,99})\}"
  r"|\s([0-9]{1,99})/([0-9]{1,99}))"
)
_REPEATING = re.compile(
  r"([-+]?)([0-9]{0,30})\.([0-9]{0,30})\\overline\s*\{([0-9]{1,30})\}"
)
_THOUSANDS = re.compile(
  r"(?<![0-9.,])[0-9]{1,3}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?![0-9,]| [0-9])"
)
_BASE = re.compile(r"(-?)([0-9][0-9A-Za-z]*)_(?:\{([0-9]{1,2})\}|([0-9]{1,2}))")
# One word, or several of which one is too long for a product of variables;
# a hyphen alone does not make words of p - q.
_WORDS = re.compile(
  r"[a-zA-Z]+|(?=.*[a-zA-Z]{4})[a-zA-Z]+(?:(?: +|['-])[a-zA-Z]+\.?)*"
)
_INFINITY = re.compile(r"([-+]?)\s*\\infty")


def plain_number(text: str) -> Key | None:
  """The key of an integer, a simple fraction or a decimal; else None.

  Most answers are one of these, and get their key in a microsecond or two.
  """
  if _INTEGER.fullmatch(text):
    return _number_key(int(text), 1)
  match = _FRACTION.fullmatch(text)
  if match:
    sign, top, bottom = match[1], match[2] or match[4], match[3] or match[5]
    return _reduced(sign, int(top), int(bottom)) if int(bottom) else None
  match = _DECIMAL.fullmatch(text)
  if match:
    sign, whole, decimals = match.groups()
    return _reduced(sign, int(whole + decimals), 10 ** len(decimals))
  return None


def _reduced(sign: str, top: int, bottom: int) -> Key:
  shared = math.gcd(top, bottom)
  top //= shared
  return _number_key(-top if sign == "-" else top, bottom // shared)


def _number_key(numerator: int, denominator: int) -> Key:
  """As `algebra.key` has it for a rational number."""
  terms = ((ONE, numerator, denominator),) if numerator else ()
  return ("value", frozenset(terms))


def value_key(value: Value) -> Key:
  return ("value", algebra.key(value))


def key_and_unit(text: str) -> tuple[Key, str]:
  """The key of one answer that is no list, tuple or relation, and its unit.

  Raises:
    UndecidedError: the notation is not covered, or ambiguous.
  """
  text = text.strip()
  if text[:1].isalpha() and _WORDS.fullmatch(text):
    return _word_key(text), ""
  infinity = _INFINITY.fullmatch(text)
  if infinity:
    return ("infinity", -1 if infinity[1] == "-" else 1), ""
  in_base = _BASE.fullmatch(text)
  if in_base:
    digits = in_base[1] + (in_base[2].lstrip("0") or "0").upper()
    return ("base", digits, int(in_base[3] or in_base[4])), ""
  number, unit, scale = split_unit(text)
  plain = plain_number(number) if scale == 1 else None
  if plain:
    return plain, unit
  value = algebra.times(parse_value(number), algebra.constant(scale))
  return value_key(value), unit


def parse_value(text: str) -> Value:
  """A mixed number, a repeating decimal or an expression, without unit."""
  mixed = _MIXED.fullmatch(text)
  if mixed:
    sign, whole = mixed[1], int(mixed[2])
    top, bottom = int(mixed[3] or mixed[5]), int(mixed[4] or mixed[6])
    if top >= bottom:
      raise UndecidedError
    number = whole + Fraction(top, bottom)
    return algebra.constant(-number if sign == "-" else number)
  repeating = _REPEATING.fullmatch(text)
  if repeating:
    sign, whole, once, period = repeating.groups()
    nines = 10 ** len(period) - 1
    number = int(whole + once or "0") + Fraction(int(period), nines)
    number /= 10 ** len(once)
    return algebra.constant(-number if sign == "-" else number)
  return parse_expression(join_thousands(text))


def join_thousands(text: str) -> str:
  """1,234 and 1 234 without their separators; 1,23 and 1, 234 as they are."""
  return _THOUSANDS.sub(lambda m: re.sub("[, ]", "", m[0]), text)


def _word_key(text: str) -> Key:
  """Words, but for what can only be a product of variables.

  Products commute and words do not: of xy and yx the alphabetical one is a
  product. So two words are never equal for having the same letters.
  """
  if len(text) <= 3 and text.isalpha() and text.lower() != "no":
    alphabetical = list(text) == sorted(text)
    capitalised = text[1:] != "" and text.istitle()
    if alphabetical and not capitalised:
      return value_key(parse_expression(text))
  words = re.sub(r"[ .-]+", " ", text.lower())
  return ("text", words)
