"""Which completions and tokens pull, and how much.

Every surrogate but Kimi's is proportional to its advantage, so a factor of it
weighs the token; one of 0 keeps the token in the denominator.
"""

import math
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from grpo_jax.algorithms import corrections, masked, penalties
from grpo_jax.algorithms.checks import check_choice, check_range
from grpo_jax.algorithms.recipes import recipe as fields
from grpo_jax.algorithms.recipes.recipe import Recipe

# Keeps the exponential of a long completion's sum finite, as verl has it.
_LARGEST_LOG_WEIGHT = 20.0


def kl_cov(
  recipe: Recipe, *, fraction: float = 2e-3, coefficient: float = 1.0
) -> Recipe:
  """KL-Cov (arXiv:2505.22617): holds the tokens of largest covariance.

  They get coefficient * |log pi - log pi_old| as a loss. The fraction is the
  paper's for 7B models; 2e-4 for 32B. Chosen as in `clip_cov`. Deviation: the
  recipe's clip stays, of which the paper's code has none.
  """
  check_range(0.0, 1.0, fraction=fraction)
  check_range(coefficient=coefficient)

  def chosen(rollouts, advantage):
    logp, mask = rollouts.old_logp, rollouts.loss_mask
    covariance = corrections.token_covariance(logp, advantage, mask)
    return corrections.largest_fraction(
      covariance, mask, mask, fraction=fraction
    )

  tether = fields.Penalty(coefficient, penalties.absolute_log_ratio, chosen)
  return recipe._replace(penalties=(*recipe.penalties, tether))


def clip_cov(
  recipe: Recipe,
  *,
  fraction: float = 2e-4,
  lowest: float = 1.0,
  highest: float = 5.0,
  seed: int = 0,
) -> Recipe:
  """Clip-Cov (arXiv:2505.22617): a few tokens of high covariance get no pull.

  Those of the fraction are drawn from the tokens whose covariance, in nats
  times the advantage's unit, lies between the bounds. Deviations: they are
  chosen once per rollout batch, by the log-probabilities at sampling, where the
  paper's code chooses at each update; it leaves out tokens that the ratio's
  clip stops, of which there are none yet. The recipe's own clip stays as it is;
  the paper's is so wide that it never acts.
  """
  check_range(0.0, 1.0, fraction=fraction)

  def weight(rollouts, advantage):
    logp, mask = rollouts.old_logp, rollouts.loss_mask
    covariance = corrections.token_covariance(logp, advantage, mask)
    candidates = mask & (covariance > lowest) & (covariance < highest)
    # The constant keeps it off the sampler's keys.
    key = jax.random.fold_in(jax.random.key(22617), seed)
    key = jax.random.fold_in(key, rollouts.memory["clip_cov_batches"])
    return ~corrections.randomly_chosen(
      candidates, mask, key, fraction=fraction
    )

  def update(batches, rewards, rollouts):
    return batches + 1

  memory = fields.Memory("clip_cov_batches", jnp.zeros((), jnp.int32), update)
  memories = (*recipe.memories, memory)
  return _weighing_advantages(recipe, weight)._replace(memories=memories)


def high_entropy_tokens(recipe: Recipe, *, fraction: float = 0.2) -> Recipe:
  """Trains on the batch's tokens of highest entropy alone (arXiv:2506.01939).

  The others keep their place in the denominator.
  """
  check_range(0.0, 1.0, fraction=fraction)

  def weight(rollouts, advantage):
    entropy, mask = rollouts.entropy, rollouts.loss_mask
    return corrections.largest_fraction(entropy, mask, mask, fraction=fraction)

  return _weighing_advantages(recipe, weight)


def sampler_correction(
  recipe: Recipe,
  *,
  level: Literal["token", "sequence", "geometric"],
  outside: Literal["truncate", "mask"],
  lowest: float = 0.0,
  highest: float = math.inf,
) -> Recipe:
  """Weighs advantages by w = pi_old / pi_sampler, bounded.

  The sampler is not quite the policy. Truncated importance sampling (Yao et
  al., 2025) bounds w from above, C = 2; IcePop and MIS set it to 0 outside
  [C_min, C]. Not for `kimi_k15`, whose loss is not proportional to its
  advantage, nor where `old_logp` is the sampler's own, and the ratio holds the
  weight already.

  Args:
    recipe: any other.
    level: w of each token; of the completion, the product of its tokens
      (unbiased, of high variance); or the geometric mean of its tokens.
    outside: what becomes of w outside the bounds: the bound, or 0, which keeps
      the token in the denominator.
    lowest: least w; 0 for none.
    highest: largest w.

  Returns:
    A recipe with other advantages.

  Raises:
    ValueError: no such level, or nothing of that name outside.
  """
  check_choice(("token", "sequence", "geometric"), level=level)
  check_choice(("truncate", "mask"), outside=outside)

  def weight(rollouts, advantage):
    mask = rollouts.loss_mask
    log_w = jnp.where(mask, rollouts.old_logp - rollouts.behaviour_logp, 0.0)
    if level == "sequence":
      log_w = jnp.sum(log_w, axis=-1, keepdims=True)
    elif level == "geometric":
      log_w = masked.mean(log_w, mask)
    w = jnp.exp(jnp.clip(log_w, -_LARGEST_LOG_WEIGHT, _LARGEST_LOG_WEIGHT))
    bounded = jnp.clip(w, lowest, highest)
    return bounded if outside == "truncate" else jnp.where(w == bounded, w, 0.0)

  return _weighing_advantages(recipe, weight)


def drop_truncated(recipe: Recipe) -> Recipe:
  """Overlong filtering that reaches the statistics (arXiv:2503.14476).

  Truncated completions are not trained on, as DAPO has it, and their rewards
  move no mean of their group either, which the paper leaves open.
  """

  def advantages(rewards, rollouts):
    finished = rollouts.sample_mask & ~rollouts.truncated
    rollouts = fields.only(finished, rollouts.replace(sample_mask=finished))
    return recipe.advantages(rewards, rollouts)

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
  usual = fields.per_token(advantages(rewards, rollouts), rollouts)
  return jnp.where(lone[..., None], rewards[..., None], usual)


def _weighing_advantages(recipe, weight):
  """Multiplies the advantages A by weight(rollouts, A), both per token.

  The rollouts' loss mask leaves out what the recipe does not train on.
  """

  def advantages(rewards, rollouts):
    trained = fields.only(recipe.keep_samples(rollouts), rollouts)
    unweighed = fields.per_token(recipe.advantages(rewards, rollouts), rollouts)
    advantage = jnp.where(trained.loss_mask, unweighed, 0.0)
    return advantage * weight(trained, advantage)

  return recipe._replace(advantages=advantages)
