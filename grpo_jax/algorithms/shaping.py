"""What happens to rewards before advantages are taken."""

import jax.numpy as jnp

from grpo_jax.algorithms import masked
from grpo_jax.types import Grid, GridMask, Lengths


def soft_overlong_penalty(
  lengths: Lengths, *, max_tokens: int, buffer_tokens: int
) -> Grid:
  """0 up to L_max - L_cache, then a ramp to -1 at L_max: DAPO eq. 13.

  arXiv:2503.14476, where L_max = 20480 and L_cache = 4096. Added to the
  reward. It stays at -1 above L_max, as in the paper (verl goes on falling).

  Args:
    lengths: of the completions, in tokens.
    max_tokens: L_max.
    buffer_tokens: L_cache, the length of the ramp; 0 makes it the indicator
      of popular descriptions, -1[l > L_max].

  Returns:
    Between -1 and 0, in reward units.
  """
  over = lengths - (max_tokens - buffer_tokens)
  return -jnp.clip(over / max(buffer_tokens, 1), 0.0, 1.0)


def relative_length_reward(
  lengths: Lengths, correct: GridMask, sample_mask: GridMask
) -> Grid:
  """0.5 - (l - min l) / (max l - min l); at most 0 for wrong answers.

  The length reward of Kimi k1.5 (arXiv:2501.12599), which gives no weight for
  it: off at first, then constant.

  Args:
    lengths: l, in tokens; compared within the group.
    correct: completions with the right answer.
    sample_mask: completions that count.

  Returns:
    Between -0.5 and 0.5; 0 where masked and where all lengths of a group are
    the same.
  """
  shortest, longest = masked.extremes(lengths, sample_mask)
  spread = longest - shortest
  reward = 0.5 - (lengths - shortest) / jnp.maximum(spread, 1)
  reward = jnp.where(correct, reward, jnp.minimum(reward, 0.0))
  return jnp.where(sample_mask & (spread > 0), reward, 0.0)
