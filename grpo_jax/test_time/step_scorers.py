"""Scores of partial solutions: process reward models with a cache of theirs.

A scorer is three functions over an explicit memory, so that it is forked with
the solutions that it reads, and reads no token twice.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.models import decoder
from grpo_jax.models.config import ModelConfig
from grpo_jax.sampling import decode
from grpo_jax.test_time.cost import Cost, forward_flops, no_cost
from grpo_jax.test_time.signature import Questions


class Step(NamedTuple):
  """New tokens of R = Q N rows.

  Attributes:
    tokens: of the completions so far.
    start: tokens that were scored before.
    stop: tokens now; equal to `start` for a row that had finished.
  """

  tokens: Int[np.ndarray, "R T"]
  start: Int[np.ndarray, " R"]
  stop: Int[np.ndarray, " R"]


class StepScorer(NamedTuple):
  """How partial solutions are scored.

  Attributes:
    begin: (questions, N, T) -> (memory, cost): N rows for each question.
    score: (memory, questions, step) -> (scores, memory, cost): a score per
      row after its new tokens; meaningless where there are none.
    fork: (memory, parents) -> memory.
    bytes_per_row: of the memory that a row holds.
  """

  begin: Callable[[Questions, int, int], tuple[Any, Cost]]
  score: Callable[
    [Any, Questions, Step], tuple[Float[np.ndarray, " R"], Any, Cost]
  ]
  fork: Callable[[Any, np.ndarray], Any]
  bytes_per_row: Callable[[Questions, int], int]


def text_scorer(
  score: Callable[[int, str], float], tokenizer: Tokenizer
) -> StepScorer:
  """A scorer by a function of (question id, text so far).

  Such as the exact probability of a toy problem, with noise to taste. Each
  text is one judge call.
  """

  def score_step(memory, questions, step):
    Q = len(questions.ids)
    N = len(step.stop) // Q
    new = step.stop > step.start
    scores = np.array(
      [
        score(int(i), tokenizer.decode(tokens[:stop])) if judged else 0.0
        for i, tokens, stop, judged in zip(
          np.repeat(questions.ids, N), step.tokens, step.stop, new, strict=True
        )
      ],
      np.float64,
    )
    calls = new.reshape(Q, N).sum(axis=1).astype(np.float64)
    return scores, memory, no_cost(Q).replace(judge_calls=calls)

  return StepScorer(
    begin=lambda questions, rows, width: ((), no_cost(len(questions.ids))),
    score=score_step,
    fork=lambda memory, parents: memory,
    bytes_per_row=lambda questions, width: 0,
  )


def value_scorer(params: dict, config: ModelConfig, head: dict) -> StepScorer:
  """sigmoid(w h + b) of the last token's hidden state: P(right at the end).

  Args:
    params: of the verifying decoder.
    config: of the same; its vocabulary is the generator's.
    head: `weight` [D] and `bias` [], as `models.critic` has them.
  """

  def begin(questions, rows, width):
    Q, lengths = len(questions.ids), questions.lengths
    cache = _begin(
      params,
      questions.tokens,
      lengths,
      config=config,
      rows=rows,
      width=width,
    )
    cost = no_cost(Q).replace(
      verifier_tokens=lengths.astype(np.float64),
      verifier_flops=forward_flops(config, np.zeros_like(lengths), lengths),
    )
    return cache, cost

  def score(cache, questions, step):
    Q = len(questions.ids)
    prompts = np.repeat(questions.lengths, len(step.stop) // Q)
    width = _power_of_two(int((step.stop - step.start).max(initial=1)))
    values, cache = _score(
      params, head, cache, prompts, step, config=config, width=width
    )
    flops = forward_flops(config, prompts + step.start, prompts + step.stop)
    cost = no_cost(Q).replace(
      verifier_tokens=(step.stop - step.start)
      .reshape(Q, -1)
      .sum(axis=1, dtype=np.float64),
      verifier_flops=flops.reshape(Q, -1).sum(axis=1),
    )
    return np.asarray(values, np.float64), cache, cost

  def bytes_per_row(questions, width):
    channels = 2 * config.layers * config.kv_heads * config.head_dim
    slots = questions.tokens.shape[1] + width
    return slots * channels * jnp.dtype(config.dtype).itemsize

  return StepScorer(begin, score, _fork, bytes_per_row)


@functools.partial(jax.jit, static_argnames=("config", "rows", "width"))
def _begin(params, tokens, lengths, *, config, rows, width):
  state = decode.prefill(
    params, config, tokens, lengths, max_completion_tokens=width
  )
  return _fork(state.cache, jnp.repeat(jnp.arange(len(lengths)), rows))


@jax.jit
def _fork(cache, parents):
  return jax.tree.map(lambda x: jnp.take(x, parents, axis=x.ndim - 4), cache)


@functools.partial(jax.jit, static_argnames=("config", "width"))
def _score(params, head, cache, prompts, step, *, config, width):
  # Slots behind a row's last new token get what nobody sees: the next call
  # writes them before it reads them.
  offsets = jnp.arange(width)
  at = step.start[:, None] + offsets
  tokens = jnp.take_along_axis(
    step.tokens, jnp.minimum(at, step.tokens.shape[1] - 1), axis=1
  )
  positions = prompts[:, None] + at
  slots = jax.tree.leaves(cache)[0].shape[-2]
  hidden, cache = decoder.trunk(
    params,
    config,
    tokens,
    positions,
    decoder.causal_mask(positions, slots),
    cache,
  )
  last = jnp.maximum(step.stop - step.start - 1, 0)[:, None, None]
  hidden = jnp.take_along_axis(hidden, last, axis=1)[:, 0]
  logits = hidden.astype(jnp.float32) @ head["weight"] + head["bias"]
  return jax.nn.sigmoid(logits), cache


def _power_of_two(count: int) -> int:
  """Widths that are compiled: few, so that most steps find theirs."""
  return 1 << (count - 1).bit_length()
