"""Which completions and tokens pull, and how much."""

import math
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from grpo_jax.algorithms import corrections
from grpo_jax.algorithms.recipes.recipe import (
  Memory,
  Recipe,
  check_range,
  kept_tokens,
  per_token,
)


def sampler_correction(
  recipe: Recipe,
  *,
  level: Literal["token", "sequence", "geometric"],
  outside: Literal["truncate", "mask"],
  lowest: float = 0.0,
  highest: float = math.inf,
) -> Recipe:
  """Weighs a recipe's advantages by pi_old / pi_sampler.

  Not for `kimi_k15`, whose loss is not proportional to its advantage, nor
  where `old_logp` is the sampler's own, and the ratio holds the weight
  already. The arguments are those of `corrections.sampler_correction`.
  """
  corrections.check_correction(level, outside)

  def weigh(advantage, rollouts):
    return advantage * corrections.sampler_correction(
      rollouts.old_logp,
      rollouts.behaviour_logp,
      kept_tokens(rollouts),
      level=level,
      outside=outside,
      lowest=lowest,
      highest=highest,
    )

  return _weighing_advantages(recipe, weigh)


def high_entropy_tokens(recipe: Recipe, *, fraction: float = 0.2) -> Recipe:
  """Trains on the batch's tokens of highest entropy alone (arXiv:2506.01939).

  The others keep their place in the denominator.
  """
  check_range(0.0, 1.0, fraction=fraction)

  def weigh(advantage, rollouts):
    mask = kept_tokens(rollouts)
    return advantage * corrections.largest_fraction(
      rollouts.entropy, mask, mask, fraction=fraction
    )

  return _weighing_advantages(recipe, weigh)


def clip_cov(
  recipe: Recipe,
  *,
  fraction: float = 2e-4,
  lowest: float = 1.0,
  highest: float = 5.0,
  seed: int = 0,
) -> Recipe:
  """Clip-Cov (arXiv:2505.22617): a few tokens of high covariance get no pull.

  Deviations: they are chosen once per rollout batch, by the log-probabilities
  at sampling, where the paper's code chooses at each update; it leaves out
  tokens that the ratio's clip stops, of which there are none yet. The recipe's
  own clip stays as it is; the paper's is so wide that it never acts.
  """
  check_range(0.0, 1.0, fraction=fraction)

  def weigh(advantage, rollouts):
    mask = kept_tokens(rollouts)
    candidates = corrections.covariance_candidates(
      corrections.token_covariance(rollouts.old_logp, advantage, mask),
      mask,
      lowest=lowest,
      highest=highest,
    )
    # The constant keeps it off the sampler's keys.
    key = jax.random.fold_in(jax.random.key(22617), seed)
    key = jax.random.fold_in(key, rollouts.memory["clip_cov_batches"])
    return advantage * ~corrections.randomly_chosen(
      candidates, mask, key, fraction=fraction
    )

  batches = Memory(
    "clip_cov_batches",
    jnp.zeros((), jnp.int32),
    lambda count, rewards, rollouts: count + 1,
  )
  return _weighing_advantages(recipe, weigh)._replace(
    memories=(*recipe.memories, batches)
  )


def drop_truncated(recipe: Recipe) -> Recipe:
  """Overlong filtering that reaches the statistics (arXiv:2503.14476).

  Truncated completions are not trained on, as DAPO has it, and their rewards
  move no mean of their group either, which the paper leaves open.
  """

  def advantages(rewards, rollouts):
    finished = rollouts.sample_mask & ~rollouts.truncated
    return recipe.advantages(rewards, rollouts.replace(sample_mask=finished))

  def keep_samples(rollouts):
    return recipe.keep_samples(rollouts) & ~rollouts.truncated

  return recipe._replace(advantages=advantages, keep_samples=keep_samples)


def lone_rewards(recipe: Recipe) -> Recipe:
  """The only completion of a group has its reward as advantage, as in verl.

  Without it, it has none, being its own baseline.
  """
  return recipe._replace(advantages=partial(_lone_rewards, recipe.advantages))


def _lone_rewards(advantages, rewards, rollouts):
  mask = rollouts.sample_mask
  lone = mask & (mask.sum(axis=-1, keepdims=True) == 1)
  usual = per_token(advantages(rewards, rollouts), rollouts)
  return jnp.where(lone[..., None], rewards[..., None], usual)


def _weighing_advantages(recipe, weigh):
  """Replaces the advantages A by weigh(A, rollouts), all per token.

  The rollouts' loss mask leaves out what the recipe does not train on.
  """

  def advantages(rewards, rollouts):
    unweighed = per_token(recipe.advantages(rewards, rollouts), rollouts)
    keep = recipe.keep_samples(rollouts)[..., None]
    trained = rollouts.replace(loss_mask=rollouts.loss_mask & keep)
    mask = kept_tokens(trained)
    return weigh(jnp.where(mask, unweighed, 0.0), trained)

  return recipe._replace(advantages=advantages)
