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


def overlong_indicator(
  lengths: Int[Array, "P G"], *, max_tokens: int
) -> Float[Array, "P G"]:
  """-1[l > L_max]: the penalty of popular descriptions of DAPO.

  Equal to `soft_overlong_penalty` but for its ramp.

  Args:
    lengths: of the completions, in tokens.
    max_tokens: L_max.

  Returns:
    -1 or 0, in reward units.
  """
  return jnp.where(lengths > max_tokens, -1.0, 0.0)


def relative_length_reward(
  lengths: Int[Array, "P G"],
  correct: Bool[Array, "P G"],
  sample_mask: Bool[Array, "P G"],
) -> Float[Array, "P G"]:
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
  far = jnp.iinfo(lengths.dtype).max
  shortest = jnp.min(
    jnp.where(sample_mask, lengths, far), axis=-1, keepdims=True
  )
  longest = jnp.max(jnp.where(sample_mask, lengths, 0), axis=-1, keepdims=True)
  spread = longest - shortest
  reward = 0.5 - (lengths - shortest) / jnp.maximum(spread, 1)
  reward = jnp.where(correct, reward, jnp.minimum(reward, 0.0))
  return jnp.where(sample_mask & (spread > 0), reward, 0.0)


def sequence_kl(
  old_logp: Float[Array, "P G T"],
  ref_logp: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
) -> Float[Array, "P G"]:
  """Sum over tokens of k1 = log pi_old - log pi_ref, to subtract as a penalty.

  RLOO (arXiv:2402.14740) has r - beta KL as the reward of a completion.

  Args:
    old_logp: of the policy that sampled, in nats.
    ref_logp: of the reference policy, in nats.
    loss_mask: tokens that the policy chose.

  Returns:
    In nats; may be negative.
  """
  return jnp.sum(jnp.where(loss_mask, old_logp - ref_logp, 0.0), axis=-1)
