"""Estimators of accuracy with their uncertainty, in NumPy float64."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

# C(n, n / 2) must be a float64.
MAX_VOTES = 1000


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


def maj_at_k(
  answers: Sequence[Hashable | None], right: np.ndarray, ks: Sequence[int]
) -> np.ndarray:
  """The chance that the answer most voted for among k samples is right.

  The exact mean over all subsets of k of the n samples of one question, by
  counting subsets class by class (self-consistency, arXiv:2203.11171). Tied
  answers win with equal chance. Samples of one answer may be verified
  differently; then one of the winning answer's votes, drawn at random, speaks
  for it. The reference answer has no part in the grouping.

  Args:
    answers: `[n]` what each sample states, equal where they vote alike; None
      for a sample without an answer, which takes a place and has no vote.
    right: `[n]` 1 for right samples, 0 for wrong ones.
    ks: each between 1 and n.

  Returns:
    One chance per k, float64; a subset without any vote is wrong.

  Raises:
    ValueError: a k lies outside, or there are over 1,000 samples.
  """
  n = len(answers)
  if n > MAX_VOTES:
    raise ValueError(f"maj@k counts at most {MAX_VOTES} samples, not {n}.")
  for k in ks:
    if not 1 <= k <= n:
      raise ValueError(f"maj@{k} needs between 1 and {n} samples.")
  classes = defaultdict(list)
  for answer, value in zip(answers, right, strict=True):
    if answer is not None:
      classes[answer].append(float(value))
  classes = [np.array(values) for values in classes.values()]
  most = max(map(len, classes), default=0)
  won = np.zeros(n + 1)
  for votes in range(1, most + 1):
    won += _subsets_won(classes, n, votes)
  return np.array([won[k] / special.comb(n, k) for k in ks])


def _subsets_won(classes: list[np.ndarray], n: int, votes: int) -> np.ndarray:
  """`[n + 1]`, by size: subsets whose winner has `votes`, weighted by right.

  Answers with fewer samples cannot reach the winner's votes: they are one
  factor (1 + x)^count of the polynomial whose x^k counts subsets of k. Each
  other answer has fewer votes than the winner, or ties with it.
  """
  able = [c for c in classes if len(c) >= votes]
  rest = n - sum(map(len, able))
  ways = np.zeros((len(able) + 1, n + 1))  # by answers that tie, by size
  ways[0, : rest + 1] = special.comb(rest, np.arange(rest + 1))
  right = np.zeros_like(ways)  # the same, times the tied answers' shares
  for c in able:
    fewer = special.comb(len(c), np.arange(votes))
    ties = special.comb(len(c), votes)
    tied = _shifted(ways, votes) * ties
    right = (
      _times(right, fewer) + _shifted(right, votes) * ties + c.mean() * tied
    )
    ways = _times(ways, fewer) + tied
  return np.sum(right[1:] / np.arange(1, len(able) + 1)[:, None], axis=0)


def _times(rows: np.ndarray, factor: np.ndarray) -> np.ndarray:
  """Each row times a polynomial, cut at the rows' length."""
  size = rows.shape[1]
  return np.stack([np.convolve(row, factor)[:size] for row in rows])


def _shifted(rows: np.ndarray, votes: int) -> np.ndarray:
  """One more answer that ties, with its votes."""
  moved = np.zeros_like(rows)
  moved[1:, votes:] = rows[:-1, : rows.shape[1] - votes]
  return moved
