"""What happens to rewards and groups before advantages are taken."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.algorithms.advantages import tied


def soft_overlong_penalty(
  lengths: Int[Array, "P G"], *, max_tokens: int, buffer_tokens: int
) -> Float[Array, "P G"]:
  """0 up to L_max - L_cache, then a ramp to -1 at L_max: DAPO eq. 13.

  arXiv:2503.14476, where L_max = 20480 and L_cache = 4096. Added to the
  reward. It stays at -1 above L_max, as in the paper (verl goes on falling).

  Args:
    lengths: of the completions, in tokens.
    max_tokens: L_max.
    buffer_tokens: L_cache, the length of the ramp; 0 makes it a step.

  Returns:
    Between -1 and 0, in reward units.
  """
  over = lengths - (max_tokens - buffer_tokens)
  if buffer_tokens == 0:
    return jnp.where(over > 0, -1.0, 0.0)
  return -jnp.clip(over / buffer_tokens, 0.0, 1.0)


def mixed_accuracy_groups(
  accuracy: Float[Array, "P G"], sample_mask: Bool[Array, "P G"]
) -> Bool[Array, " P"]:
  """Groups that are neither all right nor all wrong: 0 < #correct < G.

  The dynamic sampling of DAPO (arXiv:2503.14476). It looks at accuracy, never
  at shaped rewards: a length penalty would spread an all-right group.

  Args:
    accuracy: 1 for a right answer, before any shaping.
    sample_mask: completions that count.

  Returns:
    True for groups that carry a signal.
  """
  return ~tied(accuracy, sample_mask)
