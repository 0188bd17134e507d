"""Named rewards of completions, and their mixture.

A reward function takes (example, completion text) and returns a dict of named
scores. `correctness` is the one that accuracy and dynamic sampling look at.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from grpo_jax.errors import UserError
from grpo_jax.rewards.thinking import split_thinking, thinking_prefix

RewardFn = Callable[[object, str], Mapping[str, float]]


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
  reward_fn: RewardFn,
  examples: Sequence[object],
  completions: Sequence[Sequence[str]],
) -> dict[str, np.ndarray]:
  """Scores of all completions by name.

  Args:
    reward_fn: of one completion.
    examples: P problems.
    completions: G texts for each.

  Returns:
    Arrays `[P, G]`, float32.

  Raises:
    UserError: a score is no finite number, or the names differ.
  """
  scores = [
    [_checked(reward_fn(example, text), text) for text in texts]
    for example, texts in zip(examples, completions, strict=True)
  ]
  names = scores[0][0].keys()
  for row in scores:
    for score in row:
      if score.keys() != names:
        raise UserError(
          "The reward function names its scores differently from completion to"
          f" completion: {sorted(names)} and {sorted(score)}.",
          exit_code=1,
        )
  return {
    name: np.array([[s[name] for s in row] for row in scores], np.float32)
    for name in names
  }


def _checked(scores, text: str) -> dict[str, float]:
  """A score that is no number would be counted as a wrong answer."""
  finite = isinstance(scores, Mapping) and all(
    isinstance(score, (bool, int, float, np.number)) and np.isfinite(score)
    for score in scores.values()
  )
  if not finite:
    raise UserError(
      f"The reward function gave {scores!r} for the completion {text[:200]!r};"
      " it must give a dict of names to finite numbers.",
      exit_code=1,
    )
  return dict(scores)


def mix(
  scores: Mapping[str, np.ndarray], weights: Mapping[str, float]
) -> np.ndarray:
  """Sum over names of weight * score, `[P, G]` float32.

  Raises:
    ValueError: a weight is for a score that the reward function does not give.
  """
  unknown = sorted(set(weights) - set(scores))
  if unknown:
    raise ValueError(
      f"reward weights name {unknown}, but the reward function gives"
      f" {sorted(scores)}."
    )
  mixed = sum(weight * scores[name] for name, weight in weights.items())
  return np.asarray(mixed, np.float32)
