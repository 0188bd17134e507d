"""Advantages: how much better a completion did than a baseline."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import masked
from grpo_jax.types import Grid, GridMask, Rollouts, TokenGrid, TokenGridMask

Scale = Literal["group_std", "batch_std", "none"]


def group_relative_advantages(
  rewards: Grid, sample_mask: GridMask, *, scale: Scale, ddof: int, eps: float
) -> Grid:
  """Centres each reward on its group: A_g = (r_g - mean r) / (std r + eps).

  DeepSeekMath (arXiv:2402.03300) scales by the group's standard deviation;
  Dr. GRPO (arXiv:2503.20783) does not scale. The papers leave ddof open;
  PyTorch trainers use 1.

  Args:
    rewards: one scalar per completion, in reward units.
    sample_mask: completions that count; the others get 0 and move no mean.
    scale: what divides the centred reward. `batch_std` is that of all rewards
      (LitePPO, arXiv:2508.08221, and TRL). ScaleRL (arXiv:2510.13786) has that
      of all centred rewards, which is smaller: centre twice.
    ddof: 0 for the population, 1 for the sample standard deviation.
    eps: added to the standard deviation, in reward units.

  Returns:
    Advantages; exactly 0 where masked and where a group's rewards all tie,
    a group of one included.
  """
  if scale == "group_std":
    return masked.normalised(rewards, sample_mask, ddof=ddof, eps=eps)
  centred = masked.centred(rewards, sample_mask)
  if scale == "none":
    return centred
  return centred / (masked.std(rewards, sample_mask, None, ddof=ddof) + eps)


def leave_one_out_advantages(rewards: Grid, sample_mask: GridMask) -> Grid:
  """A_g = r_g - mean of the others' rewards = G / (G - 1) (r_g - mean r).

  RLOO (arXiv:2402.14740): a baseline that does not depend on the completion
  itself, so that the gradient is unbiased.

  Args:
    rewards: in reward units.
    sample_mask: completions that count.

  Returns:
    In reward units; 0 for a group of one, where verl passes the reward.
  """
  count = jnp.sum(sample_mask, axis=-1, keepdims=True)
  centred = masked.centred(rewards, sample_mask)
  return centred * (count / jnp.maximum(count - 1, 1))


def length_weighted_advantages(rewards: Grid, rollouts: Rollouts) -> Grid:
  """A_g = r_g - sum(l r) / sum(l): the baseline of least variance.

  OPO (arXiv:2505.23585), under its assumption that a gradient's squared norm
  grows with the completion's length l.

  Args:
    rewards: in reward units.
    rollouts: of which the lengths, in tokens, are looked at.

  Returns:
    In reward units; 0 where masked and where a group's rewards tie.
  """
  kept = rollouts.sample_mask
  baseline = masked.mean(rewards, jnp.where(kept, rollouts.lengths, 0))
  signal = kept & masked.differ(rewards, kept)
  return jnp.where(signal, rewards - baseline, 0.0)


def maximum_likelihood_advantages(
  rewards: Grid, sample_mask: GridMask, *, eps: float
) -> Grid:
  """A_g = (r_g - mean r) / (mean r + eps), for rewards of 0 and 1.

  MaxRL (arXiv:2602.02710), as its code has it (eps 1e-6): the rarer a success,
  the more it weighs, as under the likelihood of succeeding. With this baseline
  the expectation is the order G - 1 of the paper's expansion, not G.

  Args:
    rewards: 0 or 1.
    sample_mask: completions that count.
    eps: added to the mean.

  Returns:
    Without unit; 0 for a group without success.
  """
  mean = masked.mean(rewards, sample_mask)
  divisor = jnp.where(mean == 0, 1.0, mean + eps)
  return masked.centred(rewards, sample_mask) / divisor


def rescaled_advantages(rewards: Grid, sample_mask: GridMask) -> Grid:
  """A_g = alpha (r_g - mean r), alpha = B / (B - M).

  GPG (arXiv:2504.02546) with F_norm = 1: B completions, of which the M in tied
  groups have no gradient; alpha makes up for them. verl takes M to be the
  completions of reward 0, which is not the paper's.

  Args:
    rewards: in reward units.
    sample_mask: completions that count.

  Returns:
    In reward units; 0 if every group ties.
  """
  signal = sample_mask & masked.differ(rewards, sample_mask)
  alpha = jnp.sum(sample_mask) / jnp.maximum(jnp.sum(signal), 1)
  return alpha * masked.centred(rewards, sample_mask)


def pass_at_k_advantages(
  correct: GridMask, sample_mask: GridMask, *, k: int
) -> Grid:
  """A+ = (1 - rho) / s, A- = (1 - rho - C(M-1, k-1) / C(N-1, k-1)) / s.

  Pass@k training (arXiv:2508.10751): the mean advantage over all subsets of k
  of N completions, M of them wrong, where a subset is right if one of it is;
  rho = 1 - C(M, k) / C(N, k), s = sqrt(rho (1 - rho)). k = 1 is GRPO with
  ddof 0. verl's `grpo_passk` is another method (arXiv:2503.19595).

  Args:
    correct: completions with the right answer.
    sample_mask: completions that count.
    k: size of a subset.

  Returns:
    Without unit; 0 where s = 0 and in groups of fewer than k.
  """

  def chance(n, m, size):
    """C(m, size) / C(n, size); 0 if n < size."""
    drawn = jnp.arange(size)[None]
    left = jnp.maximum(m - drawn, 0) / jnp.maximum(n - drawn, 1)
    return jnp.prod(left, axis=-1, keepdims=True)

  count = jnp.sum(sample_mask, axis=-1, keepdims=True)
  wrong = jnp.sum(sample_mask & ~correct, axis=-1, keepdims=True)
  all_wrong = chance(count, wrong, k)
  with_this_wrong = chance(count - 1, wrong - 1, k - 1)
  advantage = jnp.where(correct, all_wrong, all_wrong - with_this_wrong)
  variance = all_wrong * (1 - all_wrong)
  std = jnp.sqrt(jnp.where(variance > 0, variance, 1.0))
  return jnp.where(sample_mask, advantage / std, 0.0)


def projected_advantages(
  advantages: Callable, rewards: Grid, rollouts: Rollouts, *, centre: bool
) -> Grid:
  """A - (A . l / l . l) l within each group.

  The popular description of Dr. GRPO; its paper has no projection.

  Args:
    advantages: what A is, (rewards, rollouts) -> `[P, G]`.
    rewards: in reward units.
    rollouts: of which the lengths l, in tokens, are looked at.
    centre: takes l minus the group's mean, which keeps a zero mean of the
      advantages and leaves groups of equal lengths alone. Raw lengths do
      neither.

  Returns:
    Advantages orthogonal to l; 0 where masked.
  """
  kept, lengths = rollouts.sample_mask, rollouts.lengths
  A = jnp.where(kept, advantages(rewards, rollouts), 0.0)
  raw = jnp.where(kept, lengths, 0.0)
  along = masked.centred(lengths, kept) if centre else raw
  overlap = jnp.sum(A * along, axis=-1, keepdims=True)
  square = jnp.sum(along**2, axis=-1, keepdims=True)
  return A - overlap / jnp.where(square > 0, square, 1.0) * along


def batch_normalised_advantages(
  advantages: TokenGrid,
  loss_mask: TokenGridMask,
  *,
  each: Literal["token", "sequence"],
  ddof: int,
  eps: float,
) -> TokenGrid:
  """(A - mean A) / (std A + eps), statistics over the whole batch.

  REINFORCE++ (arXiv:2501.03262), whose text leaves open what is counted.

  Args:
    advantages: any.
    loss_mask: tokens that count.
    each: `token` lets long completions weigh more (verl, OpenRLHF);
      `sequence` counts every completion once (the paper's appendix).
    ddof: 0 (the paper, OpenRLHF) or 1 (verl).
    eps: added to the standard deviation, as in the paper. verl and OpenRLHF
      have 1e-8 in or under the variance.

  Returns:
    Advantages; 0 where masked, and everywhere if all of them tie.

  Raises:
    KeyError: there is nothing of that name to count.
  """
  tokens = jnp.sum(loss_mask, axis=-1, keepdims=True)
  share = loss_mask / jnp.maximum(tokens, 1)
  weight = {"token": loss_mask, "sequence": share}[each]
  return masked.normalised(advantages, weight, axis=None, ddof=ddof, eps=eps)
