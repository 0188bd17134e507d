"""Advantages that need statistics of the whole batch, or of earlier ones."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.algorithms.advantages import group_relative_advantages, tied


def batch_normalised_advantages(
  advantages: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  each: Literal["token", "sequence"],
  ddof: int,
  eps: float,
  eps_in: Literal["std", "variance", "variance_floor"],
) -> Float[Array, "P G T"]:
  """(A - mean A) / (std A + eps), statistics over the whole batch.

  REINFORCE++ (arXiv:2501.03262), whose text leaves open what is counted.

  Args:
    advantages: any.
    loss_mask: tokens that count.
    each: `token` lets long completions weigh more (verl, OpenRLHF);
      `sequence` counts every completion once (the paper's appendix).
    ddof: 0 (the paper, OpenRLHF) or 1 (verl).
    eps: against division by 0.
    eps_in: added to the standard deviation (the paper), to the variance
      (verl), or the least variance (OpenRLHF).

  Returns:
    Advantages; 0 where masked, and everywhere if all of them tie.

  Raises:
    ValueError: there is nothing of that name to count.
  """
  if each not in ("token", "sequence"):
    raise ValueError("each must be 'token' or 'sequence'.")
  weight = loss_mask.astype(advantages.dtype)
  if each == "sequence":
    weight = weight / jnp.maximum(weight.sum(-1, keepdims=True), 1)
  total = weight.sum()
  advantages = jnp.where(loss_mask, advantages, 0.0)
  mean = jnp.sum(weight * advantages) / jnp.maximum(total, 1)
  variance = jnp.sum(weight * (advantages - mean) ** 2)
  variance = variance / jnp.maximum(total - ddof, 1)
  all_tie = tied(advantages.reshape(1, -1), loss_mask.reshape(1, -1))[0]
  std = {
    "std": jnp.sqrt(variance) + eps,
    "variance": jnp.sqrt(variance + eps),
    "variance_floor": jnp.sqrt(jnp.maximum(variance, eps)),
  }[eps_in]
  return jnp.where(loss_mask & ~all_tie, (advantages - mean) / std, 0.0)


def multi_reward_advantages(
  rewards: Float[Array, "K P G"],
  sample_mask: Bool[Array, "P G"],
  *,
  weights: tuple[float, ...],
  ddof: int,
  eps: float,
) -> Float[Array, "P G"]:
  """Normalises sum_k w_k A_k over the batch, A_k within each group.

  GDPO (arXiv:2601.05242): each of K rewards is normalised before they are
  mixed, so that none is drowned by another's spread. Statistics count each
  completion once (TRL); verl counts tokens.

  Args:
    rewards: one array per reward, each in its own unit.
    sample_mask: completions that count.
    weights: w_k.
    ddof: of both standard deviations.
    eps: added to both.

  Returns:
    Advantages; 0 where masked.
  """
  mixed = sum(
    weight
    * group_relative_advantages(
      one, sample_mask, scale="group_std", ddof=ddof, eps=eps
    )
    for weight, one in zip(weights, rewards, strict=True)
  )
  return batch_normalised_advantages(
    mixed[..., None],
    sample_mask[..., None],
    each="sequence",
    ddof=ddof,
    eps=eps,
    eps_in="std",
  )[..., 0]


class MovingBaseline(NamedTuple):
  """Mean of earlier rewards, and how many batches it has seen."""

  mean: Float[Array, ""]
  updates: Int[Array, ""]


def next_moving_baseline(
  state: MovingBaseline,
  rewards: Float[Array, "P G"],
  sample_mask: Bool[Array, "P G"],
  *,
  decay: float | None,
) -> MovingBaseline:
  """b' = b + share (mean r - b), the baseline of A = r - b in the next batch.

  Plain REINFORCE as RLOO's paper has it (arXiv:2402.14740, eq. 8), and what is
  popularly taken for REINFORCE++, no version of which uses it.

  Args:
    state: of before this batch; (0, 0) at first.
    rewards: in reward units.
    sample_mask: completions that count.
    decay: of an exponential average from 0, per batch; None takes the plain
      mean over batches.

  Returns:
    The state for the next batch; a batch that is all masked leaves it alone.
  """
  kept = jnp.sum(sample_mask)
  mean = jnp.sum(jnp.where(sample_mask, rewards, 0.0)) / jnp.maximum(kept, 1)
  updates = state.updates + 1
  share = 1 / updates.astype(mean.dtype) if decay is None else 1 - decay
  moved = MovingBaseline(
    mean=state.mean + share * (mean - state.mean), updates=updates
  )
  return jax.tree.map(
    lambda new, old: jnp.where(kept > 0, new, old), moved, state
  )
