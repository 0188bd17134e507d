"""Answers that hold others: lists, tuples, intervals, relations, matrices.

Everything here takes cleaned text and gives (key, unit, label), or raises
UndecidedError. A key is a tuple that begins with its kind:

    ("value", terms)                a number or a polynomial, see `algebra`
    ("infinity", 1 or -1)
    ("text", words)                 in lower case
    ("base", digits, base)
    ("set", entries)                frozenset of (key, how often)
    ("assigned", entries)           x = 1, y = 2: frozenset of (label, key)
    ("sequence", open, close, keys) tuples and intervals
    ("union", keys)                 of intervals
    ("equation", terms)             left - right, the first coefficient 1
    ("matrix", rows)
"""

import re
from collections import Counter
from collections.abc import Iterator

from grpo_jax.rewards import relations
from grpo_jax.rewards.algebra import UndecidedError
from grpo_jax.rewards.values import Key, join_thousands, key_and_unit

Meaning = tuple[Key, str, str]

_ATOMIC = re.compile(r"(?:[^,;=<>()\[\]\\ao]|\\(?:frac|sqrt|pi|%|\$))*")
_BRACKET = re.compile(r"\\[{}]|\\[lr]angle|[()\[\]{}]|\\.")
_CLOSING = {"(": ")", "[": "]", "\\{": "\\}", "\\langle": "\\rangle", "{": "}"}
_CLOSERS = frozenset(_CLOSING.values())
_HAS_TUPLE = re.compile(r"[(\[]|\\\{|\\langle")
_SEPARATOR = re.compile(r",?\s+(?:and|or)\s+|[,;]")
_UNION = re.compile(r"\\cup(?![a-zA-Z])")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)
_MAX_ENTRIES = 50
_MAX_DEPTH = 4


def meaning(text: str, depth: int = 0) -> Meaning:
  """Key, unit and label of an answer.

  Raises:
    UndecidedError: the notation is not covered, or could mean two things.
  """
  text = text.strip()
  if not text or depth > _MAX_DEPTH:
    raise UndecidedError
  if _ATOMIC.fullmatch(text):
    return *key_and_unit(text), ""
  matrix = _MATRIX.fullmatch(text)
  if matrix:
    return _matrix(matrix[2]), "", ""
  label, rest = relations.split_label(text)
  if label:
    key, unit, _ = meaning(rest, depth + 1)
    return key, unit, label
  if not _HAS_TUPLE.search(text):
    text = join_thousands(text)
  pieces = _split(text, _UNION)
  if len(pieces) > 1:
    return _union(pieces, depth), "", ""
  pieces = _split(text, _SEPARATOR)
  if len(pieces) > 1 or ("\\pm" in text and not _is_bracketed(text)):
    return _set(pieces, depth)
  relation = _split(text, relations.RELATION, keep=True)
  if len(relation) > 1:
    key, label = relations.key_and_label(relation)
    return key, "", label
  if _is_bracketed(text):
    return _bracketed(text, depth)
  return *key_and_unit(text), ""


def _brackets(text: str) -> Iterator[tuple[int, int, int]]:
  """(start, end, depth after it) of every bracket that is not escaped."""
  depth = 0
  for match in _BRACKET.finditer(text):
    token = match[0]
    if token in _CLOSING:
      depth += 1
    elif token in _CLOSERS:
      depth -= 1
    else:
      continue
    if depth < 0:
      raise UndecidedError
    yield match.start(), match.end(), depth
  if depth:
    raise UndecidedError


def _split(text: str, pattern: re.Pattern, keep: bool = False) -> list[str]:
  """The pieces between matches outside all brackets.

  Args:
    text: to split.
    pattern: what separates.
    keep: the separators too, at the odd places.
  """
  found = list(pattern.finditer(text))
  if not found:
    return [text]
  changes = list(_brackets(text))
  pieces, start, depth, at = [], 0, 0, 0
  for match in found:
    while at < len(changes) and changes[at][0] < match.start():
      depth = changes[at][2]
      at += 1
    if depth == 0:
      pieces.append(text[start : match.start()])
      if keep:
        pieces.append(match[0])
      start = match.end()
  pieces.append(text[start:])
  return pieces


def _is_bracketed(text: str) -> bool:
  """Whether the first bracket opens the text and closes at its end."""
  bracket = _BRACKET.match(text)
  if not bracket or bracket[0] not in _CLOSING:
    return False
  return next(e for _, e, d in _brackets(text) if d == 0) == len(text)


def _bracketed(text: str, depth: int) -> Meaning:
  opening = _BRACKET.match(text)[0]
  closing = (
    next(c for c in _CLOSERS if text.endswith(c) and len(c) > 1)
    if (text.endswith(("\\}", "\\rangle")))
    else text[-1]
  )
  inner = text[len(opening) : -len(closing)]
  pieces = _split(inner, _SEPARATOR)
  if opening == "\\{" and closing == "\\}":
    return _set(pieces, depth)
  if opening == "\\langle" and closing == "\\rangle":
    opening, closing = "(", ")"
  if len(pieces) == 1:
    if (opening, closing) not in (("(", ")"), ("{", "}")):
      raise UndecidedError
    return meaning(inner, depth + 1)
  if opening not in "([" or closing not in ")]" or len(pieces) > _MAX_ENTRIES:
    raise UndecidedError
  if len(pieces) > 2 and _CLOSING[opening] != closing:
    raise UndecidedError
  keys = tuple(meaning(piece, depth + 1)[0] for piece in pieces)
  return ("sequence", opening, closing, keys), "", ""


def _set(pieces: list[str], depth: int) -> Meaning:
  """A set, of which a single member stands for itself."""
  if len(pieces) > _MAX_ENTRIES:
    raise UndecidedError
  members = [
    meaning(text, depth + 1) for piece in pieces for text in _both_signs(piece)
  ]
  keys, units, labels = zip(*members, strict=True)
  unit = units[0] if len(set(units)) == 1 else ""
  if len(keys) == 1:
    return keys[0], unit, labels[0]
  if len(set(labels)) == 1:
    return ("set", frozenset(Counter(keys).items())), unit, labels[0]
  if len(set(labels)) < len(labels) or "" in labels:
    raise UndecidedError
  return ("assigned", frozenset(zip(labels, keys, strict=True))), unit, ""


def _both_signs(text: str) -> list[str]:
  if "\\mp" in text or text.count("\\pm") > 1:
    raise UndecidedError
  if "\\pm" in text:
    return [text.replace("\\pm", "+"), text.replace("\\pm", "-")]
  return [text]


def _union(pieces: list[str], depth: int) -> Key:
  keys = [meaning(piece, depth + 1)[0] for piece in pieces]
  if any(key[0] not in ("sequence", "set") for key in keys):
    raise UndecidedError
  return ("union", frozenset(keys))


def _matrix(body: str) -> Key:
  rows = [row.split("&") for row in body.strip().split("\\\\") if row.strip()]
  if not rows or len({len(row) for row in rows}) > 1 or len(rows) > 20:
    raise UndecidedError
  return (
    "matrix",
    tuple(tuple(key_and_unit(cell)[0] for cell in row) for row in rows),
  )
