"""Units and the words after a number: read, told apart, and left out.

The number is the answer: 15, 15 cm and 15 square centimetres are one answer.
Only where both sides name a unit of this table may the units contradict.
"""

import re

from grpo_jax.rewards.algebra import UndecidedError

_SPELLINGS = {
  "meter": "m meters metre metres",
  "centimeter": "cm cms centimeters centimetre centimetres",
  "millimeter": "mm millimeters millimetre millimetres",
  "kilometer": "km kms kilometers kilometre kilometres",
  "inch": "inches",
  "foot": "feet ft",
  "yard": "yards yd yds",
  "mile": "miles mi",
  "gram": "g grams",
  "kilogram": "kg kgs kilograms",
  "milligram": "mg milligrams",
  "pound": "pounds lb lbs",
  "ounce": "ounces oz",
  "ton": "tons tonne tonnes",
  "liter": "liters litre litres",
  "milliliter": "ml milliliters millilitre millilitres",
  "gallon": "gallons gal",
  "second": "s seconds sec secs",
  "minute": "minutes min mins",
  "hour": "hours h hr hrs",
  "day": "days",
  "week": "weeks",
  "month": "months",
  "year": "years yr yrs",
  "dollar": "dollars usd bucks $",
  "cent": "cents",
  "euro": "euros eur \u20ac",
  "pound sterling": "gbp \u00a3",
  "degree": "degrees deg",
  "radian": "radians rad",
  "percent": "percents",
  "unit": "units mph kph km/h m/s",
}
# "unit" names none: 12 units may be 12 cm. Neither do speeds and rates.
_UNITS = {
  spelling: unit if unit != "unit" else ""
  for unit, spellings in _SPELLINGS.items()
  for spelling in [unit, *spellings.split()]
}
# In \text after a number these are units; elsewhere they are variables.
LETTER_UNITS = {
  "m": "meters",
  "g": "grams",
  "s": "seconds",
  "h": "hours",
  "L": "liters",
  "C": "units",
  "F": "units",
}
_SHORT_WORDS = frozenset(
  "per of a an the in each sq square cubic men cup cups box egg eggs".split()
)
# Longer words after a number are taken for what is counted, but for these.
_NO_NOUNS = frozenset(
  "over plus minus times than more less fewer half halves third thirds fourth"
  " fourths fifth fifths quarter quarters tenth tenths hundredth hundredths"
  " thousandth thousandths modulo base divided squared cubed root sqrt where"
  " when with that this else maybe then also approximately about roughly"
  " exactly dozen dozens point factorial choose wait thus hence however"
  " because since except false true wrong either both none neither remainder"
  " below above between from until times mixed power equal equals".split()
)
_SCALES = {
  "hundred": 10**2,
  "thousand": 10**3,
  "million": 10**6,
  "billion": 10**9,
  "trillion": 10**12,
}
_MAX_WORDS = 5

_CURRENCY = re.compile(r"([-+]?)\s*(?:\\?(\$)|([\u20ac\u00a3]))\s*(?=[-+0-9.])")
_PERCENT = re.compile(r"\s*\\?%$")
_WORDS = re.compile(
  r"(?<=[0-9a-zA-Z)}\].])((?:\s+[a-zA-Z][a-zA-Z/]+\.?)+)"
  r"\s*(?:\^\s*\{?\s*[0-9]\s*\}?)?$"
)
_GLUED = re.compile(r"(?<=[0-9])([a-zA-Z]{2,})(?:\^\{?[0-9]\}?)?$")


def split_unit(text: str) -> tuple[str, str, int]:
  r"""Takes units, percent and currency signs and counted nouns off a number.

  A percent sign is a unit: 10% is 10, as in most answers to "what percent?",
  and is not 0.1.

  Args:
    text: cleaned by `notation.clean`.

  Returns:
    The rest; the unit, empty if there is none in the table; and the scale of
    `hundred` to `trillion`, else 1.

  Raises:
    UndecidedError: words follow that may change what the number means.
  """
  unit = ""
  money = _CURRENCY.match(text)
  if money:
    unit = _UNITS[money[2] or money[3]]
    text = money[1] + text[money.end() :]
  if text[-1:] == "%":
    return _PERCENT.sub("", text), "percent", 1
  if not (text[-1:].isalpha() or text[-1:] in ".}0123456789"):
    return text, unit, 1
  words = _WORDS.search(text)
  if words:
    found, scale = _read_words(words[1].split())
    return text[: words.start()].rstrip(), unit or found, scale
  glued = _GLUED.search(text)
  if glued and glued[1] in _UNITS:
    return text[: glued.start()], unit or _UNITS[glued[1]], 1
  return text, unit, 1


def _read_words(words: list[str]) -> tuple[str, int]:
  words = [word.rstrip(".") for word in words]
  scale = _SCALES.get(words[0].lower(), 1)
  if scale > 1:
    words = words[1:]
  unit, rate = "", "per" in words
  for word in words:
    lower = word.lower()
    known = _UNITS.get(word, _UNITS.get(lower))
    if known is not None:
      unit = unit or known
    elif lower not in _SHORT_WORDS and (
      len(lower) < 4 or lower in _NO_NOUNS or lower in _SCALES
    ):
      raise UndecidedError
  if len(words) > _MAX_WORDS:
    raise UndecidedError
  return "" if rate else unit, scale
