r"""The exact tier: answers as canonical keys, equal or not without tolerance.

Two answers are equal if and only if their keys are, so equality is reflexive,
symmetric and transitive by construction, and keys can be counted for a vote.
Nothing is evaluated as code, and nothing is approximated: 0.333 is not 1/3.

Conventions, where notation leaves a choice:

- 10% is 10, and not 0.1; units are read and left out.
- 1,234 is a number, 1, 234 and (1,234) are two; 1 234 is a number.
- 1, 2 and {2, 1} and "1 or 2" are one set; (1, 2) is ordered, and equal to
  the open interval; x > 1 is (1, \infty).
- x = 5 is 5. y = 2x + 3 is an equation, equal to 2x - y + 3 = 0.
- 52_8 is neither 52 nor 42. \text{(C)} is C; words ignore case.
"""

import hashlib
from collections.abc import Hashable
from functools import lru_cache
from typing import NamedTuple

from grpo_jax.rewards import structure
from grpo_jax.rewards.algebra import UndecidedError
from grpo_jax.rewards.extraction import unwrap
from grpo_jax.rewards.notation import clean
from grpo_jax.rewards.values import plain_number

_MAX_LENGTH = 400
# Kinds that may be equal to each other in ways that keys do not show.
_COMPARABLE = {"equation": "value", "matrix": "sequence"}


class Canonical(NamedTuple):
  """What an answer means.

  Attributes:
    key: hashable; equal for equal answers. Begins with its kind.
    unit: a known unit that was left out, in one spelling; or empty.
    label: what `x = 5` or `f(x) = 5` names; or empty.
  """

  key: tuple[Hashable, ...]
  unit: str = ""
  label: str = ""

  @property
  def decided(self) -> bool:
    """Whether the exact tier covers this answer beyond its spelling."""
    return self.key[0] != "verbatim"


def canonical(answer: str) -> Canonical:
  """What an answer means; what the tier does not cover means its spelling.

  Args:
    answer: as extracted, with or without math delimiters. Any text: nothing
      raises, and nothing takes over 0.1 s.
  """
  if len(answer) > _MAX_LENGTH:
    digest = hashlib.sha256(answer.encode("utf-8", "surrogatepass"))
    return Canonical(("verbatim", digest.hexdigest()))
  return cached_canonical(answer)


def compare(a: Canonical, b: Canonical) -> bool | None:
  """Whether two answers are equal; None if the exact tier cannot tell.

  Equal keys are equal answers, unless both name a unit, or a variable, and
  not the same: 5 is 5 cm and 5 m, which differ from each other. That makes
  grading stricter; for a vote, compare keys.
  """
  if a.key == b.key:
    return not (
      (a.unit and b.unit and a.unit != b.unit)
      or (a.label and b.label and _variables_differ(a.label, b.label))
    )
  kinds = {a.key[0], b.key[0]}
  if "verbatim" in kinds:
    return None
  if any({kind, other} == kinds for kind, other in _COMPARABLE.items()):
    return None
  return False


def _variables_differ(a: str, b: str) -> bool:
  """Area and AB may be two names of one thing, but x and y are not."""
  return a != b and a[1:2] in ("", "_") and b[1:2] in ("", "_")


@lru_cache(maxsize=2**16)
def cached_canonical(answer: str) -> Canonical:
  """`canonical` of a short answer; completions of a group repeat answers."""
  number = plain_number(answer)
  if number is not None:
    return Canonical(number)
  # A dollar sign that is left at the start is money: unwrap takes pairs.
  text = clean(unwrap(answer))
  try:
    return Canonical(*structure.meaning(text))
  except UndecidedError:
    return Canonical(("verbatim", "".join(text.split())))
