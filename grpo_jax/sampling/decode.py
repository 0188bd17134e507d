"""Prefill, fork, decode: sampling on an explicit state.

A `DecodeState` is a pytree. A prompt is prefilled once, `fork` copies its row
for each completion, `decode` continues all rows.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.models import decoder
from grpo_jax.models.config import ModelConfig
from grpo_jax.sampling.filters import filtered_log_probs
from grpo_jax.types import EOS, LENGTH, RUNNING


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
  """How tokens are drawn.

  Attributes:
    max_completion_tokens: T; a completion that reaches it without EOS is cut.
    temperature: divides the logits; 0 is greedy.
    top_k: keeps the k most likely tokens; 0 keeps all.
    top_p: keeps the most likely tokens up to this mass; 1 keeps all.
    stop_ids: token ids that end a completion (and belong to it).
  """

  max_completion_tokens: int
  temperature: float
  top_k: int
  top_p: float
  stop_ids: tuple[int, ...]

  def __post_init__(self):
    if self.max_completion_tokens < 1:
      raise ValueError("max_completion_tokens must be at least 1.")
    if self.temperature < 0:
      raise ValueError("temperature must not be negative.")
    if self.top_k < 0:
      raise ValueError("top_k must not be negative (0 keeps every token).")
    if not 0 < self.top_p <= 1:
      raise ValueError("top_p must lie in (0, 1] (1 keeps every token).")
    if not self.stop_ids:
      raise ValueError("stop_ids is empty: no completion could ever end.")


@chex.dataclass(frozen=True)
class DecodeState:
  """Rows in the middle of being sampled.

  Attributes:
    cache: keys and values of everything before the next token.
    hidden: the last token's hidden state, which predicts the next one.
    prompt_lengths: tokens before the completion.
    keys: one random key per row, of that completion alone; None before
      `fork` gives them.
    tokens: sampled so far, zeros after.
    logp: log-probability of each under the sampling distribution, in nats.
    lengths: tokens sampled so far.
    stop_reason: RUNNING, EOS or LENGTH.
    memory: what a forcing rule remembers of each row; () without one.
  """

  cache: decoder.Cache
  hidden: Float[Array, "B D"]
  prompt_lengths: Int[Array, " B"]
  keys: Array | None
  tokens: Int[Array, "B T"]
  logp: Float[Array, "B T"]
  lengths: Int[Array, " B"]
  stop_reason: Int[Array, " B"]
  memory: Any = ()


def prefill(
  params: dict,
  config: ModelConfig,
  prompt_tokens: Int[Array, "B Q"],
  prompt_lengths: Int[Array, " B"],
  *,
  max_completion_tokens: int,
) -> DecodeState:
  """Runs the prompts once, with room in the cache for their completions.

  Args:
    params: of the model.
    config: of the model.
    prompt_tokens: right-padded; the padding is never seen.
    prompt_lengths: at least 1 each.
    max_completion_tokens: T.

  Returns:
    A state without random keys (`fork` gives them) and without tokens.
  """
  B, Q = prompt_tokens.shape
  positions = jnp.broadcast_to(jnp.arange(Q), (B, Q))
  hidden, cache = decoder.trunk(
    params, config, prompt_tokens, positions, decoder.causal_mask(positions, Q)
  )
  room = [(0, max_completion_tokens), (0, 0)]  # on the slots, not the channels
  cache = jax.tree.map(
    lambda x: jnp.pad(x, [(0, 0)] * (x.ndim - 2) + room), cache
  )
  last = jnp.take_along_axis(
    hidden, (prompt_lengths - 1)[:, None, None], axis=1
  )
  return DecodeState(
    cache=cache,
    hidden=last[:, 0],
    prompt_lengths=prompt_lengths,
    keys=None,
    tokens=jnp.zeros((B, max_completion_tokens), jnp.int32),
    logp=jnp.zeros((B, max_completion_tokens), jnp.float32),
    lengths=jnp.zeros((B,), jnp.int32),
    stop_reason=jnp.full((B,), RUNNING, jnp.int32),
  )


def fork(
  state: DecodeState, parents: Int[Array, " B2"], keys: Array
) -> DecodeState:
  """Row i of the result continues row parents[i] with its own key."""
  cache = jax.tree.map(  # rows are axis 0, or axis 1 of stacked layers
    lambda x: jnp.take(x, parents, axis=x.ndim - 4), state.cache
  )
  return state.replace(
    cache=cache,
    keys=keys,
    hidden=state.hidden[parents],
    prompt_lengths=state.prompt_lengths[parents],
    tokens=state.tokens[parents],
    logp=state.logp[parents],
    lengths=state.lengths[parents],
    stop_reason=state.stop_reason[parents],
    memory=jax.tree.map(lambda x: x[parents], state.memory),
  )


def decode(
  params: dict,
  config: ModelConfig,
  state: DecodeState,
  options: SamplingOptions,
  *,
  steps: int,
  force: Callable | None = None,
) -> DecodeState:
  """Samples up to `steps` more tokens per row; ends early when all stopped.

  The key of a token is its row's key folded with its position, so that a
  completion depends on nothing but its prompt and its key.

  Args:
    params: of the model.
    config: of the model.
    state: from `fork`, or from an earlier call.
    options: of sampling.
    steps: at most so many tokens more.
    force: (state, sampled tokens) -> (tokens, which of them it put in the
      place of sampled ones, memory); see `sampling.budgets`. The
      log-probability of a forced token is 0.

  Returns:
    The state after them; rows that had stopped are as they were.
  """

  def unfinished(carry):
    step, state = carry
    return (step < steps) & jnp.any(state.stop_reason == RUNNING)

  def advance(carry):
    step, state = carry
    return step + 1, _sample_one(params, config, state, options, force)

  return jax.lax.while_loop(unfinished, advance, (0, state))[1]


def _sample_one(params, config, state, options, force) -> DecodeState:
  active = state.stop_reason == RUNNING
  log_probs = filtered_log_probs(
    decoder.unembed(params, config, state.hidden),
    temperature=options.temperature,
    top_k=options.top_k,
    top_p=options.top_p,
  )
  keys = jax.vmap(jax.random.fold_in)(state.keys, state.lengths)
  token = jax.vmap(jax.random.categorical)(keys, log_probs).astype(jnp.int32)
  logp = jnp.take_along_axis(log_probs, token[:, None], axis=-1)[:, 0]
  memory = state.memory
  if force is not None:
    token, forced, memory = force(state, token)
    logp = jnp.where(forced, 0.0, logp)

  rows, at = jnp.arange(token.shape[0]), state.lengths
  lengths = state.lengths + active
  stopped = jnp.isin(token, jnp.asarray(options.stop_ids))
  full = lengths >= options.max_completion_tokens
  reason = jnp.where(stopped, EOS, jnp.where(full, LENGTH, RUNNING))

  # A row that has stopped goes through the model like the others, and leaves
  # nothing but a slot behind its last token, which nobody reads.
  slots = jax.tree.leaves(state.cache)[0].shape[-2]
  position = jnp.minimum(state.prompt_lengths + at, slots - 1)[:, None]
  hidden, cache = decoder.trunk(
    params,
    config,
    token[:, None],
    position,
    decoder.causal_mask(position, slots),
    state.cache,
  )
  return state.replace(
    cache=cache,
    hidden=jnp.where(active[:, None], hidden[:, 0], state.hidden),
    tokens=state.tokens.at[rows, at].add(
      jnp.where(active, token, 0), mode="drop"
    ),
    logp=state.logp.at[rows, at].add(jnp.where(active, logp, 0.0), mode="drop"),
    lengths=lengths,
    stop_reason=jnp.where(active, reason, state.stop_reason),
    memory=memory,
  )
