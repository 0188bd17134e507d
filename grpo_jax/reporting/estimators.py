"""Estimators of accuracy with their uncertainty, in NumPy float64."""

from typing import NamedTuple

import numpy as np
from scipy import special


class Interval(NamedTuple):
  """A mean and its 95 % interval."""

  mean: float
  low: float
  high: float


def mean_interval(values: np.ndarray) -> Interval:
  """Student's t interval of a mean over questions.

  Questions are the independent draws, not completions: average the samples of
  a question first. For a paired comparison, pass the differences.

  Args:
    values: `[questions]`, one number each.

  Returns:
    Mean and 95 % interval. It has no width where all values agree, and is
    (value, -inf, inf) for a single question.

  Raises:
    ValueError: there is no value.
  """
  values = np.asarray(values, np.float64)
  if values.size == 0:
    raise ValueError("An interval needs at least one question.")
  mean = float(values.mean())
  if values.size == 1:
    return Interval(mean, -np.inf, np.inf)
  error = values.std(ddof=1) / np.sqrt(values.size)
  half = float(special.stdtrit(values.size - 1, 0.975) * error)
  return Interval(mean, mean - half, mean + half)


def pass_at_k(correct: np.ndarray, samples: int, k: int) -> np.ndarray:
  """1 - C(n - c, k) / C(n, k): the chance that one of k samples is right.

  Unbiased (arXiv:2107.03374), unlike the best of k drawn with replacement.

  Args:
    correct: `[questions]`, right ones among the samples, c.
    samples: of each question, n.
    k: between 1 and n.

  Returns:
    `[questions]` float64.

  Raises:
    ValueError: k lies outside.
  """
  if not 1 <= k <= samples:
    raise ValueError(f"pass@{k} needs between 1 and {samples} samples.")
  correct = np.asarray(correct)
  # Product form: C(n - c, k) / C(n, k) = prod_{i<k} (n - c - i) / (n - i).
  i = np.arange(k)
  factors = (samples - correct[:, None] - i) / (samples - i)
  return 1.0 - np.prod(np.clip(factors, 0.0, None), axis=1)
