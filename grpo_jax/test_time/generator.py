"""Independent completions of questions, with what they cost."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from grpo_jax.sampling import decode
from grpo_jax.sampling.budgets import with_budget
from grpo_jax.sampling.decode import DecodeState
from grpo_jax.sampling.generate import completion_keys
from grpo_jax.test_time.cost import (
  Cost,
  forward_flops,
  prompt_cost,
  unembedding_flops,
)
from grpo_jax.test_time.signature import (
  Budget,
  Candidates,
  Generator,
  Questions,
)
from grpo_jax.test_time.thinking import inside_thinking, thinking_opened
from grpo_jax.types import EOS, LENGTH, RUNNING


def sample(
  generator: Generator, questions: Questions, budget: Budget, key: Array
) -> tuple[Candidates, Cost]:
  """N independent completions of each question.

  Args:
    generator: the model and its sampling options.
    questions: Q of them.
    budget: N, and what may be thought.
    key: completion n of question q depends on it, q's id and n.

  Returns:
    The candidates and their cost.

  Raises:
    ValueError: there is no sample to draw, or a limit of thinking for a
      generator that has no rule for it.
  """
  start = time.perf_counter()
  state = decoded(generator, begin(generator, questions, budget, key), budget)
  candidates = read_candidates(generator, state, len(questions.ids))
  Q, N = candidates.lengths.shape
  cost = sampling_cost(generator, questions, candidates)
  return candidates, cost.replace(
    wall_s=np.full(Q, (time.perf_counter() - start) / Q),
    peak_cache_bytes=np.full(Q, float(N * row_bytes(generator, questions))),
  )


def begin(
  generator: Generator, questions: Questions, budget: Budget, key: Array
) -> DecodeState:
  """Rows of Q N completions without tokens, those of a question in turn.

  Raises:
    ValueError: as `sample`.
  """
  if budget.samples < 1:
    raise ValueError("A budget needs at least 1 sample.")
  if budget.limits_thinking and generator.thinking is None:
    raise ValueError(
      "The budget limits thinking, but the generator does not say how: give it"
      " a ThinkingRule (thinking_rule of test_time.thinking makes one)."
    )
  keys = completion_keys(key, jnp.asarray(questions.ids), budget.samples)
  limits = opened = None
  if budget.limits_thinking:
    limits = tuple(np.full(keys.size, limit, np.int32) for limit in budget[1:])
    opened = np.repeat(
      thinking_opened(questions, generator.thinking), budget.samples
    )
  return _begin(
    generator.params,
    questions.tokens,
    questions.lengths,
    keys,
    limits,
    opened,
    config=generator.config,
    width=generator.options.max_completion_tokens,
  )


def decoded(
  generator: Generator,
  state: DecodeState,
  budget: Budget,
  *,
  steps: int | None = None,
  pause_ids: tuple[int, ...] = (),
) -> DecodeState:
  """Rows continued until all have stopped, paused or got so many tokens.

  Args:
    generator: the model and its sampling options.
    state: from `begin`, or from an earlier call.
    budget: the one that `begin` had.
    steps: tokens at most; None for all that a completion may have.
    pause_ids: tokens after which a row waits for the next call.
  """
  options = generator.options
  return _decode(
    generator.params,
    state,
    config=generator.config,
    options=options,
    steps=options.max_completion_tokens if steps is None else steps,
    pause_ids=pause_ids,
    force=generator.thinking if budget.limits_thinking else None,
  )


def read_candidates(
  generator: Generator, state: DecodeState, questions: int
) -> Candidates:
  """Texts and answers of a state's rows, those of a question in turn."""
  host = jax.device_get(state.replace(cache=(), keys=None))
  Q, T = questions, host.tokens.shape[1]
  forced = (
    host.memory.forced if host.memory else np.zeros(host.tokens.shape, bool)
  )
  tokens, lengths = host.tokens.reshape(Q, -1, T), host.lengths.reshape(Q, -1)
  texts = [
    [
      generator.tokenizer.decode(row[:length])
      for row, length in zip(rows, own, strict=True)
    ]
    for rows, own in zip(tokens, lengths, strict=True)
  ]
  return Candidates(
    texts=texts,
    answers=[[generator.read_answer(text) for text in row] for row in texts],
    tokens=tokens,
    lengths=lengths,
    stop_reason=host.stop_reason.reshape(Q, -1),
    logp=host.logp.reshape(Q, -1, T),
    forced=forced.reshape(Q, -1, T),
  )


def sampling_cost(
  generator: Generator, questions: Questions, candidates: Candidates
) -> Cost:
  """Tokens and FLOPs of independent completions, each prompt run once.

  A token that ended the thinking too early, and was replaced, was sampled
  from logits but never run: it is no token here. Seconds and bytes are 0.
  """
  config, prompt = generator.config, questions.lengths
  generated = candidates.lengths.sum(axis=1, dtype=np.float64)
  blocks = forward_flops(
    config, prompt[:, None], prompt[:, None] + candidates.lengths
  )
  there = np.arange(candidates.tokens.shape[2]) < candidates.lengths[..., None]
  thinking = there & inside_thinking(generator, questions, candidates.tokens)
  prefilled = prompt_cost(config, prompt)
  return prefilled.replace(
    generated_tokens=generated,
    thinking_tokens=thinking.sum(axis=(1, 2), dtype=np.float64),
    forced_tokens=candidates.forced.sum(axis=(1, 2), dtype=np.float64),
    sequential_depth_tokens=candidates.lengths.max(axis=1).astype(np.float64),
    policy_flops=prefilled.policy_flops
    + blocks.sum(axis=1)
    + generated * unembedding_flops(config),
  )


def row_bytes(generator: Generator, questions: Questions) -> int:
  """Keys and values that one completion of a question holds."""
  config = generator.config
  slots = questions.tokens.shape[1] + generator.options.max_completion_tokens
  channels = 2 * config.layers * config.kv_heads * config.head_dim
  return slots * channels * jnp.dtype(config.dtype).itemsize


@functools.partial(jax.jit, static_argnames=("config", "width"))
def _begin(params, tokens, lengths, keys, limits, opened, *, config, width):
  Q, N = keys.shape
  state = decode.prefill(
    params, config, tokens, lengths, max_completion_tokens=width
  )
  state = decode.fork(state, jnp.repeat(jnp.arange(Q), N), keys.reshape(-1))
  if limits is None:
    return state
  most, least, waits = limits
  return with_budget(state, most=most, least=least, waits=waits, opened=opened)


@functools.partial(
  jax.jit, static_argnames=("config", "options", "steps", "pause_ids", "force")
)
def _decode(params, state, *, config, options, steps, pause_ids, force):
  pausing = dataclasses.replace(
    options, stop_ids=(*options.stop_ids, *pause_ids)
  )
  state = decode.decode(
    params, config, state, pausing, steps=steps, force=force
  )
  if not pause_ids:
    return state
  # A row that ended on a token which only pauses it has not ended.
  at = jnp.maximum(state.lengths - 1, 0)[:, None]
  last = jnp.take_along_axis(state.tokens, at, axis=1)[:, 0]
  paused = (state.stop_reason == EOS) & ~jnp.isin(
    last, jnp.asarray(options.stop_ids)
  )
  full = state.lengths >= options.max_completion_tokens
  return state.replace(
    stop_reason=jnp.where(
      paused, jnp.where(full, LENGTH, RUNNING), state.stop_reason
    )
  )
