"""Accuracy on held-out problems, several samples of each."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from grpo_jax.reporting.estimators import (
  Interval,
  maj_at_k,
  mean_interval,
  pass_at_k,
)
from grpo_jax.training.metrics import verification_metrics
from grpo_jax.training.rollouts import Sampled, Task
from grpo_jax.types import LENGTH


class Figures(NamedTuple):
  """Results on some held-out problems, with 95 % intervals over questions.

  Attributes:
    questions: their indices among the held-out problems.
    samples: of each question, n.
    pass_at: pass@k by k; pass@1 is the mean over all samples, avg@n.
    maj_at: maj@k by k; empty if the task tells no votes.
    mean_length: tokens per completion.
    truncated_fraction: of completions that were cut at the length limit.
  """

  questions: np.ndarray
  samples: int
  pass_at: dict[int, Interval]
  maj_at: dict[int, Interval]
  mean_length: float
  truncated_fraction: float


class Evaluation(NamedTuple):
  """Results on the held-out problems.

  Attributes:
    accuracy: `[questions]`, the share of right samples of each: pass@1.
    overall: figures of all questions.
    by_set: figures of each set, if the task tells sets apart.
    by_label: pass@1 and number of questions of each label.
    sampled: the completions themselves.
  """

  accuracy: np.ndarray
  overall: Figures
  by_set: dict[str, Figures]
  by_label: dict[str, tuple[float, int]]
  sampled: Sampled

  @property
  def pass_at_1(self) -> Interval:
    """With a 95 % interval over questions, inside [0, 1]."""
    return self.overall.pass_at[1]


def evaluate(
  params: dict, task: Task, rollout: Callable[..., Sampled], *, seed: int
) -> Evaluation:
  """Samples completions of all held-out problems and verifies them.

  The random numbers are the same at every call, so that two evaluations of a
  run differ by their parameters alone.

  Args:
    params: of the policy.
    task: with the held-out problems.
    rollout: from `make_rollout`, with the evaluation's sampling options.
    seed: of the samples.

  Returns:
    The results; pass@k and maj@k for k = 1, 2, 4, ... up to the samples per
    problem.
  """
  sampled = rollout(
    params, task.test, np.arange(len(task.test)), jax.random.key(seed), 0
  )
  accuracy = sampled.rollouts.accuracy.mean(axis=1, dtype=np.float64)
  samples = sampled.rollouts.accuracy.shape[1]
  ks = [2**i for i in range(samples.bit_length())]
  votes = _votes(task, sampled, ks)
  every = np.arange(len(task.test))
  return Evaluation(
    accuracy=accuracy,
    overall=_figures(sampled, votes, ks, every),
    by_set={
      name: _figures(sampled, votes, ks, questions)
      for name, questions in _grouped(task, task.set_of).items()
    },
    by_label={
      label: (float(accuracy[questions].mean()), len(questions))
      for label, questions in sorted(_grouped(task, task.label).items())
    },
    sampled=sampled,
  )


def _votes(task: Task, sampled: Sampled, ks: list[int]) -> np.ndarray | None:
  """maj@k `[questions, ks]`."""
  if task.answer_key is None:
    return None
  rows = [
    maj_at_k([task.answer_key(example, text) for text in texts], right, ks)
    for example, texts, right in zip(
      sampled.examples, sampled.texts, sampled.rollouts.accuracy, strict=True
    )
  ]
  return np.stack(rows)


def _grouped(task: Task, group: Callable | None) -> dict[str, np.ndarray]:
  """Indices of the held-out problems, by group, in the order they come."""
  if group is None:
    return {}
  names = [str(group(example)) for example in task.test]
  return {
    name: np.array([i for i, other in enumerate(names) if other == name])
    for name in dict.fromkeys(names)
  }


def _figures(sampled, votes, ks, questions: np.ndarray) -> Figures:
  rollouts = sampled.rollouts
  right = rollouts.accuracy[questions]
  samples = right.shape[1]
  correct = right.sum(axis=1)
  return Figures(
    questions=questions,
    samples=samples,
    pass_at={k: _share(pass_at_k(correct, samples, k)) for k in ks},
    maj_at={}
    if votes is None
    else {k: _share(votes[questions, at]) for at, k in enumerate(ks)},
    mean_length=float(rollouts.lengths[questions].mean()),
    truncated_fraction=float(
      (rollouts.stop_reason[questions] == LENGTH).mean()
    ),
  )


def _share(values: np.ndarray) -> Interval:
  """With a 95 % interval over questions, inside [0, 1]."""
  mean, low, high = mean_interval(values)
  return Interval(mean, max(low, 0.0), min(high, 1.0))


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
  """The figures of an evaluation under the names of metrics.jsonl."""
  metrics = {f"eval/{k}": v for k, v in _overall(evaluation).items()}
  for label, (accuracy, _) in evaluation.by_label.items():
    metrics[f"eval/pass@1/{label}"] = accuracy
  for name, figures in evaluation.by_set.items():
    metrics |= {f"eval_{name}/{k}": v for k, v in _named(figures).items()}
  return metrics


def evaluation_summary(evaluation: Evaluation) -> dict:
  """The figures of an evaluation as results.json holds them."""
  return _overall(evaluation) | {
    "by_difficulty": {
      label: {"pass@1": accuracy, "questions": questions}
      for label, (accuracy, questions) in evaluation.by_label.items()
    },
    "sets": {
      name: {"questions": len(figures.questions)} | _named(figures)
      for name, figures in evaluation.by_set.items()
    },
  }


def _overall(evaluation: Evaluation) -> dict[str, float]:
  # Completions that could not be verified are among the wrong ones.
  verified = verification_metrics([evaluation.sampled.scored])
  return _named(evaluation.overall) | verified


def _named(figures: Figures) -> dict[str, float]:
  named = {"samples": figures.samples}
  for kind, at in (("pass", figures.pass_at), ("maj", figures.maj_at)):
    for k, (mean, low, high) in at.items():
      named |= {
        f"{kind}@{k}": mean,
        f"{kind}@{k}_low": low,
        f"{kind}@{k}_high": high,
      }
  return named | {
    "mean_length": figures.mean_length,
    "truncated_fraction": figures.truncated_fraction,
  }
