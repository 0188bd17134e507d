"""Where test-time compute is best spent (Snell et al., arXiv:2408.03314).

A candidate is a strategy with its settings, and a table of what was measured:
for each candidate and question the accuracy and the cost. Everything here is
computed from such tables; nothing is sampled.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

FOLDS = 2


class Allocation(NamedTuple):
  """What the compute-optimal choice attains, each question unseen by it.

  Attributes:
    chosen: the candidate for the questions of each fold in each bin, chosen
      on the other fold.
    accuracy: of each question under the candidate of its bin and fold.
    cost: of that candidate on the question, without finding its difficulty:
      the paper's account.
    honest_cost: the same with the samples that told the difficulty.
  """

  chosen: Int[np.ndarray, "bins folds"]
  accuracy: Float[np.ndarray, " Q"]
  cost: Float[np.ndarray, " Q"]
  honest_cost: Float[np.ndarray, " Q"]


class Exchange(NamedTuple):
  """A small model with test-time compute against one pass of a larger model.

  Attributes:
    multiplier: how many times the small model's greedy inference costs as much
      as the larger model, pretraining included.
    accuracy: of the small model at that budget.
    difference: the same minus the larger model's accuracy.
  """

  multiplier: float
  accuracy: Float[np.ndarray, " Q"]
  difference: Float[np.ndarray, " Q"]


def two_folds(
  bins: Int[np.ndarray, " Q"], *, seed: int
) -> Int[np.ndarray, " Q"]:
  """Halves of each bin by lot; the odd question of a bin goes either way."""
  rng = np.random.default_rng(seed)
  folds = np.zeros(len(bins), np.int64)
  for label in np.unique(bins):
    own = rng.permutation(np.flatnonzero(bins == label))
    folds[own] = (np.arange(len(own)) + rng.integers(FOLDS)) % FOLDS
  return folds


def compute_optimal(
  accuracy: Float[np.ndarray, "S Q"],
  cost: Float[np.ndarray, "S Q"],
  *,
  bins: Int[np.ndarray, " Q"],
  folds: Int[np.ndarray, " Q"],
  budget: float,
  difficulty_cost: Float[np.ndarray, " Q"],
) -> Allocation:
  """theta*(bin) = argmax_theta accuracy, by two-fold cross-validation.

  In each bin the candidate of the highest accuracy on one fold, among those
  whose mean cost there is within the budget, is used on the other fold. Of
  equally accurate candidates the cheapest is taken, then the first.

  Args:
    accuracy: of each candidate on each question, from samples that the bins
      were not made of.
    cost: the same of its cost, in any unit.
    bins: of the questions' difficulty.
    folds: 0 or 1 for each question (`two_folds`).
    budget: mean cost per question, in the unit of `cost`.
    difficulty_cost: of finding each question's bin, in that unit.

  Returns:
    The allocation. A bin without a question in one fold has nothing to choose
    by for the other one: there the choice is made over all bins.

  Raises:
    ValueError: no candidate is within the budget, or a fold is empty.
  """
  if not (np.isin(folds, range(FOLDS)).all() and len(set(folds)) == FOLDS):
    raise ValueError("Cross-validation needs questions in folds 0 and 1.")
  chosen = np.zeros((int(bins.max()) + 1, FOLDS), np.int64)
  for label in range(len(chosen)):
    for fold in range(FOLDS):
      seen = (folds != fold) & (bins == label)
      seen = seen if seen.any() else folds != fold
      chosen[label, fold] = _best(accuracy[:, seen], cost[:, seen], budget)
  own, at = chosen[bins, folds], np.arange(len(bins))
  return Allocation(
    chosen=chosen,
    accuracy=accuracy[own, at],
    cost=cost[own, at],
    honest_cost=cost[own, at] + difficulty_cost,
  )


def best_fixed(
  accuracy: Float[np.ndarray, "S Q"],
  cost: Float[np.ndarray, "S Q"],
  *,
  folds: Int[np.ndarray, " Q"],
  budget: float,
) -> Allocation:
  """The same without adaptation: one candidate for questions of any bin.

  What `compute_optimal` must beat for difficulty to be worth knowing.
  """
  return compute_optimal(
    accuracy,
    cost,
    bins=np.zeros(len(folds), np.int64),
    folds=folds,
    budget=budget,
    difficulty_cost=np.zeros(len(folds)),
  )


def inference_multiplier(
  parameter_ratio: float, inference_over_pretraining: float
) -> float:
  """M + 3 (M - 1) / R: test-time compute at equal FLOPs (section 7).

  A model M times larger costs M (X + Y), with X = 6 n D_pre of pretraining and
  Y = 2 n D_inf of inference; the small one costs X + k Y. Data stay the same,
  parameters are scaled.

  Args:
    parameter_ratio: M, at least 1.
    inference_over_pretraining: R = D_inf / D_pre, tokens over the model's
      life.

  Returns:
    k, the compute per question of the small model in units of its own single
    pass.

  Raises:
    ValueError: an argument lies outside.
  """
  if parameter_ratio < 1 or inference_over_pretraining <= 0:
    raise ValueError("The exchange needs M of at least 1, and R above 0.")
  M, R = parameter_ratio, inference_over_pretraining
  return M + 3.0 * (M - 1.0) / R


def exchange(
  accuracy: Float[np.ndarray, "B Q"],
  multipliers: Float[np.ndarray, " B"],
  larger_accuracy: Shaped[np.ndarray, " Q"],
  *,
  parameter_ratio: float,
  inference_over_pretraining: float,
) -> Exchange:
  """Small model against larger model at equal FLOPs, question by question.

  The small model gets the largest budget that was measured and does not exceed
  the multiplier, so that what it attains is not flattered.

  Args:
    accuracy: of the small model at each budget.
    multipliers: those budgets, ascending, in units of its single pass.
    larger_accuracy: of the larger model's single pass.
    parameter_ratio: M.
    inference_over_pretraining: R.

  Raises:
    ValueError: every measured budget exceeds the multiplier.
  """
  k = inference_multiplier(parameter_ratio, inference_over_pretraining)
  within = np.flatnonzero(multipliers <= k)
  if not within.size:
    raise ValueError(
      f"The smallest budget measured, {multipliers.min():.3g}, exceeds the"
      f" larger model's {k:.3g}: measure a smaller one."
    )
  own = accuracy[within[-1]]
  return Exchange(k, own, own - np.asarray(larger_accuracy, np.float64))


def cost_to_reach(
  costs: Float[np.ndarray, " B"],
  accuracy: Float[np.ndarray, " B"],
  target: float,
) -> float:
  """The least cost at which a curve attains an accuracy.

  Linear in log cost between budgets. The quotient of two curves' costs is the
  factor by which one saves compute over the other.

  Args:
    costs: ascending and positive.
    accuracy: at each; need not rise everywhere.
    target: accuracy to attain.

  Returns:
    The cost; that of the first budget if it attains the target already, and
    inf if none does.
  """
  reached = np.flatnonzero(accuracy >= target)
  if not reached.size:
    return np.inf
  i = reached[0]
  if i == 0:
    return float(costs[0])
  share = (target - accuracy[i - 1]) / (accuracy[i] - accuracy[i - 1])
  return float(costs[i - 1] * (costs[i] / costs[i - 1]) ** share)


def _best(accuracy: np.ndarray, cost: np.ndarray, budget: float) -> int:
  spent, attained = cost.mean(axis=1), accuracy.mean(axis=1)
  within = np.flatnonzero(spent <= budget)
  if not within.size:
    raise ValueError(
      f"No candidate's mean cost is within the budget of {budget:.3g}; the"
      f" cheapest takes {spent.min():.3g}."
    )
  # Means that differ by rounding alone are equal: cost decides.
  order = np.lexsort((within, spent[within], -np.round(attained[within], 12)))
  return int(within[order[0]])
