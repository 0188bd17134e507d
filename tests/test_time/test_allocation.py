"""Compute-optimal allocation, and the exchange against a larger model."""

import json
from pathlib import Path

import numpy as np
import pytest

from grpo_jax.test_time.allocation import (
  best_fixed,
  compute_optimal,
  cost_to_reach,
  exchange,
  inference_multiplier,
  two_folds,
)

GOLDEN = Path(__file__).parents[1] / "algorithms" / "golden.json"


def test_the_multiplier_is_the_papers():
  cases = json.loads(GOLDEN.read_text())["cases"]
  [case] = [c for c in cases if c["id"] == "snell_flops_exchange"]
  found = [
    inference_multiplier(case["inputs"]["M"], R)
    for R in case["inputs"]["R_inference_over_pretrain"]
  ]
  np.testing.assert_allclose(
    found, case["outputs"]["inference_multiplier"], rtol=1e-10
  )


@pytest.mark.parametrize("ratio, tokens", [(14.0, 0.16), (2.0, 22.0)])
def test_the_multiplier_makes_flops_equal(ratio, tokens):
  pretraining, inference = 6.0, 2.0 * tokens
  small = pretraining + inference_multiplier(ratio, tokens) * inference
  assert small == pytest.approx(ratio * (pretraining + inference))


# Candidate 0 answers the easy bin, candidate 1 the hard one, at twice the cost;
# candidate 2 answers everything, far above the budget.
BINS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
FOLDS = np.array([0, 1, 0, 1, 0, 1, 0, 1])
ACCURACY = np.array(
  [[1.0] * 4 + [0.0] * 4, [0.5] * 4 + [1.0] * 4, [1.0] * 8], np.float64
)
COST = np.repeat([[1.0], [2.0], [9.0]], 8, axis=1)


def _optimal(accuracy=ACCURACY, cost=COST, *, bins=BINS, budget=2.0):
  return compute_optimal(
    accuracy,
    cost,
    bins=bins,
    folds=FOLDS,
    budget=budget,
    difficulty_cost=np.full(8, 5.0),
  )


def test_each_bin_gets_its_best_candidate_within_the_budget():
  found = _optimal()
  np.testing.assert_array_equal(found.chosen, [[0, 0], [1, 1]])
  np.testing.assert_array_equal(found.accuracy, 1.0)
  np.testing.assert_array_equal(found.cost, [1] * 4 + [2] * 4)
  np.testing.assert_array_equal(found.honest_cost, [6] * 4 + [7] * 4)


def test_without_adaptation_the_best_candidate_is_worse():
  found = best_fixed(ACCURACY, COST, folds=FOLDS, budget=2.0)
  np.testing.assert_array_equal(found.chosen, [[1, 1]])
  assert found.accuracy.mean() == 0.75
  np.testing.assert_array_equal(found.honest_cost, found.cost)


def test_no_question_has_a_say_in_its_own_candidate():
  """Candidate 0 is right in fold 0 only: chosen there, it is used on 1."""
  accuracy = np.stack([FOLDS == 0, FOLDS == 1, np.zeros(8)]).astype(float)
  assert _optimal(accuracy).accuracy.mean() == 0.0


def test_of_equally_accurate_candidates_the_cheapest_is_taken():
  found = _optimal(np.ones((3, 8)), COST[::-1], budget=9.0)
  np.testing.assert_array_equal(found.chosen, 2)


def test_a_bin_with_one_fold_takes_the_choice_of_all_bins():
  bins = np.array([0, 0, 0, 0, 1, 0, 1, 0])  # bin 1 lies in fold 0 only
  found = _optimal(bins=bins)
  seen = ACCURACY[:2, FOLDS == 1].mean(axis=1)
  assert found.chosen[1, 0] == np.argmax(seen)
  assert np.isfinite(found.accuracy).all()


def test_more_budget_is_never_forbidden_and_less_may_be():
  np.testing.assert_array_equal(_optimal(budget=9.0).accuracy, 1.0)
  with pytest.raises(ValueError, match="cheapest takes 1"):
    _optimal(budget=0.5)


def test_folds_halve_each_bin():
  bins = np.repeat([0, 1, 2], [10, 7, 1])
  folds = two_folds(bins, seed=0)
  assert (folds[:10] == 0).sum() == 5
  assert (folds[10:17] == 0).sum() in (3, 4)
  np.testing.assert_array_equal(folds, two_folds(bins, seed=0))
  assert (folds != two_folds(bins, seed=1)).any()
  with pytest.raises(ValueError, match="folds 0 and 1"):
    best_fixed(ACCURACY, COST, folds=np.zeros(8, int), budget=2.0)


def test_the_exchange_spends_no_more_than_the_larger_model():
  accuracy = np.array([[0.1] * 4, [0.2] * 4, [0.3] * 4, [0.9] * 4])
  found = exchange(
    accuracy,
    np.array([1.0, 4.0, 15.0, 16.0]),
    np.full(4, 0.5),
    parameter_ratio=14,
    inference_over_pretraining=22.0,
  )
  assert found.multiplier == pytest.approx(15.7727, abs=1e-4)
  np.testing.assert_allclose(found.accuracy, 0.3)
  np.testing.assert_allclose(found.difference, -0.2)


def test_exchanges_that_cannot_be_made_are_refused():
  with pytest.raises(ValueError, match="measure a smaller"):
    exchange(
      np.ones((1, 2)),
      np.array([64.0]),
      np.ones(2),
      parameter_ratio=2,
      inference_over_pretraining=1.0,
    )
  with pytest.raises(ValueError, match="R above 0"):
    inference_multiplier(14, 0.0)


def test_cost_at_equal_accuracy():
  costs, accuracy = np.array([1.0, 4.0, 16.0]), np.array([0.2, 0.4, 0.6])
  assert cost_to_reach(costs, accuracy, 0.4) == 4.0
  assert cost_to_reach(costs, accuracy, 0.5) == pytest.approx(8.0)
  assert cost_to_reach(costs, accuracy, 0.1) == 1.0
  assert cost_to_reach(costs, accuracy, 0.7) == np.inf
