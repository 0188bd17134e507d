"""Labels (x = 5, f(x) = ...), equations, and inequalities as intervals."""

import re
from fractions import Fraction

from grpo_jax.rewards import algebra
from grpo_jax.rewards.algebra import UndecidedError, Value
from grpo_jax.rewards.values import Key, key_and_unit, parse_value, value_key

RELATION = re.compile(r"\\(?:le|ge|in)(?![a-zA-Z])|<=|>=|=|<|>")

_VARIABLE = re.compile(r"\\?[a-zA-Z](?:_(?:[0-9a-zA-Z]|\{[0-9a-zA-Z]+\}))?")
# What names an answer and is no part of it. A single letter is not here: in
# y = 2x + 3 it belongs to the equation.
_NAME = re.compile(
  r"([A-Z]{2,3}|[A-Za-z](?:_[0-9a-zA-Z])?\([^()=<>]{1,20}\)"
  r"|\([a-z](?:, *[a-z])+\)|[A-Za-z]{4,}(?: [A-Za-z]+)*)\s*=(.*)",
  re.DOTALL,
)
_MEMBER = re.compile(r"([a-zA-Z])\s*\\in(?![a-zA-Z])(.*)", re.DOTALL)
_INFINITE = {
  "<": ("infinity", -1),
  ">": ("infinity", 1),
}
_LIKE = {"<": "<", "<=": "<", "\\le": "<", ">": ">", ">=": ">", "\\ge": ">"}
_STRICT = frozenset("<>")


def split_label(text: str) -> tuple[str, str]:
  """Takes `f(x) =`, `Area =` or `x in` off; an empty label if there is none."""
  match = _MEMBER.fullmatch(text) or _NAME.fullmatch(text)
  if not match or RELATION.search(match[2]):
    return "", text
  return match[1].replace(" ", ""), match[2]


def key_and_label(parts: list[str]) -> tuple[Key, str]:
  """The key of a relation, and the variable that it is about.

  Args:
    parts: sides and relations in turn, [left, "=", right] or
      [left, "<", middle, "<", right].

  Raises:
    UndecidedError: a chain of equations, a system, or no relation in one
      variable.
  """
  parts = [part.strip() for part in parts]
  operators = parts[1::2]
  if operators == ["="]:
    return _equation(parts[0], parts[2])
  if not all(operator in _LIKE for operator in operators):
    raise UndecidedError
  if len(operators) == 1:
    return _half_line(*parts)
  if len(operators) == 2:
    return _interval(*parts)
  raise UndecidedError


def _equation(left: str, right: str) -> tuple[Key, str]:
  if _VARIABLE.fullmatch(left):
    key, _ = key_and_unit(right)
    if key[0] != "value":
      return key, left
    if right.rstrip()[-1:].isalpha():
      # A unit, perhaps: x = 5 cm. Only a constant may have one.
      left_over = _constant_key(right)
      if left_over:
        return left_over, left
  difference = algebra.plus(
    parse_value(left), algebra.negative(parse_value(right))
  )
  solution = _solve_linear(difference)
  if solution:
    return solution
  return ("equation", algebra.key(_normal(difference))), ""


def _constant_key(text: str) -> Key | None:
  key, _ = key_and_unit(text)
  names = {name for (_, _, symbols), _, _ in key[1] for name, _ in symbols}
  return key if names <= {"pi"} else None


def _solve_linear(value: Value) -> tuple[Key, str] | None:
  """The x of `a x + b = 0`, where a and b are constants."""
  linear = [m for m in value if any(name != "pi" for name, _ in m[2])]
  if len(linear) != 1:
    return None
  monomial = linear[0]
  (name, exponent), *others = monomial[2]
  if monomial[:2] != (1, 0) or exponent != 1 or others:
    return None
  rest = {m: c for m, c in value.items() if m != monomial}
  scale = algebra.constant(Fraction(-1) / value[monomial])
  return value_key(algebra.times(rest, scale)), name


def _normal(value: Value) -> Value:
  """The same equation without negative powers, its first coefficient 1."""
  if not value or any(root != 1 for root, _, _ in value):
    raise UndecidedError
  lowest: dict[str, int] = {}
  for _, _, names in value:
    for name, exponent in names:
      lowest[name] = min(lowest.get(name, 0), exponent)
  clear = tuple(sorted((n, -e) for n, e in lowest.items() if e < 0))
  value = algebra.times(value, {(1, 0, clear): 1})
  if algebra.is_constant(value):
    raise UndecidedError
  first = value[min(value)]
  return algebra.times(value, algebra.constant(Fraction(1) / first))


def _half_line(left: str, operator: str, right: str) -> tuple[Key, str]:
  like = _LIKE[operator]
  if not _VARIABLE.fullmatch(left):
    left, right = right, left
    like = "<" if like == ">" else ">"
  if not _VARIABLE.fullmatch(left):
    raise UndecidedError
  closed = operator not in _STRICT
  end = _endpoint(right)
  if like == "<":
    return _between("(", _INFINITE["<"], end, "]" if closed else ")"), left
  return _between("[" if closed else "(", end, _INFINITE[">"], ")"), left


def _interval(low, first, middle, second, high) -> tuple[Key, str]:
  if _LIKE[first] != _LIKE[second] or not _VARIABLE.fullmatch(middle):
    raise UndecidedError
  if _LIKE[first] == ">":
    low, first, second, high = high, second, first, low
  opening = "(" if first in _STRICT else "["
  closing = ")" if second in _STRICT else "]"
  return _between(opening, _endpoint(low), _endpoint(high), closing), middle


def _between(opening: str, low: Key, high: Key, closing: str) -> Key:
  return ("sequence", opening, closing, (low, high))


def _endpoint(text: str) -> Key:
  key, _ = key_and_unit(text)
  if key[0] == "infinity" or (key[0] == "value" and _constant_key(text)):
    return key
  raise UndecidedError
