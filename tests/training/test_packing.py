"""Sequences in rows: nothing overlaps, nothing is lost."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_jax.training.packing import Place, packed_rows, place
from grpo_jax.training.warm_start import supervised_batch


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 10), max_size=30))
def test_places_do_not_overlap(lengths):
  used = [0] * 4
  taken = np.zeros((4, 12), int)
  for length in lengths:
    at = place(length, used, width=12)
    if at is None:
      assert max(12 - tokens for tokens in used) < length
      continue
    taken[at.row, at.start : at.start + length] += 1
  assert taken.max(initial=0) <= 1
  np.testing.assert_array_equal(taken.sum(1), used)


def test_the_fullest_row_that_fits_is_taken():
  used = [3, 8, 6]
  assert place(4, used, width=12) == Place(1, 8)
  assert place(4, used, width=12) == Place(2, 6)
  assert place(10, used, width=12) is None


def test_rows_describe_what_they_hold():
  rows, targets, mask = packed_rows(
    [[5, 6], [7]],
    [[8, 9, 1], [3, 1]],
    [Place(0, 0), Place(0, 5)],
    rows=1,
    width=9,
    max_sequences=3,
    completion_width=4,
  )
  assert rows.tokens.tolist() == [[5, 6, 8, 9, 1, 7, 3, 1, 0]]
  assert rows.segments.tolist() == [[1, 1, 1, 1, 1, 2, 2, 2, 0]]
  assert rows.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 0]]
  assert targets.tolist() == [[8, 9, 1, 0], [3, 1, 0, 0], [0] * 4]
  assert mask.sum(1).tolist() == [3, 2, 0]
  assert rows.predecessor[0, :3].tolist() == [1, 2, 3]
  assert rows.predecessor[1, :2].tolist() == [5, 6]


def test_a_supervised_batch_takes_every_sequence_in_turn():
  rng = np.random.default_rng(0)
  sequences = [
    (rng.integers(2, 9, rng.integers(1, 4)).tolist(), [*[3] * (i % 7), 1])
    for i in range(100)
  ]
  seen, start = [], 0
  while start < 90:
    batch, start = supervised_batch(
      lambda i: sequences[i],
      start,
      rows=2,
      width=24,
      max_sequences=20,
      completion_width=5,
    )
    batch = jax.tree.map(lambda x: np.asarray(x[0]), batch)
    np.testing.assert_allclose(batch.weight.sum(), 1, rtol=1e-5)
    for tokens, mask in zip(batch.tokens, batch.loss_mask, strict=True):
      if mask.any():
        seen.append(tokens[mask].tolist())
  short = [c for _, c in sequences[:start] if len(c) <= 5]
  assert seen == short  # longer ones are left out
