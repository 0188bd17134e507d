"""The distribution that tokens are sampled from."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def filtered_log_probs(
  logits: Float[Array, "*B V"],
  *,
  temperature: float,
  top_k: int,
  top_p: float,
) -> Float[Array, "*B V"]:
  """Log p after temperature, top-k and top-p (nucleus, arXiv:1904.09751).

  Args:
    logits: of the next token.
    temperature: divides the logits; 0 puts all mass on the largest (ties
      broken by the lowest id).
    top_k: keeps the k most likely tokens (and ties with the k-th); 0 keeps all.
    top_p: keeps the smallest set of most likely tokens, at temperature, whose
      mass reaches p; the most likely token is always kept; 1 keeps all.

  Returns:
    Normalised log-probabilities; -inf where a token was filtered out.
  """
  if temperature == 0.0:
    best = jnp.argmax(logits, axis=-1, keepdims=True)
    chosen = jnp.arange(logits.shape[-1]) == best
    return jnp.where(chosen, 0.0, -jnp.inf)
  logits = logits.astype(jnp.float32) / temperature
  if 0 < top_k < logits.shape[-1]:
    kth = jax.lax.top_k(logits, top_k)[0][..., -1:]
    logits = jnp.where(logits >= kth, logits, -jnp.inf)
  if top_p < 1.0:
    descending = -jnp.sort(-logits, axis=-1)
    probs = jax.nn.softmax(descending)
    kept = jnp.cumsum(probs, axis=-1) - probs < top_p  # mass before the token
    least = jnp.min(
      jnp.where(kept, descending, jnp.inf), axis=-1, keepdims=True
    )
    logits = jnp.where(logits >= least, logits, -jnp.inf)
  return jax.nn.log_softmax(logits)
