"""Search by steps, guided by a scorer of partial solutions.

Beam search, diverse verifier tree search, lookahead (Snell et al.,
arXiv:2408.03314) and REBASE (arXiv:2408.00724) are one loop: a step of each
row, their scores, and a rule that says which rows have how many children. All
questions are searched together; a row that has finished waits.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.sampling import decode
from grpo_jax.sampling.decode import DecodeState
from grpo_jax.test_time.branching import Placement, place
from grpo_jax.test_time.generator import (
  begin,
  decoded,
  read_candidates,
  row_bytes,
)
from grpo_jax.test_time.search_cost import Journal
from grpo_jax.test_time.selection import aggregate_steps
from grpo_jax.test_time.signature import Budget, Generator, Outcome, Questions
from grpo_jax.test_time.step_scorers import StepScorer
from grpo_jax.test_time.strategies import choose
from grpo_jax.types import RUNNING

_CHILDREN = 2**30  # folded into a row's key; beyond any position of a token


class Steps(NamedTuple):
  """What a step of a solution is.

  Attributes:
    delimiter_ids: tokens that end a step, and belong to it (`delimiter_ids`).
    max_step_tokens: after which a step ends anyway.
    max_steps: of a solution; the last one runs to its end.
  """

  delimiter_ids: tuple[int, ...]
  max_step_tokens: int
  max_steps: int


def delimiter_ids(tokenizer: Tokenizer, delimiter: str) -> tuple[int, ...]:
  """All tokens whose text holds the delimiter: of ";" also ");" and ";;".

  Raises:
    ValueError: there is none, so no step would ever end.
  """
  found = tuple(
    i
    for i in range(tokenizer.vocab_size)
    if i not in tokenizer.stop_ids and delimiter in tokenizer.decode([i])
  )
  if not found:
    raise ValueError(f"No token of the tokenizer holds {delimiter!r}.")
  return found


def search(
  generator: Generator,
  verifier: StepScorer | None,
  questions: Questions,
  budget: Budget,
  key: Array,
  *,
  steps: Steps,
  children: Callable,
  rows_per_tree: int | None,
  lookahead: int,
  aggregate: str,
  combine: str,
) -> Outcome:
  """Searches trees of steps; returns N finished candidates of each question.

  - Beam search of width M: `children=partial(beam_children, branching=M)`.
  - Diverse verifier tree search: the same with `rows_per_tree=M`: N / M trees,
    each of which keeps its best row.
  - Lookahead: the same with `lookahead` above 0.
  - REBASE: `children=partial(rebase_children, temperature=0.2)`.

  With M = 1 it is best-of-N of `sample`'s completions, token for token.

  Args:
    generator: samples the steps.
    verifier: scores solutions after each of them, and chooses in the end.
    questions: a batch.
    budget: N rows, and what may be thought.
    key: a row's first child goes on with its random numbers, others get new
      ones.
    steps: where a step ends.
    children: (scores [R], running [R]) -> how many children each row has.
    rows_per_tree: R; divides N; None for one tree per question.
    lookahead: steps that are decoded greedily and thrown away, so that a row
      is pruned by the score at their end.
    aggregate: how a row's step scores become one (`aggregate_steps`).
    combine: how the candidates' scores choose (`choose`).

  Raises:
    ValueError: there is no verifier, or R does not divide N.
  """
  if verifier is None:
    raise ValueError("A search needs a verifier of partial solutions.")
  rows = budget.samples if rows_per_tree is None else rows_per_tree
  if rows < 1 or budget.samples % rows:
    raise ValueError(
      f"{budget.samples} samples cannot be shared out to trees of {rows}."
    )
  start, Q = time.perf_counter(), len(questions.ids)
  state = begin(generator, questions, budget, key)
  state, journal = _explore(
    generator,
    verifier,
    questions,
    budget,
    state,
    steps=steps,
    place_rows=functools.partial(_place_trees, rows=rows, children=children),
    lookahead=lookahead,
    aggregate=aggregate,
  )
  candidates = read_candidates(generator, state, Q)
  scores = aggregate_steps(*journal.step_scores(), how=aggregate)
  held = row_bytes(generator, questions) * (2 if lookahead else 1)
  held += verifier.bytes_per_row(questions, state.tokens.shape[1])
  return Outcome(
    choose(candidates, scores.reshape(Q, -1), combine=combine),
    candidates,
    journal.cost().replace(
      wall_s=np.full(Q, (time.perf_counter() - start) / Q),
      peak_cache_bytes=np.full(Q, float(budget.samples * held)),
    ),
  )


def _explore(
  generator,
  verifier,
  questions,
  budget,
  state,
  *,
  steps,
  place_rows,
  lookahead,
  aggregate,
) -> tuple[DecodeState, Journal]:
  """Finished rows, and what happened on the way."""
  memory, cost = verifier.begin(
    questions, budget.samples, state.tokens.shape[1]
  )
  journal = Journal(generator, questions, budget.samples, cost)
  for number in range(steps.max_steps):
    final = number == steps.max_steps - 1
    state = _one_step(generator, state, budget, steps, final=final)
    new = journal.generated(state)
    scores, memory, cost = verifier.score(memory, questions, new)
    journal.scored(scores, cost)
    running = np.asarray(state.stop_reason) == RUNNING
    if final or not running.any():
      break
    ranked = journal.ranking(aggregate)
    if lookahead:
      ahead = _look_ahead(generator, state, budget, steps, lookahead)
      beyond = journal.looked_ahead(ahead)
      scores, _, cost = verifier.score(memory, questions, beyond)
      ranked = journal.ranking(aggregate, scores, cost)
    placed = place_rows(ranked, running)
    state = _branch(state, *placed, number)
    memory = verifier.fork(memory, placed.parents)
    journal.branched(placed.parents)
  return state, journal


def _one_step(generator, state, budget, steps, *, final) -> DecodeState:
  if final:
    return decoded(generator, state, budget)
  return decoded(
    generator,
    state,
    budget,
    steps=steps.max_step_tokens,
    pause_ids=steps.delimiter_ids,
  )


def _look_ahead(generator, state, budget, steps, count) -> DecodeState:
  greedy = dataclasses.replace(generator.options, temperature=0.0)
  for _ in range(count):
    state = _one_step(
      generator._replace(options=greedy), state, budget, steps, final=False
    )
  return state


def _place_trees(scores, running, *, rows: int, children) -> Placement:
  """Parents and children of all trees, by rows of the whole batch."""
  trees = zip(scores.reshape(-1, rows), running.reshape(-1, rows), strict=True)
  placed = [place(children(s, alive), alive) for s, alive in trees]
  return Placement(
    np.concatenate([p.parents + i * rows for i, p in enumerate(placed)]),
    np.concatenate([p.child for p in placed]),
  )


@jax.jit
def _branch(state: DecodeState, parents, child, number) -> DecodeState:
  def own_key(key, child):
    fresh = jax.random.fold_in(
      jax.random.fold_in(jax.random.fold_in(key, _CHILDREN), number), child
    )
    return jax.lax.select(child == 0, key, fresh)

  keys = jax.vmap(own_key)(state.keys[parents], child)
  return decode.fork(state, parents, keys)
