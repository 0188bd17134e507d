"""The journal of a search: what was generated, scored and thrown away."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from grpo_jax.sampling.decode import DecodeState
from grpo_jax.test_time.cost import (
  Cost,
  forward_flops,
  no_cost,
  prompt_cost,
  unembedding_flops,
)
from grpo_jax.test_time.selection import aggregate_steps
from grpo_jax.test_time.signature import Generator, Questions
from grpo_jax.test_time.step_scorers import Step
from grpo_jax.test_time.thinking import inside_thinking


class Journal:
  """Counts as the search goes on; rows are those of its state."""

  def __init__(
    self, generator: Generator, questions: Questions, rows: int, cost: Cost
  ):
    """Begins after the prompts.

    Args:
      generator: of the tokens.
      questions: Q of them.
      rows: N of each question.
      cost: of the verifier so far.
    """
    prompts = questions.lengths
    self._generator, self._questions = generator, questions
    self._prompts = np.repeat(prompts, rows)
    self._lengths = np.zeros(len(self._prompts), np.int32)
    self._scores: list[np.ndarray] = []  # of each step, of the present rows
    # Whether a row took the step. Parents and children took all so far, and
    # finished rows stay in place, so that branching leaves this as it is.
    self._masks: list[np.ndarray] = []
    self._new: list[np.ndarray] = []  # tokens of each step, of its own rows
    self._parents: list[np.ndarray] = []
    self._cost = cost + prompt_cost(generator.config, prompts)

  def generated(self, state: DecodeState) -> Step:
    """Counts a step of all rows; returns what is new."""
    step = self._count(state)
    self._new.append(step.stop - step.start)
    self._masks.append(step.stop > step.start)
    self._lengths = step.stop
    return step

  def looked_ahead(self, state: DecodeState) -> Step:
    """Counts tokens that are thrown away at once."""
    step = self._count(state)
    self._cost = self._cost + no_cost(len(self._questions.ids)).replace(
      discarded_tokens=self._by_question(step.stop - step.start)
    )
    return step

  def scored(self, scores: np.ndarray, cost: Cost) -> None:
    """Notes the scores of the step that was generated last."""
    self._scores.append(scores)
    self._cost = self._cost + cost

  def ranking(
    self,
    aggregate: str,
    ahead: Float[np.ndarray, " R"] | None = None,
    cost: Cost | None = None,
  ) -> Float[np.ndarray, " R"]:
    """Scores to prune by, the last step's taken from ahead if given.

    Args:
      aggregate: of step scores.
      ahead: scores at the end of the lookahead.
      cost: of those.
    """
    scores, mask = self.step_scores()
    if ahead is not None:
      self._cost = self._cost + cost
      scores[:, -1] = np.where(mask[:, -1], ahead, scores[:, -1])
    return aggregate_steps(scores, mask, how=aggregate)

  def branched(self, parents: Int[np.ndarray, " R"]) -> None:
    """Notes where the rows of the next step come from."""
    self._scores = [scores[parents] for scores in self._scores]
    self._lengths = self._lengths[parents]
    self._parents.append(parents)

  def step_scores(
    self,
  ) -> tuple[Float[np.ndarray, "R S"], Bool[np.ndarray, "R S"]]:
    """Of the present rows, with a mask of the steps that they took."""
    return np.stack(self._scores, axis=1), np.stack(self._masks, axis=1)

  def cost(self) -> Cost:
    """The whole search's; tokens of no candidate are discarded ones."""
    alive = np.arange(len(self._prompts))
    pruned = np.zeros(len(self._prompts))
    for number in reversed(range(len(self._new))):
      dead = np.setdiff1d(np.arange(len(pruned)), alive)
      pruned[dead] += self._new[number][dead]
      if number:
        alive = np.unique(self._parents[number - 1][alive])
    return self._cost + no_cost(len(self._questions.ids)).replace(
      discarded_tokens=self._by_question(pruned),
    )

  def _count(self, state: DecodeState) -> Step:
    tokens, stop = jax.device_get((state.tokens, state.lengths))
    start, Q = self._lengths, len(self._questions.ids)
    at = np.arange(tokens.shape[1])
    new = (start[:, None] <= at) & (at < stop[:, None])
    thinking = inside_thinking(
      self._generator, self._questions, tokens.reshape(Q, -1, tokens.shape[1])
    )
    forced = state.memory.forced if state.memory else np.zeros_like(new)
    config, prompts = self._generator.config, self._prompts
    blocks = forward_flops(config, prompts + start, prompts + stop)
    count = stop - start
    self._cost = self._cost + no_cost(Q).replace(
      generated_tokens=self._by_question(count),
      thinking_tokens=self._by_question(
        (thinking.reshape(new.shape) & new).sum(axis=1)
      ),
      forced_tokens=self._by_question((np.asarray(forced) & new).sum(axis=1)),
      sequential_depth_tokens=count.reshape(Q, -1)
      .max(axis=1)
      .astype(np.float64),
      policy_flops=self._by_question(
        blocks + count * unembedding_flops(config)
      ),
    )
    return Step(tokens, start, stop)

  def _by_question(self, amounts: Any) -> Float[np.ndarray, " Q"]:
    Q = len(self._questions.ids)
    return np.asarray(amounts, np.float64).reshape(Q, -1).sum(axis=1)
