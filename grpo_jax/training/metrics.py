"""The figures of a step, under the names that users of TRL know."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from grpo_jax.training.collect import Collected
from grpo_jax.types import LENGTH, Scalar, TokenGrid, TokenGridMask


def mean_totals(parts: Sequence[dict]) -> dict[str, float]:
  """Divides the summed (total, weight) pairs of all updates of a step, once.

  Args:
    parts: metrics of each update, fetched to the host.

  Returns:
    One mean per name; a name whose weight is 0 is left out.
  """
  means = {}
  for name in parts[0] if parts else ():
    total = sum(float(part[name][0]) for part in parts)
    weight = sum(float(part[name][1]) for part in parts)
    if weight:
      means[name] = total / weight
  return means


def rollout_metrics(collected: Collected, step: int) -> dict[str, float]:
  """Figures of all that was sampled in a step, whether kept or not.

  Args:
    collected: the step's batch.
    step: the version of the parameters that sampled in it.

  Returns:
    Rewards before shaping, groups, lengths in tokens; fewer names if nothing
    was sampled because enough groups were pending.
  """
  metrics = {"groups/trained": float(collected.groups)}
  if collected.rollouts is not None:
    oldest = collected.rollouts.version.min()
    metrics["groups/max_age_steps"] = float(step - oldest)
  if collected.logp_difference.size:
    difference = collected.logp_difference
    prefix = "sampling/sampling_logp_difference"
    metrics[f"{prefix}/mean"] = float(difference.mean())
    metrics[f"{prefix}/max"] = float(difference.max())
  if not collected.sampled:
    return metrics

  def of_all(get):
    return np.concatenate([get(sampled) for sampled in collected.sampled])

  outcome = of_all(lambda s: s.rollouts.outcome)
  right = of_all(lambda s: s.rollouts.accuracy) > 0
  lengths = of_all(lambda s: s.rollouts.lengths)
  truncated = of_all(lambda s: s.rollouts.stop_reason) == LENGTH
  metrics |= {
    "reward": float(outcome.mean()),
    "reward_std": float(outcome.std()),
    "frac_reward_zero_std": float(np.mean(np.ptp(outcome, axis=1) == 0)),
    "groups/sampled": float(len(outcome)),
    "groups/keep_rate": collected.keep_rate,
    "groups/all_right": float(right.all(axis=1).mean()),
    "groups/all_wrong": float((~right).all(axis=1).mean()),
    "completions/mean_length": float(lengths.mean()),
    "completions/max_length": float(lengths.max()),
    "completions/clipped_ratio": float(truncated.mean()),
  }
  for name, which in (("right", right), ("wrong", ~right)):
    if which.any():
      metrics[f"completions/mean_length_{name}"] = float(lengths[which].mean())
  if not truncated.all():
    metrics["completions/mean_terminated_length"] = float(
      lengths[~truncated].mean()
    )
  for name in collected.sampled[0].scores:
    metrics[f"rewards/{name}/mean"] = float(
      of_all(lambda s, name=name: s.scores[name]).mean()
    )
  return metrics


def explained_variance(
  values: TokenGrid, returns: TokenGrid, loss_mask: TokenGridMask
) -> tuple[Scalar, Scalar]:
  """1 - Var(R - V) / Var(R) over tokens: what a critic knows of the returns.

  Args:
    values: V, in reward units.
    returns: R, in reward units.
    loss_mask: tokens that count.

  Returns:
    At most 1, and a weight of 1; a weight of 0 where all returns tie.
  """
  count = jnp.maximum(loss_mask.sum(), 1)

  def variance(x):
    x = jnp.where(loss_mask, x, 0.0)
    residue = jnp.where(loss_mask, x - x.sum() / count, 0.0)
    return jnp.sum(residue**2)

  total = variance(returns)
  share = 1 - variance(returns - values) / jnp.where(total > 0, total, 1.0)
  defined = (total > 0).astype(share.dtype)
  return share * defined, defined
