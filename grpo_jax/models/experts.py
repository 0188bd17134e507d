"""A mixture of experts that drops no token, as Qwen3-MoE has it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def route(
  logits: Float[Array, "M E"], *, chosen: int, normalise: bool
) -> tuple[Float[Array, "M {chosen}"], Int[Array, "M {chosen}"]]:
  """Weights and indices of each token's most likely experts."""
  weights, experts = jax.lax.top_k(jax.nn.softmax(logits), chosen)
  if normalise:
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
  return weights, experts


def mixture(
  x: Float[Array, "M D"],
  router: Float[Array, "D E"],
  gate: Float[Array, "E D F"],
  up: Float[Array, "E D F"],
  down: Float[Array, "E F D"],
  *,
  chosen: int,
  normalise: bool,
) -> Float[Array, "M D"]:
  """sum_e p_e down_e(silu(gate_e x) * up_e x) over the chosen experts.

  Tokens are sorted by expert, so that each expert is one slice of a ragged
  matrix product, of any length: there is no capacity, and nothing is dropped.

  Args:
    x: tokens.
    router: gives the logits of the experts, in float32.
    gate: of each expert.
    up: of each expert.
    down: of each expert.
    chosen: experts per token.
    normalise: whether the chosen experts' probabilities are made to sum to 1.
  """
  logits = x.astype(jnp.float32) @ router.astype(jnp.float32)
  weights, experts = route(logits, chosen=chosen, normalise=normalise)
  order = jnp.argsort(experts.reshape(-1), stable=True)
  counts = jnp.bincount(experts.reshape(-1), length=router.shape[1])
  sent = x[order // chosen]

  def each(inputs, weight):
    return jax.lax.ragged_dot(inputs, weight, counts)

  out = each(jax.nn.silu(each(sent, gate)) * each(sent, up), down)
  out = out[jnp.argsort(order)].reshape(*experts.shape, -1)
  return jnp.sum(out * weights[..., None].astype(out.dtype), axis=1)
