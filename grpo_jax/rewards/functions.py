"""Named rewards of completions, what is excluded of them, and their mixture.

A reward function takes (example, completion) and returns a dict of named
scores; an experiment has any number of them, and a weight for each score.
`correctness` is the score that accuracy and dynamic sampling look at.

A score that is None, NaN or infinite, or whose function raises or returns None,
is excluded for that completion. It is no 0, and it ends no run:

- its mean, and everything else that is told of a score, leaves it out;
- in the mixture, and in the components that recipes may look at, it is the mean
  of the score in its group, so that it moves no advantage relative to the
  group. (0 would be the best of scores that are negative.) The weights of the
  others stay what they are. A group without any such score has the mean of the
  batch throughout, or 0 if that has none;
- a completion without `correctness` leaves its group: it is in no baseline and
  has no gradient (`Rollouts.sample_mask`). Its accuracy is 0, and it counts as
  a sample: no evaluation gains from what could not be verified.

Metrics count what was excluded, by function and reason. Functions run in the
trainer's process; what may hang or crash belongs into a `pool`. Rewards that
execute code which a model wrote are out of scope: that needs a sandbox of the
operating system, and there is none here.
"""

import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from grpo_jax.errors import UserError
from grpo_jax.rewards.thinking import split_thinking, thinking_prefix
from grpo_jax.rewards.verify import Outcome, Verifier

RewardFn = Callable[[object, str], Mapping[str, float | None] | None]

# Why a function's scores of a completion are excluded.
REASONS = ("none", "not_finite", "raised")

# What a completion is worth to a verifier; excluded where that failed.
CORRECTNESS = {outcome: 0.0 for outcome in Outcome} | {
  Outcome.CORRECT: 1.0,
  Outcome.TIMED_OUT: math.nan,
  Outcome.CRASHED: math.nan,
}

_LARGEST = float(np.finfo(np.float32).max)
_log = logging.getLogger(__name__)


class Scored(NamedTuple):
  """What G completions of P problems are worth.

  Attributes:
    scores: `[P, G]` float32 by name; NaN where excluded.
    excluded: bool `[P, G]` by function and reason: where it excluded a score.
    outcomes: of the verifier, `[P, G]`; None without one.
  """

  scores: dict[str, np.ndarray]
  excluded: dict[tuple[str, str], np.ndarray]
  outcomes: np.ndarray | None


def answer_and_format(
  score_answer: Callable[[object, str], float],
  *,
  prompt: Callable[[object], str] | None = None,
) -> RewardFn:
  """Correctness of the answer after `</think>`, and the form, apart.

  DeepSeek-R1 (arXiv:2501.12948) rewards the two separately.

  Args:
    score_answer: (example, answer) -> between 0 and 1.
    prompt: the task's, where a chat template may begin the thinking itself.

  Returns:
    A reward function with `correctness` and `format`.
  """

  def reward(example, completion):
    begun = thinking_prefix(prompt(example)) if prompt else ""
    parts = split_thinking(begun + completion)
    correctness = score_answer(example, parts.answer) if parts.answer else 0.0
    return {"correctness": correctness, "format": float(parts.well_formed)}

  return reward


def score_completions(
  reward_functions: Sequence[tuple[str, RewardFn]],
  examples: Sequence[object],
  completions: Sequence[Sequence[str]],
  *,
  names: Collection[str],
  verify: Verifier | None = None,
) -> Scored:
  """Scores of all completions by name.

  Args:
    reward_functions: of one completion, each with the name to count it by.
    examples: P problems.
    completions: G texts for each.
    names: of scores that the result has even if no function gives them.
    verify: of all completions at once; gives `correctness`.

  Raises:
    UserError: two functions give a score of the same name.
  """
  shape = len(completions), len(completions[0])
  pairs = [
    (example, text)
    for example, texts in zip(examples, completions, strict=True)
    for text in texts
  ]
  found, excluded, outcomes = {}, {}, None
  if verify:
    verified = verify([e for e, _ in pairs], [text for _, text in pairs])
    found["correctness"] = np.array([CORRECTNESS[o] for o in verified])
    outcomes = np.array(verified, object).reshape(shape)
  for name, function in reward_functions:
    given = [_ask(name, function, *pair) for pair in pairs]
    scores, reasons = _in_columns(given)
    refuse_shared_names(name, scores, found)
    found |= scores
    for reason, where in reasons.items():
      where |= excluded.get((name, reason), False)
      excluded[name, reason] = where
  nothing = np.full(len(pairs), np.nan)
  return Scored(
    scores={
      name: found.get(name, nothing).astype(np.float32).reshape(shape)
      for name in dict.fromkeys([*found, *sorted(names)])
    },
    excluded={key: where.reshape(shape) for key, where in excluded.items()},
    outcomes=outcomes,
  )


