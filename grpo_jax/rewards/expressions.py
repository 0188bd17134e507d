"""A parser of arithmetic in LaTeX or plain text, into exact values.

It knows only the notation listed here; on anything else, and on anything that
could be read in two ways, it raises UndecidedError rather than guess.
"""

import re
from fractions import Fraction

from grpo_jax.rewards import algebra
from grpo_jax.rewards.algebra import UndecidedError, Value

_TOKEN = re.compile(
  r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+|\\[a-zA-Z]+|[a-zA-Z]+|\S"
)
_NUMBER = re.compile(r"([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]+))?")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPERATORS = frozenset("+-*/^!)]}_,|'")
# f(x) is no product. Of names this short, only these are read as functions.
_FUNCTIONS = frozenset("fghFGHP")
_MAX_DEPTH = 20
_MAX_DECIMAL_EXPONENT = 1_000
_MAX_RUN = 3


def parse_expression(text: str) -> Value:
  """The value of an expression; nothing of it is ever evaluated as code.

  Args:
    text: cleaned by `notation.clean`.

  Raises:
    UndecidedError: not covered, ambiguous or too large.
  """
  parser = _Parser(_TOKEN.findall(text))
  value = parser.sum()
  if parser.peek():
    raise UndecidedError
  return value


def parse_number(text: str) -> int | Fraction:
  """A decimal literal, exactly.

  Raises:
    UndecidedError: its exponent is too large.
  """
  if text.isdigit():
    return int(text)
  whole, decimals, exponent = _NUMBER.fullmatch(text).groups()
  decimals = decimals or ""
  shift = int(exponent or 0) if len(exponent or "") < 9 else 10**9
  if abs(shift) > _MAX_DECIMAL_EXPONENT:
    raise UndecidedError
  number = Fraction(int(whole + decimals), 10 ** len(decimals))
  return number * Fraction(10) ** shift


def is_number(token: str) -> bool:
  # Not str.isdigit, which holds for other scripts and for superscripts.
  return "0" <= token[:1] <= "9" or (len(token) > 1 and token[0] == ".")


class _Parser:
  """Recursive descent over a list of tokens.

  sum     = [sign] product {sign product}
  product = power {("*" | "/" | nothing) power}
  power   = atom {"!"} ["^" exponent]
  """

  def __init__(self, tokens: list[str]):
    self.tokens = tokens
    self.at = 0
    self.depth = 0

  def peek(self) -> str:
    return self.tokens[self.at] if self.at < len(self.tokens) else ""

  def take(self, expected: str = "") -> str:
    token = self.peek()
    if not token or (expected and token != expected):
      raise UndecidedError
    self.at += 1
    return token

  def sum(self) -> Value:
    total = self.product()
    while self.peek() in ("+", "-"):
      # `1 + -2` is fine, the product takes the second sign.
      sign = self.take()
      term = self.product()
      total = algebra.plus(
        total, term if sign == "+" else algebra.negative(term)
      )
    return total

  def product(self) -> Value:
    if self.peek() in ("+", "-"):
      negate = self.take() == "-"
      if self.peek() in ("+", "-"):
        raise UndecidedError
      value = self.product()
      return algebra.negative(value) if negate else value
    first = self.peek()
    value = self.power()
    divided = False
    while True:
      token = self.peek()
      if token == "*":
        self.take()
        value = algebra.times(value, self.signed_power())
      elif token == "/":
        self.take()
        value = algebra.times(value, algebra.inverse(self.signed_power()))
        divided = True
        continue
      elif token and token not in _OPERATORS:
        # 1/2x may be x/2 or 1/(2x), 2 3 is no product, and 1\frac{1}{2} in
        # the middle of something may be mixed or not.
        if divided or is_number(token):
          raise UndecidedError
        factor = self.power()
        mixed = token == "\\frac" and algebra.rational(factor) is not None
        if mixed and is_number(first):
          raise UndecidedError
        value = algebra.times(value, factor)
      else:
        return value
      divided, first = False, token

  def signed_power(self) -> Value:
    if self.peek() in ("+", "-"):
      negate = self.take() == "-"
      value = self.power()
      return algebra.negative(value) if negate else value
    return self.power()

  def power(self) -> Value:
    value = self.atom()
    if self.peek() == "!":
      self.take()
      value = algebra.factorial(value)
      if self.peek() == "!":
        raise UndecidedError
    if self.peek() == "^":
      self.take()
      value = algebra.power(value, self.exponent())
      if self.peek() in ("^", "!"):
        raise UndecidedError
    return value

  def exponent(self) -> Value:
    if self.peek() in ("{", "("):
      return self.atom()
    if self.peek() in ("+", "-"):
      negate = self.take() == "-"
      value = self.atom()
      return algebra.negative(value) if negate else value
    if self.peek().isalpha() and len(self.peek()) > 1:
      raise UndecidedError
    return self.atom()

  def atom(self) -> Value:
    token = self.take()
    if is_number(token):
      return algebra.constant(parse_number(token))
    if token in _CLOSING:
      return self.group(token)
    if token.isalpha() and token.isascii():
      return self.letters(token)
    if token == "\\pi":
      return algebra.symbol("pi")
    if token == "\\frac":
      return algebra.times(self.atom_of_fraction(), self.denominator())
    if token == "\\binom":
      return algebra.binomial(self.group(self.take()), self.group(self.take()))
    if token == "\\sqrt":
      return self.radical()
    if token in _GREEK:
      return algebra.symbol(token + self.subscript())
    raise UndecidedError

  def group(self, opening: str) -> Value:
    self.depth += 1
    if self.depth > _MAX_DEPTH or opening not in _CLOSING:
      raise UndecidedError
    value = self.sum()
    self.take(_CLOSING[opening])
    self.depth -= 1
    return value

  def atom_of_fraction(self) -> Value:
    """A group, or what LaTeX takes without braces: a digit, a command."""
    if len(self.peek()) > 1 and self.peek()[0] != "\\":
      raise UndecidedError
    return self.atom()

  def denominator(self) -> Value:
    return algebra.inverse(self.atom_of_fraction())

  def radical(self) -> Value:
    degree = 2
    if self.peek() == "[":
      degree = algebra.integer(self.group(self.take()))
    if self.peek().isalpha() and len(self.peek()) > 1:
      raise UndecidedError
    return algebra.root(self.atom(), degree)

  def letters(self, run: str) -> Value:
    """A run of letters: a product of variables, the last with a subscript."""
    if len(run) > _MAX_RUN:
      raise UndecidedError
    value = algebra.constant(1)
    for letter in run[:-1]:
      value = algebra.times(value, _letter(letter))
    if self.peek() == "_":
      return algebra.times(value, algebra.symbol(run[-1] + self.subscript()))
    if run[-1] in _FUNCTIONS and self.peek() == "(":
      raise UndecidedError
    return algebra.times(value, _letter(run[-1]))

  def subscript(self) -> str:
    if self.peek() != "_":
      return ""
    self.take()
    name = self.take()
    if name == "{":
      name = self.take()
      self.take("}")
    if not (name.isalnum() and name.isascii()):
      raise UndecidedError
    return "_" + name


_GREEK = frozenset(
  r"\alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \lambda"
  r" \mu \nu \xi \rho \sigma \tau \phi \varphi \chi \psi \omega".split()
)


def _letter(letter: str) -> Value:
  return algebra.IMAGINARY if letter == "i" else algebra.symbol(letter)
