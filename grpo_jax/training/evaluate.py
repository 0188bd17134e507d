"""Accuracy on held-out problems, several samples of each."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from grpo_jax.reporting.estimators import Interval, mean_interval, pass_at_k
from grpo_jax.training.metrics import verification_metrics
from grpo_jax.training.rollouts import Sampled, Task
from grpo_jax.types import LENGTH


class Evaluation(NamedTuple):
  """Results on the held-out problems.

  Attributes:
    accuracy: `[questions]`, the share of right samples of each: pass@1.
    pass_at: by k, the mean over questions.
    mean_length: tokens per completion.
    truncated_fraction: of completions that were cut at the length limit.
    by_label: pass@1 and number of questions of each label.
    sampled: the completions themselves.
  """

  accuracy: np.ndarray
  pass_at: dict[int, float]
  mean_length: float
  truncated_fraction: float
  by_label: dict[str, tuple[float, int]]
  sampled: Sampled

  @property
  def pass_at_1(self) -> Interval:
    """With a 95 % interval over questions, inside [0, 1]."""
    mean, low, high = mean_interval(self.accuracy)
    return Interval(mean, max(low, 0.0), min(high, 1.0))


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
    The results; pass@k for k = 1, 2, 4, ... up to the samples per problem.
  """
  sampled = rollout(
    params, task.test, np.arange(len(task.test)), jax.random.key(seed), 0
  )
  right = sampled.rollouts.accuracy
  samples = right.shape[1]
  labels = [str(task.label(example)) for example in task.test]
  accuracy = right.mean(axis=1, dtype=np.float64)
  by_label = {
    label: (
      float(accuracy[[other == label for other in labels]].mean()),
      labels.count(label),
    )
    for label in sorted(set(labels))
  }
  return Evaluation(
    accuracy=accuracy,
    pass_at={
      k: float(pass_at_k(right.sum(axis=1), samples, k).mean())
      for k in (2**i for i in range(samples.bit_length()))
    },
    mean_length=float(sampled.rollouts.lengths.mean()),
    truncated_fraction=float((sampled.rollouts.stop_reason == LENGTH).mean()),
    by_label=by_label,
    sampled=sampled,
  )


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
  """The figures of an evaluation under the names of metrics.jsonl."""
  mean, low, high = evaluation.pass_at_1
  metrics = {f"eval/pass@{k}": v for k, v in evaluation.pass_at.items()}
  metrics |= {
    "eval/pass@1": mean,
    "eval/pass@1_low": low,
    "eval/pass@1_high": high,
    "eval/mean_length": evaluation.mean_length,
    "eval/truncated_fraction": evaluation.truncated_fraction,
  }
  # Completions that could not be verified are among the wrong ones above.
  verified = verification_metrics([evaluation.sampled.scored])
  metrics |= {f"eval/{name}": value for name, value in verified.items()}
  for label, (accuracy, _) in evaluation.by_label.items():
    metrics[f"eval/pass@1/{label}"] = accuracy
  return metrics


def evaluation_summary(evaluation: Evaluation) -> dict:
  """The figures of an evaluation as results.json holds them."""
  metrics = evaluation_metrics(evaluation)
  summary = {
    name.removeprefix("eval/"): value
    for name, value in metrics.items()
    if not name.startswith("eval/pass@1/")
  }
  summary["by_difficulty"] = {
    label: {"pass@1": accuracy, "questions": questions}
    for label, (accuracy, questions) in evaluation.by_label.items()
  }
  return summary
