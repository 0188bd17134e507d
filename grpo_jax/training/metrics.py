"""The figures of a step, under the names that users of TRL know."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from grpo_jax.rewards.functions import Scored
from grpo_jax.rewards.verify import Outcome
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

  counted = of_all(lambda s: s.rollouts.sample_mask)
  outcome = of_all(lambda s: s.rollouts.outcome)
  right = of_all(lambda s: s.rollouts.accuracy) > 0
  wrong = counted & ~right
  lengths = of_all(lambda s: s.rollouts.lengths)
  truncated = of_all(lambda s: s.rollouts.stop_reason) == LENGTH
  metrics |= {
    "groups/sampled": float(len(outcome)),
    "groups/keep_rate": collected.keep_rate,
    # Of those whose correctness is known; a group without any is neither.
    "groups/all_right": float((right.any(1) & ~wrong.any(1)).mean()),
    "groups/all_wrong": float((wrong.any(1) & ~right.any(1)).mean()),
    "completions/mean_length": float(lengths.mean()),
    "completions/max_length": float(lengths.max()),
    "completions/clipped_ratio": float(truncated.mean()),
  }
  if counted.any():
    metrics |= _of_rewards(outcome, counted)
  for name, which in (("right", right), ("wrong", wrong)):
    if which.any():
      metrics[f"completions/mean_length_{name}"] = float(lengths[which].mean())
  if not truncated.all():
    metrics["completions/mean_terminated_length"] = float(
      lengths[~truncated].mean()
    )
  scored = [s.scored for s in collected.sampled]
  for name in dict.fromkeys(name for s in scored for name in s.scores):
    values = [s.scores[name] for s in scored if name in s.scores]
    known = np.concatenate([v[~np.isnan(v)] for v in values])
    if known.size:
      metrics[f"rewards/{name}/mean"] = float(known.mean())
  return metrics | verification_metrics(scored)


def _of_rewards(outcome: np.ndarray, counted: np.ndarray) -> dict[str, float]:
  """Figures of the mixture, of completions and groups that count."""
  low = np.where(counted, outcome, np.inf).min(axis=1)
  high = np.where(counted, outcome, -np.inf).max(axis=1)
  return {
    "reward": float(outcome[counted].mean()),
    "reward_std": float(outcome[counted].std()),
    "frac_reward_zero_std": float(np.mean((low == high)[counted.any(axis=1)])),
  }


def verification_metrics(scored: Sequence[Scored]) -> dict[str, float]:
  """What the verifier found, and what was excluded.

  Args:
    scored: completions of any number of calls, of the same functions.

  Returns:
    Shares of all completions: `verifier/<outcome>`, which add up to 1;
    `excluded/<function>/<reason>`; and `excluded/completions`, those without
    correctness.
  """

  def share(get):
    return float(np.concatenate([get(s).ravel() for s in scored]).mean())

  metrics = {}
  for key in scored[0].excluded:
    name = "/".join(("excluded", *key))
    metrics[name] = share(lambda s, key=key: s.excluded[key])
  metrics["excluded/completions"] = share(
    lambda s: np.isnan(s.scores["correctness"])
  )
  if scored[0].outcomes is not None:
    for outcome in Outcome:
      metrics[f"verifier/{outcome}"] = share(
        lambda s, o=outcome: s.outcomes == o
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
