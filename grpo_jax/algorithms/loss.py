"""The one loss of the repository, and what is prepared for it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grpo_jax.algorithms.penalties import kl_k3
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.types import Rollouts, TokenScores, TrainBatch

# Means travel as (total, weight) and are divided once, after all microbatches
# and devices.
Totals = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]


def prepare(
  recipe: Recipe, rollouts: Rollouts
) -> tuple[Float[Array, "P G T"], Bool[Array, "P G T"]]:
  """Advantages and the loss mask of a whole rollout batch, outside gradients.

  Args:
    recipe: the algorithm.
    rollouts: all groups of the step, so that statistics see all of them.

  Returns:
    The advantage of each token, and the tokens to train on.
  """
  rewards = recipe.shape_rewards(rollouts)
  advantage = recipe.advantages(rewards, rollouts)
  if advantage.ndim == 2:
    advantage = advantage[..., None]
  keep = recipe.keep_samples(rollouts) & rollouts.sample_mask
  loss_mask = rollouts.loss_mask & keep[..., None]
  return jnp.where(loss_mask, advantage, 0.0), loss_mask


def token_loss(
  recipe: Recipe, scores: TokenScores, batch: TrainBatch
) -> tuple[Float[Array, ""], Totals]:
  """Sum over tokens of weight * (surrogate + sum of coefficient * penalty).

  Args:
    recipe: the algorithm.
    scores: the policy's log-probabilities, differentiable.
    batch: everything else, constant. Any part of an optimizer batch: losses
      and gradients of the parts add up to those of the whole.

  Returns:
    The loss, and totals for metrics.
  """
  mask = batch.loss_mask
  # Here, so that no surrogate or penalty can make a NaN gradient of padding.
  scores = jax.tree.map(lambda x: jnp.where(mask, x, 0.0), scores)
  log_ratio = recipe.log_ratio(scores.logp, batch.old_logp, mask)
  per_token, counts = recipe.surrogate(log_ratio, batch.advantage, scores.logp)
  for coefficient, penalty in recipe.penalties:
    per_token += coefficient * penalty(scores, batch)
  loss = jnp.sum(jnp.where(mask, batch.weight * per_token, 0.0))

  tokens = jnp.sum(mask, dtype=loss.dtype)

  def total(values):
    return jnp.sum(jnp.where(mask, values, 0.0)), tokens

  metrics = {name: total(count) for name, count in counts.items()}
  metrics["loss"] = (loss, jnp.zeros_like(loss))
  metrics["entropy"] = total(scores.entropy)
  metrics["policy/approx_kl"] = total(jnp.expm1(log_ratio) - log_ratio)
  if recipe.needs_reference:
    metrics["kl"] = total(kl_k3(scores, batch))
  return loss, metrics
