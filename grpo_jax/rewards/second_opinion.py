"""Whether two SymPy objects that were found equal are so in numbers.

Runs in worker processes only. Symbolic equality through rounding takes
1/2^99 for 1/2^98; twelve digits of both sides at a few points tell.
"""

from sympy import Basic, Eq, Expr, MatrixBase, Rational, Symbol, Tuple

# One is negative: |x| is not x.
_POINTS = (Rational(37, 29), Rational(-53, 91), Rational(211, 67))
_DIGITS = 40
_TOLERANCE = Rational(1, 10**12)


def agree(expected, given) -> bool:
  """Whether numbers do not contradict that two objects are equal.

  Expressions and equations are evaluated at points, tuples and matrices by
  their entries; sets and inequalities are not checked.
  """
  if isinstance(expected, (Tuple, MatrixBase)):
    return (
      isinstance(given, (Tuple, MatrixBase))
      and len(expected) == len(given)
      and all(agree(a, b) for a, b in zip(expected, given, strict=True))
    )
  if isinstance(expected, Eq) and isinstance(given, Eq):
    return _same_ratio(expected.lhs - expected.rhs, given.lhs - given.rhs)
  expected, given = _right_side(expected), _right_side(given)
  if isinstance(expected, Expr) and isinstance(given, Expr):
    return _same_values(expected, given)
  return True


def _right_side(item):
  """2x of y = 2x."""
  named = isinstance(item, Eq) and isinstance(item.lhs, Symbol)
  return item.rhs if named else item


def _same_values(a: Expr, b: Expr) -> bool:
  compared = [_close(x, y) for x, y in _at_points(a, b)]
  return bool(compared) and all(compared)


def _same_ratio(a: Expr, b: Expr) -> bool:
  """Equations are equal if their sides' differences are multiples."""
  values = list(_at_points(a, b))
  if not values or any(y == 0 for _, y in values):
    return a == b
  (x0, y0), *rest = values
  return all(_close(x * y0, x0 * y) for x, y in rest)


def _at_points(a: Expr, b: Expr):
  """Values of both where both have one, at points without symmetry."""
  symbols = sorted(a.free_symbols | b.free_symbols, key=str)
  for shift, _ in enumerate(_POINTS if symbols else (0,)):
    point = {
      name: _POINTS[(index + shift) % len(_POINTS)] + index
      for index, name in enumerate(symbols)
    }
    x, y = (_number(side, point) for side in (a, b))
    if x is not None and y is not None:
      yield x, y


def _number(side: Expr, point) -> Basic | None:
  value = side.subs(point).doit().evalf(_DIGITS)
  return value if value.is_number and value.is_finite else None


def _close(x, y) -> bool:
  return bool(abs(x - y) <= _TOLERANCE * max(abs(x), abs(y)))
