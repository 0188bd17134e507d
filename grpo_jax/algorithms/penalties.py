"""Per-token terms beside the surrogate, each with a coefficient."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from grpo_jax.types import TokenScores, TrainBatch


def kl_k3(scores: TokenScores, batch: TrainBatch) -> Float[Array, "N T"]:
  """k3 = exp(d) - d - 1 with d = log pi_ref - log pi, in nats.

  The estimator in GRPO's loss (arXiv:2402.03300). Never negative, and unbiased
  for KL(pi || pi_ref) as a value; as a loss its expected gradient is that of
  the other direction, KL(pi_ref || pi).
  """
  difference = jnp.where(batch.loss_mask, batch.ref_logp - scores.logp, 0.0)
  return jnp.expm1(difference) - difference
