"""The one loss of the repository, and what is prepared for it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from grpo_jax.algorithms.penalties import kl_k3
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.algorithms.recipes.recipe import only, per_token
from grpo_jax.algorithms.weights import token_mean
from grpo_jax.types import (
  CriticBatch,
  Grid,
  Rollouts,
  Scalar,
  TokenGrid,
  TokenGridMask,
  TokenScores,
  TrainBatch,
)

# Means travel as (total, weight) and are divided once, after all microbatches
# and devices.
Totals = dict[str, tuple[Scalar, Scalar]]


class Prepared(NamedTuple):
  """What a recipe makes of a rollout batch; every leaf leads with P.

  Attributes:
    advantage: 0 where masked.
    loss_mask: tokens to train on.
    scales: one factor for each penalty.
    target: of the critic, in reward units; None without one.
    rewards: as they were shaped.
  """

  advantage: TokenGrid
  loss_mask: TokenGridMask
  scales: tuple[TokenGrid, ...]
  target: TokenGrid | None
  rewards: Grid


def prepare(
  recipe: Recipe, rollouts: Rollouts, memory: dict[str, Any]
) -> tuple[Prepared, dict[str, Any]]:
  """Everything that needs the whole rollout batch, outside gradients.

  Args:
    recipe: the algorithm.
    rollouts: all groups of the step, so that statistics see all of them.
    memory: of the recipe; `recipe.initial_memory` at first.

  Returns:
    Advantages and the like, and the memory for the next batch.
  """
  rollouts = only(rollouts.sample_mask, rollouts.replace(memory=memory))
  trained = only(recipe.keep_samples(rollouts), rollouts)
  rewards = recipe.shape_rewards(rollouts)

  def masked(values):
    return jnp.where(trained.loss_mask, values, 0.0)

  advantage = masked(per_token(recipe.advantages(rewards, rollouts), rollouts))
  critic = recipe.critic
  prepared = Prepared(
    advantage=advantage,
    loss_mask=trained.loss_mask,
    scales=tuple(
      masked(penalty.scale(trained, advantage) if penalty.scale else 1.0)
      for penalty in recipe.penalties
    ),
    target=masked(critic.targets(rewards, rollouts)) if critic else None,
    rewards=rewards,
  )
  return prepared, {
    m.name: _updated(m, memory[m.name], rewards, trained)
    for m in recipe.memories
  }


def _updated(memory, state, rewards, rollouts):
  """The next state, which a checkpoint must be able to hold like the first."""
  after = memory.update(state, rewards, rollouts)
  before, found = (jax.tree.map(_description, x) for x in (state, after))
  if before != found:
    raise ValueError(
      f"the memory {memory.name!r} must keep its structure, shapes and dtypes:"
      f" {before}, not {found}."
    )
  return after


def _description(x):
  return f"{jnp.asarray(x).dtype}{list(jnp.shape(x))}"


def optimizer_batch(
  recipe: Recipe, rollouts: Rollouts, prepared: Prepared
) -> TrainBatch:
  """The groups of one optimizer update as completions, weights included.

  Args:
    recipe: the algorithm.
    rollouts: these groups.
    prepared: of these groups.

  Returns:
    A batch of N = P G completions, without `rows`.
  """
  exists = rollouts.sample_mask.any(axis=1)
  weight = recipe.weights(prepared.loss_mask, exists)
  critic = None
  if recipe.critic:
    learns = rollouts.version >= recipe.critic.warmup_steps
    weight = jnp.where(learns[:, None, None], weight, 0.0)
    critic = CriticBatch(
      weight=token_mean(prepared.loss_mask, exists),
      target=prepared.target,
      old_value=rollouts.value,
    )
  batch = TrainBatch(
    rows=None,
    tokens=rollouts.tokens,
    loss_mask=prepared.loss_mask,
    weight=weight,
    advantage=prepared.advantage,
    old_logp=rollouts.old_logp,
    ref_logp=rollouts.ref_logp,
    scales=prepared.scales,
    critic=critic,
  )
  return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), batch)


def token_loss(
  recipe: Recipe, scores: TokenScores, batch: TrainBatch
) -> tuple[Scalar, Totals]:
  """Sum over tokens of weight * (surrogate + sum of the penalties).

  With a critic, plus the sum over tokens of its own weight * its loss.

  Args:
    recipe: the algorithm.
    scores: the policy's log-probabilities and the critic's values,
      differentiable.
    batch: everything else, constant. Any part of an optimizer batch: losses
      and gradients of the parts add up to those of the whole.

  Returns:
    The loss, and totals for metrics.
  """
  mask = batch.loss_mask
  # Here, so that no surrogate or penalty can make a NaN gradient of padding.
  scores = jax.tree.map(lambda x: jnp.where(mask, x, 0.0), scores)

  def summed(values):
    return jnp.sum(jnp.where(mask, values, 0.0))

  log_ratio = recipe.log_ratio(scores.logp, batch.old_logp, mask)
  loss_of, counts = recipe.surrogate(log_ratio, batch.advantage, scores.logp)
  for term, scale in zip(recipe.penalties, batch.scales, strict=True):
    loss_of += term.coefficient * scale * term.value(scores, batch)
  loss = summed(batch.weight * loss_of)

  measured = dict(counts)
  measured["entropy"] = scores.entropy
  measured["policy/approx_kl"] = jnp.expm1(log_ratio) - log_ratio
  if recipe.needs_reference:
    measured["kl"] = kl_k3(scores, batch)
  if recipe.critic:
    old_value = jnp.where(mask, batch.critic.old_value, 0.0)
    errors = recipe.critic.loss(scores.value, old_value, batch.critic.target)
    measured["loss/value_avg"] = errors
    loss += recipe.critic.coefficient * summed(batch.critic.weight * errors)
  tokens = jnp.sum(mask, dtype=loss.dtype)
  metrics = {name: (summed(x), tokens) for name, x in measured.items()}
  metrics["loss"] = (loss, jnp.zeros_like(loss))
  return loss, metrics
