"""Log-probabilities of completion tokens: the one place of the shift by one."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.models import decoder
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.critic import token_values
from grpo_jax.types import Rows, TokenScores

# Logits held at a time, in elements (64 MiB of float32). A scan with
# rematerialisation goes over the rest, so that [rows, S, V] never exists.
_LOGIT_ELEMENTS = 2**24


def completion_rows(
  prompt_tokens: Int[Array, "N Q"],
  prompt_lengths: Int[Array, " N"],
  tokens: Int[Array, "N T"],
) -> Rows:
  """One row per completion: p p p c c c c 0 0, with no gap after the prompt."""
  N, Q = prompt_tokens.shape
  T = tokens.shape[1]
  S = Q + T
  positions = jnp.broadcast_to(jnp.arange(S), (N, S))
  start = prompt_lengths[:, None]
  # Gathers from [prompt | completion]; a row's tail repeats its last token,
  # which no real token sees.
  source = jnp.where(positions < start, positions, positions - start + Q)
  rows = jnp.take_along_axis(
    jnp.concatenate([prompt_tokens, tokens], axis=1),
    jnp.minimum(source, S - 1),
    axis=1,
  )
  predecessor = start - 1 + jnp.arange(T) + S * jnp.arange(N)[:, None]
  return Rows(
    tokens=rows,
    segments=jnp.zeros_like(rows),
    positions=positions,
    predecessor=predecessor,
  )


def score(
  params: dict,
  config: ModelConfig,
  rows: Rows,
  tokens: Int[Array, "N T"],
  *,
  temperature: float,
  critic: dict | tuple = (),
) -> TokenScores:
  """Log-probability and entropy of p(token | before) at a temperature.

  Args:
    params: of the model.
    config: of the model.
    rows: the model's input, from `completion_rows`.
    tokens: the completion tokens that `rows.predecessor` belongs to.
    temperature: divides the logits, as it did when the tokens were sampled.
    critic: parameters of a critic, whose values are wanted too.

  Returns:
    One value per completion token; meaningless where the token is padding.
  """
  mask = decoder.segment_mask(rows.segments)
  hidden, _ = decoder.trunk(params, config, rows.tokens, rows.positions, mask)
  value, next_value = (
    token_values(critic, config, rows, hidden) if critic else (None, None)
  )
  hidden = hidden.reshape(-1, hidden.shape[-1])[rows.predecessor.reshape(-1)]

  def chunk_scores(hidden, tokens):
    logits = decoder.unembed(params, config, hidden) / temperature
    log_probs = jax.nn.log_softmax(logits)
    logp = jnp.take_along_axis(log_probs, tokens[:, None], axis=-1)[:, 0]
    return logp, -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

  chunk = max(1, _LOGIT_ELEMENTS // config.vocab_size)
  logp, entropy = _in_chunks(chunk_scores, hidden, tokens.reshape(-1), chunk)
  return TokenScores(
    logp=logp.reshape(tokens.shape),
    entropy=entropy.reshape(tokens.shape),
    value=value,
    next_value=next_value,
  )


def _in_chunks(
  fn, hidden: Float[Array, "M D"], tokens: Int[Array, " M"], chunk
):
  """fn over chunks of rows, each recomputed in the backward pass."""
  count = tokens.shape[0]
  if count <= chunk:
    return fn(hidden, tokens)
  padding = -count % chunk
  hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(
    -1, chunk, hidden.shape[-1]
  )
  tokens = jnp.pad(tokens, (0, padding)).reshape(-1, chunk)
  logp, entropy = jax.lax.map(
    lambda args: jax.checkpoint(fn)(*args), (hidden, tokens)
  )
  return logp.reshape(-1)[:count], entropy.reshape(-1)[:count]
