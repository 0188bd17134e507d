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

_PADDING = -1  # segment of a prompt's padding, which no other token sees


def completion_rows(
  prompt_tokens: Int[Array, "N Q"],
  prompt_lengths: Int[Array, " N"],
  tokens: Int[Array, "N T"],
  *,
  completions_per_row: int = 1,
) -> Rows:
  """Rows of one prompt and K of its completions: p p 0 a a a b b 0 for K = 2.

  The prompt goes through the model once for all completions of a row, which
  see it and themselves; each continues the prompt's positions.

  Args:
    prompt_tokens: of each completion, right-padded.
    prompt_lengths: tokens of each.
    tokens: completions; K in turn have the same prompt.
    completions_per_row: K; divides N.
  """
  K = completions_per_row
  (N, Q), T = prompt_tokens.shape, tokens.shape[1]
  B, S = N // K, Q + K * T
  lengths = prompt_lengths[::K, None]
  in_prompt = jnp.arange(Q) < lengths
  segments = jnp.broadcast_to(1 + jnp.arange(K)[:, None], (B, K, T))
  positions = jnp.broadcast_to(lengths[..., None] + jnp.arange(T), (B, K, T))
  row = jnp.arange(N) // K
  start = row * S + Q + jnp.arange(N) % K * T
  places = start[:, None] + jnp.arange(T)
  last = row * S + prompt_lengths - 1  # of the prompt
  return Rows(
    tokens=jnp.concatenate(
      [prompt_tokens[::K], tokens.reshape(B, K * T)], axis=1
    ),
    segments=jnp.concatenate(
      [jnp.where(in_prompt, 0, _PADDING), segments.reshape(B, -1)], axis=1
    ),
    prompts=jnp.concatenate(
      [jnp.where(in_prompt, 0, _PADDING), jnp.zeros((B, K * T), int)], axis=1
    ),
    positions=jnp.concatenate(
      [jnp.broadcast_to(jnp.arange(Q), (B, Q)), positions.reshape(B, -1)],
      axis=1,
    ),
    places=places,
    predecessor=jnp.concatenate([last[:, None], places[:, :-1]], axis=1),
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
  mask = decoder.segment_mask(rows.segments, rows.prompts)
  hidden, _ = decoder.trunk(params, config, rows.tokens, rows.positions, mask)
  value, next_value = (
    token_values(critic, config, rows, hidden) if critic else (None, None)
  )
  hidden = hidden.reshape(-1, hidden.shape[-1])[rows.predecessor.reshape(-1)]

  def chunk_scores(hidden, tokens):
    logits = decoder.unembed(params, config, hidden) / temperature
    # Not log_softmax: its array of log-probabilities would be written down.
    log_sum = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
    log_probs = logits - log_sum[:, None]
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
    return chosen - log_sum, entropy

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
