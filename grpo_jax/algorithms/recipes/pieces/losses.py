"""Terms of the loss or of the reward, and bounds of the ratio."""

import math
from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import masked, penalties, ratios, surrogates
from grpo_jax.algorithms.checks import check_choice, check_range
from grpo_jax.algorithms.recipes.recipe import Memory, Penalty, Recipe


def kl_loss(
  recipe: Recipe,
  *,
  coefficient: float,
  estimator: Literal["k2", "k3", "weighted_k3"],
) -> Recipe:
  """KL towards the reference as a loss; none at coefficient 0.

  Args:
    recipe: any without a KL.
    coefficient: in reward units per nat.
    estimator: k2, k3 or weighted_k3, of `penalties`.

  Returns:
    A recipe with one more penalty.

  Raises:
    ValueError: the coefficient is negative, the estimator cannot be a loss, or
      the recipe has a KL already.
  """
  _check_kl(recipe, coefficient)
  if estimator == "k1":
    raise ValueError(
      "k1 cannot be a loss: the expectation of its gradient, that of"
      " log pi, is zero, so it pulls nowhere. Put it into the reward"
      " (rloo, reinforce_plus_plus), or use k2, k3 or weighted_k3."
    )
  check_choice(tuple(penalties.KL_LOSSES), estimator=estimator)
  if not coefficient:
    return recipe
  recipe = _with_penalty(recipe, coefficient, penalties.KL_LOSSES[estimator])
  return recipe._replace(needs_reference=True)


def kl_in_reward(recipe: Recipe, *, coefficient: float) -> Recipe:
  """The completion's k1 towards the reference, subtracted from its reward.

  r - beta sum_t (log pi_old - log pi_ref), as in RLOO (arXiv:2402.14740).
  Without effect on recipes that do not look at the reward: gdpo, grpo_process,
  pass_at_k, maxrl and supervised.
  """
  _check_kl(recipe, coefficient)

  def shape_rewards(rollouts):
    k1 = rollouts.old_logp - rollouts.ref_logp
    k1 = jnp.sum(jnp.where(rollouts.loss_mask, k1, 0.0), axis=-1)
    return recipe.shape_rewards(rollouts) - coefficient * k1

  shaped = recipe._replace(shape_rewards=shape_rewards, needs_reference=True)
  return shaped if coefficient else recipe


def _check_kl(recipe, coefficient):
  check_range(kl_coefficient=coefficient)
  if recipe.needs_reference:
    raise ValueError(
      "the recipe has a KL towards the reference already; set its own"
      " kl_coefficient, or that to 0."
    )


def _with_penalty(recipe, coefficient, value, scale=None):
  penalty = Penalty(coefficient, value, scale)
  return recipe._replace(penalties=(*recipe.penalties, penalty))


def entropy_bonus(recipe: Recipe, *, coefficient: float) -> Recipe:
  """c_2 H of PPO (arXiv:1707.06347, eq. 9), weighted as the loss is."""
  check_range(-math.inf, coefficient=coefficient)
  return _with_penalty(recipe, coefficient, penalties.negative_entropy)


def adaptive_entropy(
  recipe: Recipe, *, target: float, delta: float = 0.005, highest: float = 1.0
) -> Recipe:
  """An entropy bonus that is switched on below a target.

  Skywork-OR1 (arXiv:2505.22312): the coefficient starts at 0, rises by delta
  after a rollout batch whose mean entropy lies below the target (0.2 there)
  and falls by it after one above, in which it is not applied either. Deviation:
  it is bounded by 0 and `highest`, as in TRL.

  Args:
    recipe: any.
    target: in nats per token.
    delta: in units of the loss per nat.
    highest: bound of the coefficient.

  Returns:
    A recipe with one more penalty and one more memory.
  """
  check_range(target=target, delta=delta, highest=highest)

  def mean_entropy(rollouts):
    return masked.mean(rollouts.entropy, rollouts.loss_mask, axis=None)

  def scale(rollouts, advantage):
    coefficient = rollouts.memory["entropy_coefficient"]
    applied = coefficient * (mean_entropy(rollouts) <= target)
    return jnp.broadcast_to(applied, advantage.shape)

  def update(coefficient, rewards, rollouts):
    step = jnp.where(mean_entropy(rollouts) < target, delta, -delta).squeeze()
    step = jnp.where(rollouts.loss_mask.any(), step, 0.0)
    return jnp.clip(coefficient + step, 0.0, highest)

  memory = Memory("entropy_coefficient", jnp.zeros(()), update)
  recipe = _with_penalty(recipe, 1.0, penalties.negative_entropy, scale)
  return recipe._replace(memories=(*recipe.memories, memory))


def dual_clip(recipe: Recipe, *, ratio_cap: float = 3.0) -> Recipe:
  """Caps the ratio of bad tokens (arXiv:1912.09729); INTELLECT-2 has 4."""
  clip = recipe.surrogate
  if getattr(clip, "func", None) is not surrogates.clipped_surrogate:
    raise ValueError("dual_clip needs a recipe with PPO's clip.")
  check_range(1 + clip.keywords["eps_high"], ratio_cap=ratio_cap)
  return recipe._replace(surrogate=partial(clip, ratio_cap=ratio_cap))


def clamped_log_ratio(recipe: Recipe, *, limit: float = 20.0) -> Recipe:
  """Bounds log-ratios, in nats; 20 is that of verl and OpenRLHF."""
  check_range(1e-6, limit=limit)
  clamped = partial(ratios.clamped, recipe.log_ratio, limit=limit)
  return recipe._replace(log_ratio=clamped)


def off_policy_mask(recipe: Recipe, *, threshold: float) -> Recipe:
  """Drops bad completions that the policy has left (arXiv:2512.02556).

  Deviation: tokens whose advantage another piece has set to zero do not count
  in the completion's mean drift.
  """
  if recipe.log_ratio is not ratios.token_log_ratio:
    raise ValueError("off_policy_mask needs a recipe with token ratios.")
  masking = partial(surrogates.without_off_policy_rows, recipe.surrogate)
  return recipe._replace(surrogate=partial(masking, threshold=threshold))
