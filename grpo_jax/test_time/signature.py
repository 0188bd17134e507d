"""The one signature of all strategies, and the values that it is made of.

A strategy is a function

    strategy(generator, verifier, questions, budget, key) -> Outcome

of one batch of questions; what else it takes is bound with `functools.partial`.
Its samples are a function of the key, the questions' ids and the sample's
number alone: eight samples are the first of sixty-four, in any batch.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from grpo_jax.data.tokenizer import Tokenizer, pad_rows
from grpo_jax.models.config import ModelConfig
from grpo_jax.sampling.budgets import UNLIMITED, ThinkingRule
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.test_time.cost import Cost
from grpo_jax.test_time.selection import NOBODY, Selection

# A completion's text -> what votes count; None without an answer.
ReadAnswer = Callable[[str], Hashable | None]


class Generator(NamedTuple):
  """A model that continues prompts.

  Attributes:
    params: of the model.
    config: of the model.
    tokenizer: of prompts and completions.
    options: of sampling, with the tokens that a completion may have.
    read_answer: of a completion's text. It does not know the right answer.
    thinking: how thinking is ended or made to go on; None for a model, or a
      tokenizer, without `<think>`.
  """

  params: dict
  config: ModelConfig
  tokenizer: Tokenizer
  options: SamplingOptions
  read_answer: ReadAnswer
  thinking: ThinkingRule | None = None


class Questions(NamedTuple):
  """Q questions, encoded.

  Attributes:
    ids: of each, by which its random numbers are drawn.
    prompts: what completions continue.
    tokens: of the prompts, right-padded.
    lengths: tokens of each prompt.
  """

  ids: Int[np.ndarray, " Q"]
  prompts: tuple[str, ...]
  tokens: Int[np.ndarray, "Q P"]
  lengths: Int[np.ndarray, " Q"]


class Budget(NamedTuple):
  """What a strategy may spend on a question; it never exceeds it.

  Attributes:
    samples: completions, N.
    most_thinking: tokens of a completion's thinking, or UNLIMITED.
    least_thinking: tokens before which thinking is made to go on.
    waits: how many ends of the thinking are not accepted.
  """

  samples: int
  most_thinking: int = UNLIMITED
  least_thinking: int = 0
  waits: int = 0

  @property
  def limits_thinking(self) -> bool:
    return self[1:] != (UNLIMITED, 0, 0)


class Candidates(NamedTuple):
  """N completions of each of Q questions, on the host.

  Attributes:
    texts: of the completions.
    answers: as `read_answer` reads them.
    tokens: right-padded, EOS included.
    lengths: tokens of each.
    stop_reason: EOS or LENGTH.
    logp: of each token under the sampling distribution, in nats; 0 if forced.
    forced: tokens that a thinking budget put in.
  """

  texts: list[list[str]]
  answers: list[list[Hashable | None]]
  tokens: Int[np.ndarray, "Q N T"]
  lengths: Int[np.ndarray, "Q N"]
  stop_reason: Int[np.ndarray, "Q N"]
  logp: Float[np.ndarray, "Q N T"]
  forced: Bool[np.ndarray, "Q N T"]


# Scores every candidate, and tells what that took.
Verifier = Callable[
  [Questions, Candidates], tuple[Float[np.ndarray, "Q N"], Cost]
]


class Outcome(NamedTuple):
  """What a strategy answers.

  Attributes:
    selections: the choice among each question's candidates.
    candidates: that it chose from.
    cost: of all that was done, for each question.
  """

  selections: list[Selection]
  candidates: Candidates
  cost: Cost

  @property
  def answers(self) -> list[Hashable | None]:
    """The chosen candidates' answers; None where nobody was chosen."""
    return [
      None if selection.index == NOBODY else answers[selection.index]
      for selection, answers in zip(
        self.selections, self.candidates.answers, strict=True
      )
    ]


def encode_questions(
  tokenizer: Tokenizer,
  ids: Sequence[int] | Int[np.ndarray, " Q"],
  prompts: Sequence[str],
  *,
  max_prompt_tokens: int,
) -> Questions:
  """Questions as a strategy takes them.

  Args:
    tokenizer: of the generator.
    ids: one per question, the same whichever batch it is in.
    prompts: their texts.
    max_prompt_tokens: P, the width of the batch.

  Raises:
    ValueError: a prompt is empty or does not fit.
  """
  rows = [tokenizer.encode(prompt) for prompt in prompts]
  tokens, lengths = pad_rows(rows, max_prompt_tokens)
  return Questions(np.asarray(ids, np.int32), tuple(prompts), tokens, lengths)
