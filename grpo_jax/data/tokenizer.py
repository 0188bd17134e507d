"""A tokenizer of single characters, with a few whole words."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np


class Tokenizer(Protocol):
  """What a task needs of a tokenizer.

  Rows are padded by zeros, and lengths tell where they end: id 0 may be a token
  like any other.

  Attributes:
    vocab_size: one more than the largest id.
    stop_ids: ids that end a completion; traces to imitate get the first.
  """

  vocab_size: int
  stop_ids: tuple[int, ...]

  def encode(self, text: str) -> list[int]:
    """Token ids, without an end token."""

  def decode(self, ids: Iterable[int]) -> str:
    """The text of a completion, or of its beginning, without its end token.

    The ids hold no padding. The text of a beginning is not longer than that of
    a longer one.
    """


THINK, END_THINK = "<think>", "</think>"
_EOS = "<eos>"


class CharTokenizer:
  """One token per character; `<think>` and `</think>` are one token each.

  Id 0 is padding, id 1 ends a text.
  """

  eos_id = 1

  def __init__(self, characters: str):
    """Builds the vocabulary.

    Args:
      characters: all that may occur, each once.

    Raises:
      ValueError: a character is there twice.
    """
    if len(set(characters)) < len(characters):
      raise ValueError("A character of the vocabulary is there twice.")
    self._tokens = ["", _EOS, THINK, END_THINK, *characters]
    self._ids = {token: i for i, token in enumerate(self._tokens) if i > 1}

  @property
  def vocab_size(self) -> int:
    return len(self._tokens)

  @property
  def stop_ids(self) -> tuple[int, ...]:
    return (self.eos_id,)

  def encode(self, text: str) -> list[int]:
    """Token ids of a text, without an end.

    Raises:
      ValueError: a character is not in the vocabulary.
    """
    ids = []
    at = 0
    while at < len(text):
      for word in (THINK, END_THINK, text[at]):
        if text.startswith(word, at) and word in self._ids:
          ids.append(self._ids[word])
          at += len(word)
          break
      else:
        raise ValueError(
          f"The character {text[at]!r} of {text!r} is not in the vocabulary"
          f" {''.join(self._tokens[4:])!r}."
        )
    return ids

  def decode(self, ids: Iterable[int]) -> str:
    """The text of token ids; padding and the end token give nothing."""
    return "".join(self._tokens[i] for i in ids if i > 1)


def pad_rows(
  rows: list[list[int]], width: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
  """Right-pads token lists with zeros.

  Args:
    rows: token ids.
    width: of the result; the longest row's length if None.

  Returns:
    `[B, width]` int32 tokens, and `[B]` int32 lengths.

  Raises:
    ValueError: a row is longer than the width, or empty.
  """
  lengths = np.array([len(row) for row in rows], np.int32)
  width = int(lengths.max()) if width is None else width
  if lengths.max() > width or lengths.min() < 1:
    raise ValueError(
      f"Texts of {lengths.min()} to {lengths.max()} tokens do not fit rows of"
      f" 1 to {width} tokens."
    )
  tokens = np.zeros((len(rows), width), np.int32)
  for row, ids in zip(tokens, rows, strict=True):
    row[: len(ids)] = ids
  return tokens, lengths
