"""The `reward` section of a config: functions, weights, and a first call."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from ml_collections import ConfigDict

from experiments.keys import unknown_name
from experiments.named import bind_named, parse_args
from grpo_jax.data.example import Example
from grpo_jax.errors import UserError
from grpo_jax.rewards import scores
from grpo_jax.rewards.functions import (
  CORRECTNESS,
  RewardFn,
  refuse_shared_names,
)
from grpo_jax.training.rollouts import Task


class Rewards(NamedTuple):
  """How completions are rewarded.

  Attributes:
    functions: of one completion, with the names that they are counted by; the
      task's own is among them.
    weights: reward units of each score.
  """

  functions: list[tuple[str, RewardFn]]
  weights: dict[str, float]


def reward_weights(config: ConfigDict) -> dict[str, float]:
  """Reward units by name of score.

  Raises:
    ValueError: one is no finite number, or there is none.
  """
  weights = parse_args("reward.weights", config.reward.weights)
  for name, weight in weights.items():
    if not (isinstance(weight, int | float) and math.isfinite(weight)):
      raise ValueError(f"weights: {name} must be a finite number, not {weight}")
  if not weights:
    raise ValueError("weights: there must be one.")
  return weights


def reward_functions(
  config: ConfigDict, task: Task, weights: Mapping[str, float]
) -> list[tuple[str, RewardFn]]:
  """The task's and the config's functions, after a first call of each.

  Args:
    config: of the experiment.
    task: whose own function is counted by the name "task".
    weights: from `reward_weights`.

  Raises:
    UserError: a function cannot be found or called, raises at once, or gives
      no dict of numbers; a score has no weight, or a weight no score.
  """
  named = bind_named(
    "reward.functions",
    config.reward.functions,
    scores,
    offered={"prompt": task.prompt, "tokenizer": task.tokenizer},
    leaving=2,
  )
  functions = [*([("task", task.reward_fn)] if task.reward_fn else []), *named]
  example = task.train[0]
  texts = (
    "",
    task.prompt(example),
  )  # of which the tokenizer knows all characters
  known, silent = {"correctness"} if task.verify else set(), False
  for name, function in functions:
    given = {
      key
      for completion in texts
      for key in _try(name, function, example, completion)
    }
    refuse_shared_names(name, given, known)
    known |= given
    silent |= not given
  if task.verify:
    _try_verifier(task, example)
  if not silent:  # one that does not apply here may give any names elsewhere
    _compare(known, weights)
  return functions


def _try(name: str, function: RewardFn, example: Example, completion: str):
  """The names of the scores that a function gives."""
  where = f"for {completion!r:.99}, as a completion of the first problem"
  try:
    given = function(example, completion)
  except Exception as error:
    raise UserError(
      f"The reward function {name!r} raised {type(error).__name__}: {error},"
      f" {where}. It is given (example, completion)."
    ) from error
  if given is None:
    return set()
  if not isinstance(given, Mapping) or not all(
    score is None or hasattr(score, "__float__") for score in given.values()
  ):
    raise UserError(
      f"The reward function {name!r} gave {given!r:.200} {where}; it must give"
      " a dict of names to numbers, or None where it does not apply."
    )
  return set(given)


def _try_verifier(task: Task, example: Example) -> None:
  outcomes = task.verify([example, example], ["", ""])
  if len(outcomes) != 2 or not all(o in CORRECTNESS for o in outcomes):
    raise ValueError(
      f"the task's verify gave {outcomes!r} for two empty completions; it must"
      " give an Outcome for each."
    )


def _compare(known: set[str], weights: Mapping[str, float]) -> None:
  """Every score has a weight, and every weight but 0 a score."""
  if "correctness" not in known:
    raise ValueError(
      "neither the task nor a function gives `correctness`, which accuracy is"
      f" measured by; there are {sorted(known)}."
    )
  for name in sorted(name for name, w in weights.items() if w):
    if name not in known:
      raise ValueError(unknown_name("score in weights", name, known))
  missing = sorted(known - weights.keys())
  if missing:
    raise ValueError(
      f"weights does not tell what {missing} are worth; a weight of 0 only logs"
      " a score."
    )
