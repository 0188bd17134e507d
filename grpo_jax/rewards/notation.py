r"""One spelling for what LaTeX and plain text write in many.

\left(\dfrac12,\ \text{ cm}\right)  ->  (\frac{1}{2}, cm )
"""

import re

from grpo_jax.rewards.units import LETTER_UNITS

_UNICODE = str.maketrans(
  {
    "\u2212": "-",
    "\u2013": "-",
    "\u00d7": "*",
    "\u00b7": "*",
    "\u22c5": "*",
    "\u00f7": "/",
    "\u03c0": "\\pi ",
    "\u221a": "\\sqrt ",
    "\u221e": "\\infty ",
    "\u00b0": " degrees ",
    "\u2264": "\\le ",
    "\u2265": "\\ge ",
    "\u222a": "\\cup ",
    "\u2208": "\\in ",
    "\u00b1": "\\pm ",
    "\u00b2": "^2",
    "\u00b3": "^3",
    "\u00bd": "\\frac{1}{2}",
    "\u00bc": "\\frac{1}{4}",
    "\u00be": "\\frac{3}{4}",
    "\u2153": "\\frac{1}{3}",
    "\u2154": "\\frac{2}{3}",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    "\u2019": "'",
    "\u27e8": "\\langle ",
    "\u27e9": "\\rangle ",
  }
)

_COMMANDS = {
  **dict.fromkeys(
    (
      "left right big Big bigl bigr Bigl Bigr bigg Bigg biggl biggr Biggl Biggr"
      " displaystyle textstyle limits"
    ).split(),
    "",
  ),
  **dict.fromkeys("quad qquad enspace space thinspace".split(), " "),
  **dict.fromkeys("times cdot ast".split(), "*"),
  **dict.fromkeys("dfrac tfrac cfrac".split(), "\\frac"),
  **dict.fromkeys("circ degree".split(), " degrees "),
  "div": "/",
  "leq": "\\le ",
  "leqslant": "\\le ",
  "geq": "\\ge ",
  "geqslant": "\\ge ",
  "lt": "<",
  "gt": ">",
  "lbrace": "\\{",
  "rbrace": "\\}",
  "lbrack": "[",
  "rbrack": "]",
  "lparen": "(",
  "rparen": ")",
  "land": " and ",
  "lor": " or ",
  "infin": "\\infty ",
  "tbinom": "\\binom",
  "dbinom": "\\binom",
  "bmod": "\\bmod ",
}
_SYMBOLS = {"!": "", ",": " ", ";": " ", ":": " ", " ": " ", ">": " "}

_ESCAPE = re.compile(r"\\([a-zA-Z]+|.)", re.DOTALL)
_TEXT = re.compile(
  r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf"
  r"|mbox|hbox|operatorname|emph|boxed|fbox)\s*\{([^{}]*)\}"
)
_SHORT_FRACTION = re.compile(
  r"\\frac\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))"
)
_NAMES = re.compile(
  r"(?<![\\a-zA-Z])(sin|cos|tan|cot|sec|csc|log|ln|sqrt|pi|infty)(?![a-zA-Z])"
)
_SPACED_COMMA = re.compile(r",\s*\\!\s*")
_DEGREES = re.compile(
  r"\^\s*(?:\{\s*\\(?:circ|degree)\s*\}|\\(?:circ|degree)(?![a-zA-Z]))"
)


def clean(text: str) -> str:
  """The answer in one spelling; text without LaTeX is nearly unchanged.

  Spacing and size commands go, fractions get their braces, texts lose theirs,
  and signs of Unicode that have one meaning get their commands. Digits of
  other scripts stay, and are no digits to anything that reads this.
  """
  if not text.isascii():
    text = text.translate(_UNICODE)
  if "\\" in text:
    text = _SPACED_COMMA.sub(",", text)
    text = _DEGREES.sub(" degrees ", text)
    text = _TEXT.sub(_with_space, text)
    text = _ESCAPE.sub(_rewrite, text)
    text = _SHORT_FRACTION.sub(_with_braces, text)
  text = text.replace("~", " ").replace("**", "^").replace("{,}", ",")
  return _NAMES.sub(r"\\\1 ", text).strip()


def _with_space(match: re.Match) -> str:
  """Of single letters only a text tells units from variables: 5 m, 5m."""
  before = match.string[: match.start()].rstrip()
  if before.endswith((*"0123456789", "}", ")")):
    return f" {LETTER_UNITS.get(match[1].strip(), match[1])} "
  return f" {match[1]} "


def _rewrite(match: re.Match) -> str:
  name = match[1]
  if len(name) == 1 and not name.isalpha():
    return _SYMBOLS.get(name, match[0])
  return _COMMANDS.get(name, match[0])


def _with_braces(match: re.Match) -> str:
  top = match[1] if match[1] is not None else match[2]
  bottom = match[3] if match[3] is not None else match[4]
  return f"\\frac{{{top}}}{{{bottom}}}"
