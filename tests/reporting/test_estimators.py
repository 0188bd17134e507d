"""Estimators against enumeration and simulation."""

import itertools

import numpy as np
import pytest

from grpo_jax.reporting.estimators import mean_interval, pass_at_k


@pytest.mark.parametrize(
  "n, c, k", [(4, 1, 2), (5, 2, 3), (6, 0, 2), (6, 6, 1), (3, 1, 3)]
)
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n, c, k):
  samples = [1] * c + [0] * (n - c)
  expected = np.mean([max(s) for s in itertools.combinations(samples, k)])
  np.testing.assert_allclose(pass_at_k(np.array([c]), n, k), [expected])


def test_pass_at_k_survives_many_samples():
  assert pass_at_k(np.array([1]), 2048, 1024) == pytest.approx(0.5)


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_refuses_what_cannot_be_estimated(k):
  with pytest.raises(ValueError, match=f"pass@{k}"):
    pass_at_k(np.array([1]), 4, k)


def test_the_interval_covers_the_mean_19_times_of_20():
  rng = np.random.default_rng(0)
  covered = []
  for _ in range(2000):
    values = rng.binomial(8, rng.beta(2, 2, 20)) / 8
    _, low, high = mean_interval(values)
    covered.append(low <= 0.5 <= high)
  assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_interval_of_known_values():
  mean, low, high = mean_interval(np.array([0.0, 1.0, 0.0, 1.0]))
  assert mean == 0.5
  half = 3.182446 * np.std([0, 1, 0, 1], ddof=1) / 2  # t of 3 degrees
  assert (high - mean, mean - low) == pytest.approx((half, half), rel=1e-6)


def test_intervals_at_the_edges():
  assert mean_interval(np.ones(5)) == (1.0, 1.0, 1.0)
  assert mean_interval(np.array([0.3])) == (0.3, -np.inf, np.inf)
  with pytest.raises(ValueError, match="at least one"):
    mean_interval(np.zeros(0))
