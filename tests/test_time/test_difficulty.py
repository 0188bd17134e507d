"""Bins of difficulty."""

import numpy as np
import pytest

from grpo_jax.test_time.difficulty import (
  oracle_ease,
  predicted_ease,
  quantile_bins,
  threshold_bins,
)


def test_quantiles_put_the_easiest_first():
  ease = np.array([0.1, 0.9, 0.5, 0.3, 0.7, 0.2, 0.6, 0.8, 0.4, 1.0])
  np.testing.assert_array_equal(
    quantile_bins(ease, bins=5), [4, 0, 2, 3, 1, 4, 2, 1, 3, 0]
  )


def test_questions_that_tie_share_a_bin_in_any_order():
  ease = np.array([1.0, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0])
  bins = quantile_bins(ease, bins=4)
  np.testing.assert_array_equal(bins, [1, 1, 1, 1, 2, 3, 3, 3])
  order = np.random.default_rng(0).permutation(8)
  np.testing.assert_array_equal(quantile_bins(ease[order], bins=4), bins[order])


@pytest.mark.parametrize("bins", [1, 5])
def test_all_alike_are_of_middling_difficulty(bins):
  found = quantile_bins(np.full(7, 0.25), bins=bins)
  np.testing.assert_array_equal(found, bins // 2)


def test_quantiles_of_nothing_are_nothing():
  assert quantile_bins(np.zeros(0), bins=5).shape == (0,)


def test_thresholds_do_not_move_with_the_questions():
  ease = np.array([0.95, 0.5, 0.49, 0.1, 0.09, 0.0])
  np.testing.assert_array_equal(
    threshold_bins(ease, thresholds=(0.5, 0.1)), [0, 0, 1, 1, 2, 2]
  )


def test_ease_is_known_or_predicted():
  np.testing.assert_array_equal(
    oracle_ease(np.array([[True, False], [True, True]])), [0.5, 1.0]
  )
  np.testing.assert_array_equal(
    predicted_ease(np.array([[0.2, 0.4], [1.0, 0.0]])),
    np.array([0.2 + 0.4, 1.0]) / 2,
  )


def test_what_has_no_bin_is_refused():
  with pytest.raises(ValueError, match="at least 1 bin"):
    quantile_bins(np.zeros(3), bins=0)
  with pytest.raises(ValueError, match="NaN"):
    quantile_bins(np.array([np.nan]), bins=2)
  with pytest.raises(ValueError, match="NaN"):
    threshold_bins(np.array([np.nan]), thresholds=(0.5,))
  with pytest.raises(ValueError, match="descend"):
    threshold_bins(np.zeros(3), thresholds=(0.1, 0.5))
