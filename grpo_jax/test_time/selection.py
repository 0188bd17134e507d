"""Which of a question's candidates is the answer: best-of-N and votes.

N candidates of one question, on the host. Nothing here knows which of them
are right. Ties are decided twice, for two readers: `chances` shares them out
evenly, so that an accuracy computed from it (`expected_accuracy`) depends on
no order; `index` is the first candidate that has a chance, which is what is
shown to a user.
"""

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

NOBODY = -1  # index of the choice where no candidate can be chosen


class Selection(NamedTuple):
  """The choice among one question's candidates.

  Attributes:
    index: the first candidate with a chance, or NOBODY.
    chances: of each candidate to be chosen when ties are broken by lot; sums
      to 1, or to 0 where nobody can be chosen.
  """

  index: int
  chances: Float[np.ndarray, " N"]


def best_of_n(scores: Float[np.ndarray, " N"]) -> Selection:
  """argmax_i s_i.

  Args:
    scores: of each candidate, in any unit; -inf for one that cannot be chosen.

  Returns:
    The best; candidates of the same score have the same chance.

  Raises:
    ValueError: a score is not a number.
  """
  if np.isnan(scores).any():
    raise ValueError("A score of best_of_n is NaN: the scorer is at fault.")
  best = (scores == scores.max(initial=-np.inf)) & (scores > -np.inf)
  return _selection(best / max(best.sum(), 1))


def vote(
  answers: Sequence[Hashable | None],
  *,
  weights: Float[np.ndarray, " N"] | None,
  combine: str,
) -> Selection:
  """argmax_a sum_{i: a_i = a} w_i: self-consistency (arXiv:2203.11171).

  Weighted by a verifier it is the "best-of-N weighted" of Li et al.
  (arXiv:2206.02336) and Snell et al. (arXiv:2408.03314). The mean instead of
  the sum takes no account of how often an answer was given.

  Args:
    answers: what each candidate states, equal where they mean the same
      (`Canonical.key`); None for one without an answer, which has no vote.
    weights: of each vote, not negative; None for a majority vote.
    combine: sum or mean of the votes for an answer.

  Returns:
    Tied answers have the same chance; of an answer's candidates those of the
    highest weight share it.

  Raises:
    ValueError: a weight is negative or no finite number, or `combine` unknown.
  """
  if combine not in ("sum", "mean"):
    raise ValueError(f"Votes are combined by sum or mean, not {combine!r}.")
  given = np.ones(len(answers)) if weights is None else weights
  if not (np.isfinite(given) & (given >= 0)).all():
    raise ValueError(
      "Weights of votes must be finite and not negative. Give probabilities,"
      " such as exp of log-probabilities or sigmoid of logits."
    )
  members: dict[Hashable, list[int]] = {}
  for i, answer in enumerate(answers):
    if answer is not None:
      members.setdefault(answer, []).append(i)
  # Sums that are rounded once do not depend on the candidates' order.
  totals = {a: math.fsum(given[i] for i in own) for a, own in members.items()}
  if combine == "mean":
    totals = {a: totals[a] / len(own) for a, own in members.items()}
  most = max(totals.values(), default=0.0)
  tied = [own for answer, own in members.items() if totals[answer] == most]
  chances = np.zeros(len(answers))
  for own in tied:
    speakers = [i for i in own if given[i] == max(given[own])]
    chances[speakers] = 1.0 / (len(tied) * len(speakers))
  return _selection(chances)


def majority(answers: Sequence[Hashable | None]) -> Selection:
  """The vote in which each candidate counts 1."""
  return vote(answers, weights=None, combine="sum")


def answer_classes(
  answers: Sequence[Hashable | None],
) -> Int[np.ndarray, " N"]:
  """Numbers for answers in order of appearance; -1 without an answer."""
  numbers: dict[Hashable, int] = {}
  return np.array(
    [
      -1 if answer is None else numbers.setdefault(answer, len(numbers))
      for answer in answers
    ],
    np.int32,
  )


def aggregate_steps(
  step_scores: Float[np.ndarray, "N S"],
  step_mask: Bool[np.ndarray, "N S"],
  *,
  how: str,
) -> Float[np.ndarray, " N"]:
  """One score per candidate from a process reward model's score per step.

  Snell et al. (arXiv:2408.03314) find `last` best for soft labels; Lightman
  et al. (arXiv:2305.20050) multiply, Math-Shepherd (arXiv:2312.08935) takes
  the minimum.

  Args:
    step_scores: probabilities, for `prod`; any unit otherwise.
    step_mask: steps that there are.
    how: last, min, max, mean or prod, which adds logarithms.

  Returns:
    The scores; -inf for a candidate without steps.

  Raises:
    ValueError: `how` is unknown, or `prod` is asked of negative scores.
  """
  exists = step_mask.any(axis=1)
  if how == "last":
    last = step_mask.shape[1] - 1 - np.argmax(step_mask[:, ::-1], axis=1)
    scores = step_scores[np.arange(len(last)), last]
  elif how == "min":
    scores = np.where(step_mask, step_scores, np.inf).min(axis=1)
  elif how == "max":
    scores = np.where(step_mask, step_scores, -np.inf).max(axis=1)
  elif how == "mean":
    total = np.where(step_mask, step_scores, 0.0).sum(axis=1)
    scores = total / np.maximum(step_mask.sum(axis=1), 1)
  elif how == "prod":
    if (step_scores[step_mask] < 0).any():
      raise ValueError("A product of step scores needs probabilities.")
    with np.errstate(divide="ignore"):  # log 0 is -inf, and exp of that 0
      scores = np.exp(np.log(np.where(step_mask, step_scores, 1.0)).sum(axis=1))
  else:
    raise ValueError(
      f"Step scores are combined by last, min, prod, mean or max, not {how!r}."
    )
  return np.where(exists, scores, -np.inf)


def expected_accuracy(
  selection: Selection, right: Shaped[np.ndarray, " N"]
) -> float:
  """The chance that the chosen candidate is right; 0 where nobody is chosen.

  Args:
    selection: made without looking at `right`.
    right: 1 for right candidates, 0 for wrong ones.
  """
  return float(selection.chances @ np.asarray(right, np.float64))


def _selection(chances: np.ndarray) -> Selection:
  index = int(np.argmax(chances > 0)) if chances.any() else NOBODY
  return Selection(index, chances)
