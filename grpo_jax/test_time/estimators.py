"""Expected accuracy of a selection among k of n samples, in float64.

Pass@k and maj@k are in `grpo_jax.reporting.estimators`; these two are what a
scorer adds. All of them average over subsets of k of the samples that were
drawn, instead of looking at the first k.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from grpo_jax.test_time.selection import Selection, expected_accuracy


class SubsetMean(NamedTuple):
  """A mean over drawn subsets, and the standard error of drawing them."""

  mean: float
  error: float


def best_of_k(
  scores: Float[np.ndarray, " N"],
  right: Shaped[np.ndarray, " N"],
  ks: Sequence[int],
) -> Float[np.ndarray, " K"]:
  """The chance that the highest-scored of k samples is right.

  The exact mean over all subsets of k of the n samples of one question:

      sum_g right_g [C(m_g, k) - C(m_g - n_g, k)] / C(n, k)

  over the groups g of samples with one score, where n_g have this score, m_g
  this or a lower one, and right_g is the share of right ones among the n_g.
  With the truth as the score it is pass@k, with one score for all pass@1.

  Args:
    scores: of each sample; equal scores win with equal chance.
    right: 1 for right samples, 0 for wrong ones.
    ks: each between 1 and n.

  Returns:
    One chance per k.

  Raises:
    ValueError: a k lies outside, or a score is not a number.
  """
  n = len(scores)
  for k in ks:
    if not 1 <= k <= n:
      raise ValueError(f"best-of-{k} needs between 1 and {n} samples.")
  if np.isnan(scores).any():
    raise ValueError("A score of best_of_k is NaN: the scorer is at fault.")
  group = np.unique(scores, return_inverse=True)[1]  # 0 of the lowest score
  sizes = np.bincount(group)
  share_right = np.bincount(group, np.asarray(right, np.float64)) / sizes
  up_to = np.cumsum(sizes)
  chances = []
  for k in ks:
    none_above = _chance_within(up_to, n, k)
    none_here = _chance_within(up_to - sizes, n, k)
    chances.append(share_right @ (none_above - none_here))
  return np.array(chances)


def _chance_within(
  members: Int[np.ndarray, " M"], n: int, k: int
) -> Float[np.ndarray, " M"]:
  """C(m, k) / C(n, k): that all k of n lie among m, for each m."""
  i = np.arange(k)
  factors = (members[:, None] - i) / (n - i)
  return np.prod(np.clip(factors, 0.0, None), axis=1)


def mean_over_subsets(
  select: Callable[[Int[np.ndarray, " k"]], Selection],
  right: Shaped[np.ndarray, " N"],
  *,
  k: int,
  subsets: int,
  seed: int,
) -> SubsetMean:
  """The accuracy of any selection among k samples, by drawing subsets.

  For selections that have no closed form, such as weighted votes.

  Args:
    select: the selection among the samples of the given indices.
    right: 1 for right samples, 0 for wrong ones.
    k: size of a subset, between 1 and the number of samples.
    subsets: how many are drawn, independently; at least 2 unless k is the
      number of samples, of which there is one subset only.
    seed: of the draws.

  Returns:
    The mean; its error is exactly 0 where there is one subset only.

  Raises:
    ValueError: k or subsets lies outside.
  """
  n = len(right)
  if not 1 <= k <= n:
    raise ValueError(f"A subset of {k} needs between 1 and {n} samples.")
  right = np.asarray(right)
  if k == n:
    return SubsetMean(expected_accuracy(select(np.arange(n)), right), 0.0)
  if subsets < 2:
    raise ValueError("subsets must be at least 2, or their mean has no error.")
  rng = np.random.default_rng(seed)
  drawn = (
    np.sort(rng.choice(n, k, replace=False, shuffle=False))
    for _ in range(subsets)
  )
  values = [expected_accuracy(select(own), right[own]) for own in drawn]
  error = np.std(values, ddof=1) / np.sqrt(subsets)
  return SubsetMean(float(np.mean(values)), float(error))
