"""Advantages: how much better a completion did than a baseline."""

import math
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def group_relative_advantages(
  rewards: Float[Array, "P G"],
  sample_mask: Bool[Array, "P G"],
  *,
  scale: Literal["group_std", "batch_std", "centred_batch_std", "none"],
  ddof: int,
  eps: float,
) -> Float[Array, "P G"]:
  """Centres each reward on its group: A_g = (r_g - mean r) / (std r + eps).

  DeepSeekMath (arXiv:2402.03300) scales by the group's standard deviation;
  Dr. GRPO (arXiv:2503.20783) does not scale. The papers leave ddof open;
  PyTorch trainers use 1.

  Args:
    rewards: one scalar per completion, in reward units.
    sample_mask: completions that count; the others get 0 and move no mean.
    scale: what divides the centred reward. `batch_std` is that of all rewards
      (LitePPO, arXiv:2508.08221, and TRL); `centred_batch_std` that of all
      centred rewards (ScaleRL, arXiv:2510.13786), which is smaller.
    ddof: 0 for the population, 1 for the sample standard deviation.
    eps: added to the standard deviation, in reward units.

  Returns:
    Advantages; exactly 0 where masked and where a group's rewards all tie,
    a group of one included.
  """
  centred = _centred(rewards, sample_mask)
  if scale == "none":
    return centred
  if scale == "group_std":
    std = _std(rewards, sample_mask, axis=-1, ddof=ddof)
  else:
    values = rewards if scale == "batch_std" else centred
    std = _std(values, sample_mask, axis=None, ddof=ddof)
  return centred / (std + eps)


def leave_one_out_advantages(
  rewards: Float[Array, "P G"], sample_mask: Bool[Array, "P G"]
) -> Float[Array, "P G"]:
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
  return _centred(rewards, sample_mask) * (count / jnp.maximum(count - 1, 1))


def length_weighted_advantages(
  rewards: Float[Array, "P G"],
  sample_mask: Bool[Array, "P G"],
  lengths: Int[Array, "P G"],
) -> Float[Array, "P G"]:
  """A_g = r_g - sum(l r) / sum(l): the baseline of least variance.

  OPO (arXiv:2505.23585), under its assumption that a gradient's squared norm
  grows with the completion's length l.

  Args:
    rewards: in reward units.
    sample_mask: completions that count.
    lengths: l, in tokens.

  Returns:
    In reward units; 0 where masked and where a group's rewards tie.
  """
  lengths = jnp.where(sample_mask, lengths, 0)
  total = jnp.maximum(lengths.sum(axis=-1, keepdims=True), 1)
  weighted = jnp.sum(
    jnp.where(sample_mask, rewards, 0.0) * lengths, axis=-1, keepdims=True
  )
  differs = sample_mask & ~tied(rewards, sample_mask)[:, None]
  return jnp.where(differs, rewards - weighted / total, 0.0)


def maximum_likelihood_advantages(
  rewards: Float[Array, "P G"], sample_mask: Bool[Array, "P G"], *, eps: float
) -> Float[Array, "P G"]:
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
  mean = _mean(rewards, sample_mask)
  divisor = jnp.where(mean == 0, 1.0, mean + eps)
  return _centred(rewards, sample_mask) / divisor


def rescaled_advantages(
  rewards: Float[Array, "P G"], sample_mask: Bool[Array, "P G"]
) -> Float[Array, "P G"]:
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
  differs = sample_mask & ~tied(rewards, sample_mask)[:, None]
  alpha = jnp.sum(sample_mask) / jnp.maximum(jnp.sum(differs), 1)
  return alpha * _centred(rewards, sample_mask)


def pass_at_k_advantages(
  correct: Bool[Array, "P G"], sample_mask: Bool[Array, "P G"], *, k: int
) -> Float[Array, "P G"]:
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
  count = jnp.sum(sample_mask, axis=-1, keepdims=True)
  wrong = jnp.sum(sample_mask & ~correct, axis=-1, keepdims=True)

  def chance(n, m, size):
    """C(m, size) / C(n, size); 0 if n < size."""
    factors = [
      jnp.maximum(m - j, 0) / jnp.maximum(n - j, 1) for j in range(size)
    ]
    return math.prod(factors, start=jnp.ones(n.shape))

  all_wrong = chance(count, wrong, k)
  variance = all_wrong * (1 - all_wrong)
  negative = all_wrong - chance(count - 1, wrong - 1, k - 1)
  defined = sample_mask & (variance > 0)
  std = jnp.sqrt(jnp.where(variance > 0, variance, 1.0))
  return jnp.where(defined, jnp.where(correct, all_wrong, negative) / std, 0.0)


def project_out_lengths(
  advantages: Float[Array, "P G"],
  lengths: Int[Array, "P G"],
  sample_mask: Bool[Array, "P G"],
  *,
  centre: bool,
) -> Float[Array, "P G"]:
  """A - (A . l / l . l) l within each group.

  The popular description of Dr. GRPO; its paper has no projection.

  Args:
    advantages: any.
    lengths: l, in tokens.
    sample_mask: completions that count.
    centre: takes l minus the group's mean, which keeps a zero mean of the
      advantages and leaves groups of equal lengths alone. Raw lengths do
      neither.

  Returns:
    Advantages orthogonal to l; 0 where masked.
  """
  lengths = lengths.astype(advantages.dtype)
  if centre:
    lengths = _centred(lengths, sample_mask)
  lengths = jnp.where(sample_mask, lengths, 0.0)
  advantages = jnp.where(sample_mask, advantages, 0.0)
  along = jnp.sum(advantages * lengths, axis=-1, keepdims=True)
  square = jnp.sum(lengths**2, axis=-1, keepdims=True)
  return advantages - along / jnp.where(square > 0, square, 1.0) * lengths


def tied(
  values: Float[Array, "P G"], sample_mask: Bool[Array, "P G"]
) -> Bool[Array, " P"]:
  """Groups whose kept values are all equal: max == min.

  Not std == 0: in float32 the mean of equal rewards can differ from them, and
  dividing that residue by a tiny std makes an advantage out of nothing.
  """
  largest = jnp.max(jnp.where(sample_mask, values, -jnp.inf), axis=-1)
  smallest = jnp.min(jnp.where(sample_mask, values, jnp.inf), axis=-1)
  return largest <= smallest


def _mean(values, mask, axis=-1):
  count = jnp.sum(mask, axis=axis, keepdims=True)
  total = jnp.sum(jnp.where(mask, values, 0.0), axis=axis, keepdims=True)
  return total / jnp.maximum(count, 1)


def _centred(values, mask):
  """Values minus their group's mean; exactly 0 where masked or tied."""
  differs = mask & ~tied(values, mask)[:, None]
  return jnp.where(differs, values - _mean(values, mask), 0.0)


def _std(values, mask, *, axis, ddof):
  """Standard deviation; 1 where it vanishes, and nothing is to be scaled."""
  residue = jnp.where(mask, values - _mean(values, mask, axis), 0.0)
  count = jnp.sum(mask, axis=axis, keepdims=True)
  variance = jnp.sum(residue**2, axis=axis, keepdims=True)
  variance = variance / jnp.maximum(count - ddof, 1)
  return jnp.sqrt(jnp.where(variance > 0, variance, 1.0))
