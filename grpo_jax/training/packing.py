"""Several sequences in a row: no padding between them is paid for."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grpo_jax.types import Rows


class Place(NamedTuple):
  """Where a sequence lies."""

  row: int
  start: int


def place(length: int, used: list[int], *, width: int) -> Place | None:
  """The fullest row that still has room, and takes it: best fit.

  Args:
    length: tokens of the sequence.
    used: tokens in each row so far; changed if the sequence is placed.
    width: tokens that a row holds.

  Returns:
    The place; None if no row has room.
  """
  fitting = [r for r, tokens in enumerate(used) if tokens + length <= width]
  if not fitting:
    return None
  row = max(fitting, key=lambda r: used[r])
  start, used[row] = used[row], used[row] + length
  return Place(row, start)


def packed_rows(
  prompts: Sequence[Sequence[int]],
  completions: Sequence[Sequence[int]],
  places: Sequence[Place],
  *,
  rows: int,
  width: int,
  max_sequences: int,
  completion_width: int,
) -> tuple[Rows, np.ndarray, np.ndarray]:
  """Lays sequences into rows.

  Args:
    prompts: token ids.
    completions: token ids, one list per prompt.
    places: of prompt and completion together, from `place`.
    rows: R.
    width: S.
    max_sequences: N; as many completions as the result has room for.
    completion_width: T.

  Returns:
    The rows; the completions `[N, T]`, zero-padded; and which of their tokens
    are real `[N, T]`.
  """
  tokens = np.zeros((rows, width), np.int32)
  segments = np.zeros((rows, width), np.int32)  # 0 is padding, seen by none
  positions = np.zeros((rows, width), np.int32)
  targets = np.zeros((max_sequences, completion_width), np.int32)
  mask = np.zeros((max_sequences, completion_width), bool)
  predecessor = np.zeros((max_sequences, completion_width), np.int32)
  for n, (prompt, completion, (row, start)) in enumerate(
    zip(prompts, completions, places, strict=True)
  ):
    length = len(prompt) + len(completion)
    span = slice(start, start + length)
    tokens[row, span] = [*prompt, *completion]
    segments[row, span] = n + 1
    positions[row, span] = np.arange(length)
    targets[n, : len(completion)] = completion
    mask[n, : len(completion)] = True
    first = row * width + start + len(prompt) - 1
    predecessor[n, : len(completion)] = first + np.arange(len(completion))
  laid = Rows(
    tokens=tokens,
    segments=segments,
    prompts=segments,
    positions=positions,
    places=predecessor + 1,
    predecessor=predecessor,
  )
  return laid, targets, mask
