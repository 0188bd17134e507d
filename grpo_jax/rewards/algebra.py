"""Exact values: sums of rational multiples of surds, i and symbols.

A value is a dict from monomial to rational coefficient. A monomial is
(radicand, i, symbols): a square-free integer under the root, 0 or 1 times i,
and sorted (symbol, exponent) pairs. pi is a symbol. Roots of different
square-free integers are linearly independent over the rationals and pi is
transcendental, so two values are equal if and only if their dicts are: no
tolerance, nothing to simplify.

    3/2 - sqrt(8) pi  ->  {(1, 0, ()): 3/2, (2, 0, (("pi", 1),)): -2}
"""

import math
from collections.abc import Hashable
from fractions import Fraction
from functools import lru_cache

Monomial = tuple[int, int, tuple[tuple[str, int], ...]]
Value = dict[Monomial, int | Fraction]

ONE: Monomial = (1, 0, ())
IMAGINARY: Value = {(1, 1, ()): 1}

# Whatever is larger is left to the symbolic tier: the exact tier answers in
# microseconds or not at all.
_MAX_BITS = 14_000  # Python refuses to print integers above 4300 digits.
_MAX_PRODUCTS = 400
_MAX_EXPONENT = 10_000
_MAX_RADICAND = 10**12
_MAX_FACTORIAL = 1_000


class UndecidedError(ValueError):
  """The exact tier does not cover this notation, or it is too large."""


def constant(number: int | Fraction) -> Value:
  return {ONE: number} if number else {}


def symbol(name: str) -> Value:
  return {(1, 0, ((name, 1),)): 1}


def rational(value: Value) -> int | Fraction | None:
  """The value as a rational number; None if it is none."""
  if not value:
    return 0
  return value[ONE] if len(value) == 1 and ONE in value else None


def integer(value: Value) -> int:
  """The value as an integer.

  Raises:
    UndecidedError: it is none.
  """
  number = rational(value)
  if number is None or number.denominator != 1:
    raise UndecidedError
  return number.numerator


def is_constant(value: Value) -> bool:
  """Whether no symbol but pi occurs."""
  return all(name == "pi" for _, _, names in value for name, _ in names)


def key(value: Value) -> Hashable:
  """A hashable; equal for equal values.

  Raises:
    UndecidedError: a coefficient is too large.
  """
  for c in value.values():
    if max(c.numerator.bit_length(), c.denominator.bit_length()) > _MAX_BITS:
      raise UndecidedError
  return frozenset(
    (monomial, c.numerator, c.denominator) for monomial, c in value.items()
  )


def plus(a: Value, b: Value) -> Value:
  total = dict(a)
  for monomial, coefficient in b.items():
    total[monomial] = total.get(monomial, 0) + coefficient
  return {monomial: c for monomial, c in total.items() if c}


def negative(a: Value) -> Value:
  return {monomial: -c for monomial, c in a.items()}


def times(a: Value, b: Value) -> Value:
  if len(a) * len(b) > _MAX_PRODUCTS:
    raise UndecidedError
  product: Value = {}
  for (root_a, i_a, names_a), c_a in a.items():
    for (root_b, i_b, names_b), c_b in b.items():
      shared = math.gcd(root_a, root_b)
      c = c_a * c_b * shared
      monomial = (
        (root_a // shared) * (root_b // shared),
        i_a ^ i_b,
        _merge(names_a, names_b),
      )
      c = -c if i_a and i_b else c
      product[monomial] = product.get(monomial, 0) + c
  return {monomial: c for monomial, c in product.items() if c}


def _merge(a, b):
  if not (a and b):
    return a or b
  exponents = dict(a)
  for name, exponent in b:
    exponents[name] = exponents.get(name, 0) + exponent
  return tuple(sorted((n, e) for n, e in exponents.items() if e))


def inverse(a: Value) -> Value:
  """1/a, where a has one term, or two without symbols.

  Raises:
    UndecidedError: a is zero, or any other sum.
  """
  if len(a) == 1:
    ((root, i, names), c), *_ = a.items()
    c = Fraction(1) / (c * root)
    return {(root, i, tuple((n, -e) for n, e in names)): -c if i else c}
  if len(a) == 2 and not any(names for _, _, names in a):
    (m, c), (n, d) = a.items()
    conjugate = {m: c, n: -d}
    # (x + y)(x - y) is rational, for x and y are each a root of a rational.
    norm = rational(times(a, conjugate))
    if norm:
      return times(conjugate, constant(Fraction(1) / norm))
  raise UndecidedError


def power(a: Value, exponent: Value) -> Value:
  """A to a rational exponent, where the result is a value.

  Raises:
    UndecidedError: it is none, or it is too large.
  """
  number = rational(exponent)
  if number is None or abs(number.numerator) > _MAX_EXPONENT:
    raise UndecidedError
  if number.denominator > 1:
    base = rational(a)
    if base is None or base <= 0:
      raise UndecidedError
    a = root(a, number.denominator)
  n = number.numerator
  if n < 0:
    a, n = inverse(a), -n
  if not a and n == 0:
    raise UndecidedError
  bits = sum(
    c.numerator.bit_length() + c.denominator.bit_length() + m[0].bit_length()
    for m, c in a.items()
  )
  if bits * n > _MAX_BITS and not (bits <= 3 and len(a) == 1):
    raise UndecidedError
  result = constant(1)
  while n:
    result = times(result, a) if n & 1 else result
    n >>= 1
    a = times(a, a) if n else a
  return result


def root(a: Value, degree: int) -> Value:
  """The principal square root of a rational, or an exact higher root.

  Raises:
    UndecidedError: a is no rational number, or its root no value.
  """
  number = rational(a)
  if number is None or not 2 <= degree <= 20:
    raise UndecidedError
  if degree == 2:
    radicand = abs(number.numerator) * number.denominator
    outside, inside = _square_part(radicand)
    surd = {(inside, int(number < 0), ()): Fraction(1, number.denominator)}
    return times(surd, constant(outside))
  if number < 0 and degree % 2 == 0:
    raise UndecidedError
  exact = Fraction(
    _whole_root(abs(number.numerator), degree),
    _whole_root(number.denominator, degree),
  )
  return constant(-exact if number < 0 else exact)


def _whole_root(n: int, degree: int) -> int:
  if n > 2**1000:
    raise UndecidedError
  guess = round(n ** (1 / degree))
  for candidate in (guess - 1, guess, guess + 1):
    if candidate >= 0 and candidate**degree == n:
      return candidate
  raise UndecidedError


@lru_cache(maxsize=4096)
def _square_part(n: int) -> tuple[int, int]:
  """(a, b) with n = a^2 b and b square-free; (0, 1) for 0."""
  if n > _MAX_RADICAND:
    raise UndecidedError
  if n == 0:
    return 0, 1
  outside, inside, p = 1, 1, 2
  # Beyond the cube root at most two primes are left: a square or none.
  while p * p * p <= n:
    while n % (p * p) == 0:
      outside, n = outside * p, n // (p * p)
    if n % p == 0:
      inside, n = inside * p, n // p
    p += 1 if p == 2 else 2
  whole = math.isqrt(n)
  if whole * whole == n:
    return outside * whole, inside
  return outside, inside * n


def factorial(a: Value) -> Value:
  n = integer(a)
  if not 0 <= n <= _MAX_FACTORIAL:
    raise UndecidedError
  return constant(math.factorial(n))


def binomial(a: Value, b: Value) -> Value:
  n, k = integer(a), integer(b)
  if not 0 <= k <= n <= _MAX_FACTORIAL:
    raise UndecidedError
  return constant(math.comb(n, k))
