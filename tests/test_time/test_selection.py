"""Selections among candidates, and what no order of them may change."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_jax.rewards.equivalence import canonical
from grpo_jax.test_time.selection import (
  NOBODY,
  aggregate_steps,
  answer_classes,
  best_of_n,
  expected_accuracy,
  majority,
  vote,
)

_examples = settings(max_examples=60, deadline=None, derandomize=True)


def _keys(*answers):
  return [canonical(a).key if a else None for a in answers]


def test_the_highest_score_is_best():
  index, chances = best_of_n(np.array([0.2, 0.9, -np.inf, 0.3]))
  assert index == 1
  np.testing.assert_array_equal(chances, [0, 1, 0, 0])


def test_equal_scores_share_the_chance_and_the_first_is_shown():
  index, chances = best_of_n(np.array([0.1, 0.7, 0.7]))
  assert index == 1
  np.testing.assert_array_equal(chances, [0, 0.5, 0.5])


@pytest.mark.parametrize("scores", [[], [-np.inf, -np.inf]])
def test_nobody_is_chosen_where_nobody_can_be(scores):
  index, chances = best_of_n(np.array(scores, float))
  assert index == NOBODY
  assert chances.sum() == 0
  assert expected_accuracy(majority([None, None]), np.ones(2)) == 0.0
  assert majority([]).index == NOBODY


def test_a_score_that_is_no_number_is_refused():
  with pytest.raises(ValueError, match="NaN"):
    best_of_n(np.array([0.1, np.nan]))


def test_answers_that_mean_the_same_vote_together():
  """Two spellings of a half outvote two different answers."""
  keys = _keys("3", r"\frac{1}{2}", "4", "0.5")
  index, chances = majority(keys)
  assert index == 1
  np.testing.assert_array_equal(chances, [0, 0.5, 0, 0.5])


def test_votes_for_twelve_are_not_votes_for_two():
  keys = _keys("12", "2", "12", "1")
  assert majority(keys).index == 0
  np.testing.assert_array_equal(answer_classes(keys), [0, 1, 0, 2])


def test_candidates_without_an_answer_have_no_vote():
  keys = _keys(None, None, None, "5")
  assert majority(keys).index == 3
  np.testing.assert_array_equal(answer_classes(keys), [-1, -1, -1, 0])


def test_a_tie_of_two_answers_is_not_the_first_ones_win():
  """Where that is overlooked, maj@2 equals maj@1 for any model."""
  selection = majority(["a", "b"])
  assert selection.index == 0
  assert expected_accuracy(selection, np.array([0, 1])) == 0.5


def test_weights_decide_a_vote_by_sum_or_mean():
  answers, weights = ["a", "a", "b", None], np.array([0.4, 0.3, 0.6, 1.0])
  assert vote(answers, weights=weights, combine="sum").index == 0
  assert vote(answers, weights=weights, combine="mean").index == 2


def test_a_single_heavy_vote_beats_an_earlier_light_one():
  weights = np.array([0.1, 0.9])
  assert vote(["A", "B"], weights=weights, combine="sum").index == 1


def test_the_best_candidate_of_the_answer_speaks_for_it():
  weights = np.array([0.2, 0.5, 0.6])
  _, chances = vote(["a", "a", "b"], weights=weights, combine="sum")
  np.testing.assert_array_equal(chances, [0, 1, 0])


@pytest.mark.parametrize("weight", [-0.1, np.nan, np.inf])
def test_impossible_weights_are_refused(weight):
  with pytest.raises(ValueError, match="sigmoid"):
    vote(["a", "b"], weights=np.array([1.0, weight]), combine="sum")


def test_an_unknown_combination_is_refused():
  with pytest.raises(ValueError, match="median"):
    vote(["a"], weights=None, combine="median")


@_examples
@given(st.lists(st.sampled_from("abc-"), min_size=1, max_size=9))
def test_equal_weights_are_a_majority(letters):
  answers = [None if a == "-" else a for a in letters]
  weighted = vote(answers, weights=np.full(len(answers), 0.3), combine="sum")
  np.testing.assert_allclose(weighted.chances, majority(answers).chances)


@_examples
@given(
  st.lists(
    st.tuples(st.sampled_from("abc-"), st.sampled_from([0.1, 0.2, 0.3, 0.7])),
    min_size=1,
    max_size=9,
  ),
  st.randoms(use_true_random=False),
  st.sampled_from(["sum", "mean"]),
)
def test_no_order_changes_a_chance(candidates, rng, combine):
  """0.1 + 0.2 = 0.3 as votes too, however they are added up."""
  order = list(range(len(candidates)))
  rng.shuffle(order)

  def chances(candidates):
    answers = [None if a == "-" else a for a, _ in candidates]
    weights = np.array([w for _, w in candidates])
    return [
      majority(answers).chances,
      best_of_n(weights).chances,
      vote(answers, weights=weights, combine=combine).chances,
    ]

  shuffled = chances([candidates[i] for i in order])
  for before, after in zip(chances(candidates), shuffled, strict=True):
    np.testing.assert_array_equal(before[order], after)


@pytest.mark.parametrize(
  "how, expected",
  [
    ("last", [0.9, 0.5]),
    ("min", [0.2, 0.5]),
    ("max", [0.9, 0.5]),
    ("mean", [0.5, 0.5]),
    ("prod", [0.4 * 0.2 * 0.9, 0.5]),
  ],
)
def test_step_scores_are_aggregated_over_the_steps_there_are(how, expected):
  scores = np.array([[0.4, 0.2, 0.9], [0.5, 0.0, 1.0], [0.3, 0.3, 0.3]])
  mask = np.array([[True] * 3, [True, False, False], [False] * 3])
  np.testing.assert_allclose(
    aggregate_steps(scores, mask, how=how), [*expected, -np.inf]
  )


def test_products_of_step_scores_at_their_edges():
  one_zero = aggregate_steps(
    np.array([[0.0, 0.5]]), np.array([[True, True]]), how="prod"
  )
  assert one_zero == [0.0]
  with pytest.raises(ValueError, match="probabilities"):
    aggregate_steps(np.array([[-1.0]]), np.array([[True]]), how="prod")
  with pytest.raises(ValueError, match="median"):
    aggregate_steps(np.array([[1.0]]), np.array([[True]]), how="median")
