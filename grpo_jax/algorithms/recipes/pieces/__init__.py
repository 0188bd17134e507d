"""What can be added to any recipe: each takes one and returns another.

A config lists them, `recipe.pieces="entropy_bonus(coefficient=0.01)"`; in a
file of your own, `pieces.entropy_bonus(recipes.dapo(...), coefficient=0.01)`.
"""

from grpo_jax.algorithms.recipes.pieces.advantages import (
  clip_cov,
  drop_truncated,
  high_entropy_tokens,
  kl_cov,
  lone_rewards,
  sampler_correction,
)
from grpo_jax.algorithms.recipes.pieces.losses import (
  adaptive_entropy,
  clamped_log_ratio,
  dual_clip,
  entropy_bonus,
  kl_in_reward,
  kl_loss,
  off_policy_mask,
)
