"""Estimators against enumeration of all subsets."""

import itertools

import numpy as np
import pytest

from grpo_jax.reporting.estimators import pass_at_k
from grpo_jax.test_time.estimators import best_of_k, mean_over_subsets
from grpo_jax.test_time.selection import best_of_n, expected_accuracy, vote


def _enumerated(select, right, k):
  subsets = itertools.combinations(range(len(right)), k)
  return np.mean(
    [expected_accuracy(select(np.array(s)), right[list(s)]) for s in subsets]
  )


@pytest.mark.parametrize(
  "scores",
  [
    [0.1, 0.9, 0.3, 0.5, 0.2, 0.7],
    [0.5, 0.5, 0.1, 0.1, 0.9, 0.9],
    [1.0] * 6,
    [-np.inf, 0.2, 0.2, -np.inf, 0.2, 0.1],
  ],
)
def test_best_of_k_is_the_mean_over_subsets(scores):
  scores, right = np.array(scores), np.array([1, 0, 1, 0, 0, 1])
  if np.isinf(scores).any():  # whoever cannot be chosen must not be right
    right = right * np.isfinite(scores)
  expected = [
    _enumerated(lambda own: best_of_n(scores[own]), right, k)
    for k in range(1, 7)
  ]
  found = best_of_k(scores, right, range(1, 7))
  np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_truth_as_scorer_is_pass_at_k():
  right = np.array([0, 1, 0, 0, 1, 0, 0, 0, 0])
  found = best_of_k(right.astype(float), right, range(1, 10))
  expected = [pass_at_k(np.array([2]), 9, k)[0] for k in range(1, 10)]
  np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_scorer_that_is_always_wrong_leaves_only_hopeless_subsets():
  right = np.array([1, 1, 1, 0])
  found = best_of_k(-right.astype(float), right, [1, 2, 4])
  np.testing.assert_allclose(found, [3 / 4, 1 / 2, 0], atol=1e-12)


def test_best_of_many_samples_can_be_counted():
  scores = np.arange(4096.0)
  right = scores >= 4095
  found = best_of_k(scores, right, [1, 2048, 4096])
  np.testing.assert_allclose(found, [1 / 4096, 0.5, 1.0])


def test_best_of_k_refuses_what_cannot_be_estimated():
  with pytest.raises(ValueError, match="best-of-4"):
    best_of_k(np.zeros(3), np.zeros(3), [4])
  with pytest.raises(ValueError, match="best-of-0"):
    best_of_k(np.zeros(3), np.zeros(3), [0])
  with pytest.raises(ValueError, match="NaN"):
    best_of_k(np.array([np.nan]), np.zeros(1), [1])


def test_weighted_votes_over_drawn_subsets_agree_with_all_subsets():
  answers = np.array(list("aabbbcca"))
  weights = np.array([0.9, 0.2, 0.4, 0.5, 0.3, 0.8, 0.1, 0.6])
  right = answers == "b"

  def select(own):
    return vote(list(answers[own]), weights=weights[own], combine="sum")

  mean, error = mean_over_subsets(select, right, k=4, subsets=300, seed=0)
  assert 0 < error < 0.03
  assert abs(mean - _enumerated(select, right, 4)) < 3 * error
  assert mean_over_subsets(select, right, k=8, subsets=1, seed=0) == (
    expected_accuracy(select(np.arange(8)), right),
    0.0,
  )


def test_subsets_that_cannot_be_drawn_are_refused():
  with pytest.raises(ValueError, match="subset of 3"):
    mean_over_subsets(best_of_n, np.ones(2), k=3, subsets=9, seed=0)
  with pytest.raises(ValueError, match="subsets must be"):
    mean_over_subsets(best_of_n, np.ones(2), k=1, subsets=1, seed=0)
