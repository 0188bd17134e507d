"""Advantages per token: what comes after a token, not the whole reward."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.algorithms.advantages import group_relative_advantages


def token_rewards(
  rewards: Float[Array, "P G"],
  old_logp: Float[Array, "P G T"],
  ref_logp: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  kl_coefficient: float,
) -> Float[Array, "P G T"]:
  """1[t is last] r - beta (log pi_old - log pi_ref): k1 in the reward.

  The reward of PPO and REINFORCE++ (arXiv:2501.03262). In the reward k1 is an
  unbiased penalty; as a loss its expected gradient is zero.

  Args:
    rewards: one scalar per completion, in reward units.
    old_logp: of the policy that sampled, in nats.
    ref_logp: of the reference policy, in nats.
    loss_mask: tokens that the policy chose; the last of them gets the reward.
    kl_coefficient: beta, in reward units per nat.

  Returns:
    In reward units; 0 where masked.
  """
  later = jnp.cumsum(loss_mask[..., ::-1], axis=-1)[..., ::-1]
  last = loss_mask & (later == 1)
  penalty = jnp.where(loss_mask, old_logp - ref_logp, 0.0)
  return jnp.where(last, rewards[..., None], 0.0) - kl_coefficient * penalty


def generalised_advantages(
  rewards: Float[Array, "P G T"],
  values: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  discount: float,
  trace_decay: float | Float[Array, "P G"],
  bootstrap: float | Float[Array, "P G"],
) -> Float[Array, "P G T"]:
  """A_t = delta_t + discount trace_decay A_{t+1}.

  GAE (arXiv:1506.02438), delta_t = r_t + discount V_{t+1} - V_t. Masked tokens
  are passed over, as if t and t + 1 were neighbours: no value of a forced
  token enters, and nothing is discounted across it.

  Args:
    rewards: per token, in reward units.
    values: V_t, expected return before token t, in reward units.
    loss_mask: tokens that the policy chose.
    discount: gamma, per token.
    trace_decay: lambda, per token; one for all, or one for each completion.
    bootstrap: V after the last token: 0 where a completion ended, the
      critic's value where it was cut, if a cut is not to count as an end.

  Returns:
    Advantages; 0 where masked. The critic's target is A + V.
  """
  rows = rewards.shape[:2]
  decay = discount * jnp.broadcast_to(trace_decay, rows)

  def back(carry, token):
    next_value, next_advantage = carry
    reward, value, keep = token
    advantage = reward + discount * next_value - value + decay * next_advantage
    carry = (
      jnp.where(keep, value, next_value),
      jnp.where(keep, advantage, next_advantage),
    )
    return carry, jnp.where(keep, advantage, 0.0)

  start = (
    jnp.broadcast_to(bootstrap, rows).astype(values.dtype),
    jnp.zeros(rows, values.dtype),
  )
  tokens = jax.tree.map(
    lambda x: jnp.moveaxis(x, -1, 0), (rewards, values, loss_mask)
  )
  _, advantages = jax.lax.scan(back, start, tokens, reverse=True)
  return jnp.moveaxis(advantages, 0, -1)


def reward_to_go(
  rewards: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  discount: float,
) -> Float[Array, "P G T"]:
  """R_t = r_t + discount R_{t+1}: GAE without a critic, traces undecayed."""
  return generalised_advantages(
    rewards,
    jnp.zeros_like(rewards),
    loss_mask,
    discount=discount,
    trace_decay=1.0,
    bootstrap=0.0,
  )


def explained_variance(
  values: Float[Array, "P G T"],
  returns: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
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


def length_adaptive_trace_decay(
  lengths: Int[Array, "P G"], *, alpha: float, floor: float
) -> Float[Array, "P G"]:
  """Lambda = 1 - 1 / (alpha l): traces that reach back over a share of l.

  VAPO (arXiv:2504.05118), alpha 0.05.

  Args:
    lengths: l, in tokens.
    alpha: inverse of the length at which lambda is 0, per token.
    floor: least lambda. The paper has none, and lambda is negative below
      1 / alpha tokens: -inf reproduces it, 0 is safe.

  Returns:
    Lambda of each completion.
  """
  return jnp.maximum(1 - 1 / (alpha * jnp.maximum(lengths, 1)), floor)


def process_advantages(
  step_rewards: Float[Array, "P G T"],
  step_mask: Bool[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  ddof: int,
  eps: float,
) -> Float[Array, "P G T"]:
  """Sum of the normalised rewards of all steps that end at t or later.

  Process supervision of DeepSeekMath (arXiv:2402.03300, section 4.1.3); mean
  and standard deviation are over all steps of a group.

  Args:
    step_rewards: on the last token of each step, in reward units.
    step_mask: where steps end.
    loss_mask: tokens that the policy chose.
    ddof: as for `group_relative_advantages`.
    eps: as for `group_relative_advantages`.

  Returns:
    Advantages; 0 where masked.
  """
  P = step_rewards.shape[0]
  normalised = group_relative_advantages(
    step_rewards.reshape(P, -1),
    step_mask.reshape(P, -1),
    scale="group_std",
    ddof=ddof,
    eps=eps,
  )
  return reward_to_go(
    normalised.reshape(step_rewards.shape), loss_mask, discount=1.0
  )
