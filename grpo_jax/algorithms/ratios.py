"""Log-ratios of the policy to the policy that sampled."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def token_log_ratio(
  logp: Float[Array, "N T"],
  old_logp: Float[Array, "N T"],
  loss_mask: Bool[Array, "N T"],
) -> Float[Array, "N T"]:
  """Log r_t = log pi(o_t) - log pi_old(o_t), in nats; 0 where masked."""
  return jnp.where(loss_mask, logp - old_logp, 0.0)
