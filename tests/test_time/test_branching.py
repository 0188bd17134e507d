"""Shares of children, and the rows that they are put into."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_jax.test_time.branching import (
  beam_children,
  place,
  rebase_children,
)

ALL = np.ones(8, bool)
SCORES = np.array([0.3, 0.9, 0.1, 0.5, 0.8, 0.2, 0.4, 0.6])


@pytest.mark.parametrize(
  "branching, expected",
  [
    (1, [1] * 8),
    (2, [0, 2, 0, 2, 2, 0, 0, 2]),
    (3, [0, 3, 0, 0, 3, 0, 0, 2]),
    (8, [0, 8, 0, 0, 0, 0, 0, 0]),
  ],
)
def test_a_beam_keeps_the_best_of_n_over_m(branching, expected):
  found = beam_children(SCORES, ALL, branching=branching)
  np.testing.assert_array_equal(found, expected)


def test_of_equal_rows_the_first_is_kept():
  found = beam_children(np.zeros(4), np.ones(4, bool), branching=2)
  np.testing.assert_array_equal(found, [2, 2, 0, 0])


def test_finished_rows_have_no_children_and_are_not_replaced():
  running = np.array([1, 0, 1, 1, 0, 1, 1, 1], bool)
  found = beam_children(SCORES, running, branching=4)
  np.testing.assert_array_equal(found, [0, 0, 0, 2, 0, 0, 0, 4])
  parents, child = place(found, running)
  np.testing.assert_array_equal(parents[~running], [1, 4])
  np.testing.assert_array_equal(
    np.bincount(parents, minlength=8)[[3, 7]], [2, 4]
  )
  assert parents[3] == 3 and child[3] == 0
  assert parents[7] == 7 and child[7] == 0
  assert sorted(child[parents == 7]) == [0, 1, 2, 3]


@pytest.mark.parametrize("branching", [0, 9])
def test_fewer_candidates_than_the_beam_is_an_error(branching):
  with pytest.raises(ValueError, match="at least as many candidates"):
    beam_children(SCORES, ALL, branching=branching)


def test_rebase_shares_by_softmax_and_largest_remainder():
  scores = np.log(np.array([0.45, 0.3, 0.15, 0.1]))
  found = rebase_children(scores, np.ones(4, bool), temperature=1.0)
  np.testing.assert_array_equal(found, [2, 1, 1, 0])  # 1.8, 1.2, 0.6, 0.4


def test_a_hot_rebase_is_uniform_and_a_cold_one_greedy():
  hot = rebase_children(SCORES, ALL, temperature=1e9)
  np.testing.assert_array_equal(hot, 1)
  cold = rebase_children(SCORES, ALL, temperature=1e-3)
  np.testing.assert_array_equal(cold, [0, 8, 0, 0, 0, 0, 0, 0])
  with pytest.raises(ValueError, match="positive"):
    rebase_children(SCORES, ALL, temperature=0.0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
  st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=1, max_size=12),
  st.sampled_from([0.05, 0.2, 1.0]),
  st.integers(1, 12),
)
def test_every_rule_fills_the_tree_exactly(rows, temperature, branching):
  scores = np.array([score for score, _ in rows])
  running = np.array([alive for _, alive in rows])
  branching = min(branching, len(rows))
  for children in (
    beam_children(scores, running, branching=branching),
    rebase_children(scores, running, temperature=temperature),
  ):
    assert children.sum() == running.sum()
    assert not children[~running].any()
    parents, child = place(children, running)
    np.testing.assert_array_equal(
      np.bincount(parents[running], minlength=len(rows)), children
    )
    np.testing.assert_array_equal(parents[~running], np.flatnonzero(~running))
    first = np.flatnonzero(children)
    np.testing.assert_array_equal(parents[first], first)
    assert len(set(zip(parents, child, strict=True))) == len(rows)
