"""Strategies that choose among independent completions.

Each has the signature of `grpo_jax.test_time.signature`. A thinking budget
applies to any of them: majority of completions of bounded thinking is
"parallel thinking" (arXiv:2506.04210).
"""

import dataclasses
import time
from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Float, Shaped

from grpo_jax.test_time.cost import no_cost
from grpo_jax.test_time.generator import sample
from grpo_jax.test_time.selection import (
  Selection,
  best_of_n,
  expected_accuracy,
  majority,
  vote,
)
from grpo_jax.test_time.signature import (
  Budget,
  Candidates,
  Generator,
  Outcome,
  Questions,
  Verifier,
)


def greedy(
  generator: Generator,
  verifier: Verifier | None,
  questions: Questions,
  budget: Budget,
  key: Array,
) -> Outcome:
  """The completion of the likeliest tokens: what no sampling attains.

  Args:
    generator: whose temperature is taken to be 0.
    verifier: is not asked.
    questions: a batch.
    budget: of thinking; one sample is all that is drawn.
    key: is not used.
  """
  options = dataclasses.replace(generator.options, temperature=0.0)
  candidates, cost = sample(
    generator._replace(options=options),
    questions,
    budget._replace(samples=1),
    key,
  )
  only = [best_of_n(np.zeros(1)) for _ in questions.ids]
  return Outcome(only, candidates, cost)


def majority_vote(
  generator: Generator,
  verifier: Verifier | None,
  questions: Questions,
  budget: Budget,
  key: Array,
) -> Outcome:
  """The answer that most samples give (arXiv:2203.11171).

  The baseline that a verifier, at its price, must beat; it asks none.
  """
  candidates, cost = sample(generator, questions, budget, key)
  return Outcome([majority(a) for a in candidates.answers], candidates, cost)


def best_of(
  generator: Generator,
  verifier: Verifier | None,
  questions: Questions,
  budget: Budget,
  key: Array,
  *,
  combine: str,
) -> Outcome:
  """Best-of-N: the sample, or the answer, that the verifier prefers.

  Args:
    generator: draws the samples.
    verifier: scores them; probabilities, if answers are voted for.
    questions: a batch.
    budget: N, and what may be thought.
    key: of the samples.
    combine: `none` takes the sample of the highest score; `sum` and `mean` the
      answer of the highest total or mean score.

  Raises:
    ValueError: there is no verifier, or `combine` is unknown.
  """
  if verifier is None:
    raise ValueError("Best-of-N needs a verifier; without one, vote.")
  candidates, cost = sample(generator, questions, budget, key)
  scores, verifying = verifier(questions, candidates)
  selections = choose(candidates, scores, combine=combine)
  return Outcome(selections, candidates, cost + verifying)


def choose(
  candidates: Candidates, scores: Float[np.ndarray, "Q N"], *, combine: str
) -> list[Selection]:
  """The selection of each question by its candidates' scores."""
  if combine == "none":
    return [best_of_n(own) for own in scores]
  return [
    vote(answers, weights=own, combine=combine)
    for answers, own in zip(candidates.answers, scores, strict=True)
  ]


def text_verifier(score: Callable[[int, str], float]) -> Verifier:
  """A verifier by a function of (question id, text), such as a unit test.

  Each completion is one judge call; nothing runs on the device.
  """

  def verify(questions, candidates):
    start = time.perf_counter()
    Q, N = candidates.lengths.shape
    scores = np.array(
      [
        [score(int(i), text) for text in texts]
        for i, texts in zip(questions.ids, candidates.texts, strict=True)
      ],
      np.float64,
    )
    cost = no_cost(Q).replace(
      judge_calls=np.full(Q, float(N)),
      wall_s=np.full(Q, (time.perf_counter() - start) / Q),
    )
    return scores, cost

  return verify


def accuracy_of(
  outcome: Outcome, right: Shaped[np.ndarray, "Q N"]
) -> Float[np.ndarray, " Q"]:
  """Each question's chance of a right answer, ties of the selection shared.

  Args:
    outcome: of a strategy.
    right: of each candidate: 1 if it is right.
  """
  return np.array(
    [
      expected_accuracy(selection, own)
      for selection, own in zip(outcome.selections, right, strict=True)
    ]
  )
