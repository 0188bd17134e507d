"""Advantages per token: what comes after a token, not the whole reward."""

import jax
import jax.numpy as jnp

from grpo_jax.types import Grid, Lengths, Rollouts, TokenGrid, TokenGridMask


def token_rewards(
  rewards: Grid, rollouts: Rollouts, *, kl_coefficient: float
) -> TokenGrid:
  """1[t is last] r - beta (log pi_old - log pi_ref): k1 in the reward.

  The reward of PPO and REINFORCE++ (arXiv:2501.03262). In the reward k1 is an
  unbiased penalty; as a loss its expected gradient is zero.

  Args:
    rewards: one scalar per completion, in reward units.
    rollouts: of which the log-probabilities are looked at, and the tokens that
      the policy chose: the last of them gets the reward.
    kl_coefficient: beta, in reward units per nat.

  Returns:
    In reward units; 0 where masked.
  """
  mask = rollouts.loss_mask
  later = jnp.cumsum(mask[..., ::-1], axis=-1)[..., ::-1]
  at_the_end = jnp.where(mask & (later == 1), rewards[..., None], 0.0)
  k1 = jnp.where(mask, rollouts.old_logp - rollouts.ref_logp, 0.0)
  return at_the_end - kl_coefficient * k1


def generalised_advantages(
  rewards: TokenGrid,
  values: TokenGrid,
  loss_mask: TokenGridMask,
  *,
  discount: float,
  trace_decay: float | Grid,
  bootstrap: float | Grid,
) -> TokenGrid:
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

  def back(after, token):
    reward, value, keep = token
    next_value, next_advantage = after
    delta = reward + discount * next_value - value
    advantage = delta + discount * trace_decay * next_advantage
    here = jnp.where(keep, jnp.stack([value, advantage]), after)
    return here, jnp.where(keep, advantage, 0.0)

  end = jnp.zeros((2, *values.shape[:2]), values.dtype).at[0].set(bootstrap)
  tokens = [jnp.moveaxis(x, -1, 0) for x in (rewards, values, loss_mask)]
  _, advantages = jax.lax.scan(back, end, tokens, reverse=True)
  return jnp.moveaxis(advantages, 0, -1)


def reward_to_go(
  rewards: TokenGrid, loss_mask: TokenGridMask, *, discount: float
) -> TokenGrid:
  """R_t = r_t + discount R_{t+1}: GAE without a critic, traces undecayed."""
  zeros = jnp.zeros_like(rewards)
  return generalised_advantages(
    rewards, zeros, loss_mask, discount=discount, trace_decay=1.0, bootstrap=0.0
  )


def length_adaptive_trace_decay(
  lengths: Lengths, *, alpha: float, floor: float
) -> Grid:
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