def refuse_shared_names(
  function: str, scores: Collection[str], others: Collection[str]
) -> None:
  """Raises UserError if a function's scores have the names of others."""
  shared = sorted(set(scores) & set(others))
  if shared:
    raise UserError(
      f"The reward function {function!r} gives {shared}, which another function"
      " or the task's verifier gives too. Scores need names of their own."
    )


def fill_excluded(
  scores: Mapping[str, np.ndarray], counted: np.ndarray
) -> dict[str, np.ndarray]:
  """Puts the mean of its group in the place of an excluded score.

  Args:
    scores: `[P, G]`, NaN where excluded.
    counted: bool `[P, G]`, the completions that the mean is of.

  Returns:
    The same without NaN; the mean of the batch where a group has no such score,
    and 0 where that has none either.
  """
  return {name: _filled(score, counted) for name, score in scores.items()}


def mix(
  scores: Mapping[str, np.ndarray], weights: Mapping[str, float]
) -> np.ndarray:
  """Sum over names of weight * score, `[P, G]` float32."""
  mixed = sum(weight * scores[name] for name, weight in weights.items())
  return np.asarray(mixed, np.float32)


def _filled(score, counted):
  missing = np.isnan(score)
  kept = counted & ~missing
  # In float64, so that the mean of equal scores rounds to what they are.
  known = np.where(kept, score, 0).astype(np.float64)
  of_batch = known.sum() / max(kept.sum(), 1)
  counts = kept.sum(axis=1, keepdims=True)
  of_group = known.sum(axis=1, keepdims=True) / np.maximum(counts, 1)
  mean = np.where(counts > 0, of_group, of_batch)
  return np.where(missing, mean, score).astype(np.float32)


def _ask(name, function, example, text) -> dict[str, float | None] | str:
  """The scores that a function gives, or why it gives none."""
  try:
    given = function(example, text)
    if given is None:
      return "none"
    return {key: _number(score) for key, score in given.items()}
  except Exception:
    _log_first(name)
    return "raised"


def _number(score) -> float | None:
  if score is None:
    return None
  if not hasattr(score, "__float__"):
    raise TypeError(f"a score must be a number or None, not {score!r}")
  return float(score)


def _in_columns(given):
  """Scores by name, NaN where excluded, and where, by reason."""
  names = dict.fromkeys(k for g in given if isinstance(g, dict) for k in g)
  scores = {name: np.full(len(given), np.nan) for name in names}
  reasons = {reason: np.zeros(len(given), bool) for reason in REASONS}
  for n, found in enumerate(given):
    if isinstance(found, str):
      reasons[found][n] = True
      continue
    for name in names:
      score = found.get(name)
      if score is None:
        reasons["none"][n] = True
      elif not abs(score) <= _LARGEST:
        reasons["not_finite"][n] = True
      else:
        scores[name][n] = score
  return scores, reasons


@functools.cache
def _log_first(name: str) -> None:
  """Logs the present exception, the first one of each function."""
  _log.warning(
    "The reward function %r raised. Its scores are excluded for such"
    " completions, and counted as excluded/%s/raised; this is told once.",
    name,
    name,
    exc_info=True,
  )
