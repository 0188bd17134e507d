"""A user's variant: the group's median as the baseline, everything else DAPO.

--config.recipe.name=experiments.variants.median_baseline:median_baseline
"""

import jax.numpy as jnp

from grpo_jax.algorithms import recipes


def median_advantages(rewards, rollouts):
  """A_g = r_g - median r: one lucky completion does not move the baseline."""
  baseline = jnp.median(rewards, axis=-1, keepdims=True)
  return jnp.where(rollouts.sample_mask, rewards - baseline, 0.0)


def median_baseline(*, length_budget: int, eps_high: float = 0.28):
  """DAPO (arXiv:2503.14476) with the median in place of mean and std."""
  return recipes.dapo(length_budget=length_budget, eps_high=eps_high)._replace(
    advantages=median_advantages
  )
