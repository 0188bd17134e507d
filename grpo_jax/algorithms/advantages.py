"""Advantages: how much better a completion did than a baseline."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def group_relative_advantages(
  rewards: Float[Array, "P G"],
  sample_mask: Bool[Array, "P G"],
  *,
  scale: Literal["group_std", "none"],
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
    scale: what divides the centred reward.
    ddof: 0 for the population, 1 for the sample standard deviation.
    eps: added to the standard deviation, in reward units.

  Returns:
    Advantages; exactly 0 where masked and where a group's rewards all tie,
    a group of one included.
  """
  rewards = jnp.where(sample_mask, rewards, 0.0)
  count = jnp.sum(sample_mask, axis=-1, keepdims=True)
  mean = rewards.sum(axis=-1, keepdims=True) / jnp.maximum(count, 1)
  centred = jnp.where(sample_mask, rewards - mean, 0.0)
  centred = jnp.where(tied(rewards, sample_mask)[:, None], 0.0, centred)
  if scale == "none":
    return centred
  variance = jnp.sum(centred**2, axis=-1, keepdims=True)
  variance = variance / jnp.maximum(count - ddof, 1)
  std = jnp.sqrt(jnp.where(variance > 0, variance, 1.0))
  return centred / (std + eps)


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
