"""Terms of the loss or of the reward, and bounds of the ratio."""

import math
from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import corrections, penalties, ratios
from grpo_jax.algorithms.recipes.recipe import (
  Memory,
  Penalty,
  Recipe,
  check_range,
  kept_tokens,
  kl_penalty,
)
from grpo_jax.algorithms.shaping import sequence_kl
from grpo_jax.algorithms.surrogates import (
  clipped_surrogate,
  without_off_policy_rows,
)


def kl_loss(
  recipe: Recipe,
  *,
  coefficient: float,
  estimator: Literal["k2", "k3", "weighted_k3"],
) -> Recipe:
  """KL towards the reference as a loss; see `recipes.kl_penalty`."""
  _refuse_a_second_kl(recipe)
  return recipe._replace(
    penalties=recipe.penalties + kl_penalty(coefficient, estimator),
    needs_reference=recipe.needs_reference or coefficient > 0,
  )


def kl_in_reward(recipe: Recipe, *, coefficient: float) -> Recipe:
  """The completion's k1 towards the reference, subtracted from its reward.

  Without effect on recipes that do not look at the reward: gdpo, grpo_process,
  pass_at_k, maxrl and supervised.
  """
  _refuse_a_second_kl(recipe)
  check_range(kl_coefficient=coefficient)

  def shape_rewards(rollouts):
    return recipe.shape_rewards(rollouts) - coefficient * sequence_kl(
      rollouts.old_logp, rollouts.ref_logp, kept_tokens(rollouts)
    )

  return recipe._replace(shape_rewards=shape_rewards, needs_reference=True)


def _refuse_a_second_kl(recipe):
  if recipe.needs_reference:
    raise ValueError(
      "the recipe has a KL towards the reference already; set its own"
      " kl_coefficient, or that to 0."
    )


def entropy_bonus(recipe: Recipe, *, coefficient: float) -> Recipe:
  """c_2 H of PPO (arXiv:1707.06347, eq. 9), weighted as the loss is."""
  check_range(-math.inf, coefficient=coefficient)
  bonus = Penalty(coefficient, penalties.negative_entropy)
  return recipe._replace(penalties=(*recipe.penalties, bonus))


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
    mask = kept_tokens(rollouts)
    total = jnp.sum(jnp.where(mask, rollouts.entropy, 0.0))
    return total / jnp.maximum(mask.sum(), 1)

  def scale(rollouts, advantage):
    low = mean_entropy(rollouts) <= target
    coefficient = rollouts.memory["entropy_coefficient"]
    return jnp.full_like(advantage, coefficient * low)

  def update(coefficient, rewards, rollouts):
    del rewards
    step = jnp.where(mean_entropy(rollouts) < target, delta, -delta)
    moved = jnp.clip(coefficient + step, 0.0, highest)
    return jnp.where(kept_tokens(rollouts).any(), moved, coefficient)

  memory = Memory("entropy_coefficient", jnp.zeros(()), update)
  bonus = Penalty(1.0, penalties.negative_entropy, scale)
  return recipe._replace(
    penalties=(*recipe.penalties, bonus), memories=(*recipe.memories, memory)
  )


def dual_clip(recipe: Recipe, *, ratio_cap: float = 3.0) -> Recipe:
  """Caps the ratio of bad tokens (arXiv:1912.09729); INTELLECT-2 has 4."""
  surrogate = recipe.surrogate
  if getattr(surrogate, "func", None) is not clipped_surrogate:
    raise ValueError("dual_clip needs a recipe with PPO's clip.")
  if ratio_cap < 1 + surrogate.keywords["eps_high"]:
    raise ValueError("ratio_cap must be at least 1 + eps_high.")
  return recipe._replace(surrogate=partial(surrogate, ratio_cap=ratio_cap))


def clamped_log_ratio(recipe: Recipe, *, limit: float = 20.0) -> Recipe:
  """Bounds log-ratios, in nats; 20 is that of verl and OpenRLHF."""
  check_range(1e-6, limit=limit)
  return recipe._replace(
    log_ratio=ratios.clamped(recipe.log_ratio, limit=limit)
  )


def off_policy_mask(recipe: Recipe, *, threshold: float) -> Recipe:
  """Drops bad completions that the policy has left (arXiv:2512.02556).

  Deviation: tokens whose advantage another piece has set to zero do not count
  in the completion's mean drift.
  """
  if recipe.log_ratio is not ratios.token_log_ratio:
    raise ValueError("off_policy_mask needs a recipe with token ratios.")
  return recipe._replace(
    surrogate=without_off_policy_rows(recipe.surrogate, threshold=threshold)
  )


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
    mask = kept_tokens(rollouts)
    covariance = corrections.token_covariance(
      rollouts.old_logp, advantage, mask
    )
    largest = corrections.largest_fraction(
      covariance, mask, mask, fraction=fraction
    )
    return largest.astype(advantage.dtype)

  term = Penalty(coefficient, penalties.absolute_log_ratio, chosen)
  return recipe._replace(penalties=(*recipe.penalties, term))
