"""Which problems of the stream are drawn, by how often they were solved.

Dynamic sampling (DAPO, arXiv:2503.14476) throws tied groups away after they
were sampled; passing over problems that are likely to tie saves their tokens,
as GRESO does (arXiv:2506.02177, from how often a problem tied in a row). Kimi
k1.5 (arXiv:2501.12599) draws in proportion to 1 - solve rate instead.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_STREAM = 7  # apart from other random numbers of the same seed


@dataclasses.dataclass(frozen=True)
class Curriculum:
  """Passes over problems that are too easy or too hard at present.

  A problem that was not tried yet is always drawn.

  Attributes:
    low: solve rate, in [0, 1], from which on a problem is drawn.
    high: solve rate up to which it is.
    skip: chance that another one is passed over, in [0, 1): those left over
      keep their solve rates up to date.
    decay: of the running solve rate, per visit, in [0, 1).
  """

  low: float
  high: float
  skip: float
  decay: float = 0.5

  def __post_init__(self):
    if not 0 <= self.low <= self.high <= 1:
      raise ValueError("low and high must lie in [0, 1], in this order.")
    if not 0 <= self.skip < 1:
      raise ValueError("skip must lie in [0, 1): 1 could find nothing to draw.")
    if not 0 <= self.decay < 1:
      raise ValueError("decay must lie in [0, 1).")


EVERYTHING = Curriculum(low=0.0, high=1.0, skip=0.0)


class Prompts(NamedTuple):
  """The problems in the order in which they come.

  Attributes:
    order: `order[i]` is the index of the i-th problem, for any i.
    curriculum: which of them are passed over.
    seed: of the chances.
  """

  order: Any
  curriculum: Curriculum
  seed: int


def choose(
  prompts: Prompts, rates: Mapping[int, float], *, start: int, count: int
) -> list[int]:
  """The next positions of the stream that are drawn.

  Whether a position is passed over depends on itself, the seed and the solve
  rates: so that a run that is continued draws what it would have drawn.

  Args:
    prompts: the stream.
    rates: running solve rates, by index of the problem.
    start: the first position that may be drawn.
    count: how many to draw.

  Returns:
    Positions, ascending.
  """
  positions, at = [], start
  while len(positions) < count:
    if not _passed_over(prompts, rates, at):
      positions.append(at)
    at += 1
  return positions


def _passed_over(prompts, rates, position: int) -> bool:
  curriculum = prompts.curriculum
  rate = rates.get(int(prompts.order[position]))
  if rate is None or curriculum.low <= rate <= curriculum.high:
    return False
  rng = np.random.default_rng((prompts.seed, _STREAM, position))
  return rng.random() < curriculum.skip


def updated(
  prompts: Prompts,
  rates: Mapping[int, float],
  positions: Sequence[int],
  accuracy: np.ndarray,
  sample_mask: np.ndarray,
) -> dict[int, float]:
  """Running solve rates after one more visit to some problems.

  r <- decay * r + (1 - decay) * mean accuracy; at the first visit the mean.

  Args:
    prompts: the stream.
    rates: before.
    positions: that were drawn.
    accuracy: `[positions, G]`, 1 for right completions.
    sample_mask: `[positions, G]`, completions that could be verified; a group
      without any changes no rate.

  Returns:
    The rates after; by index of the problem.
  """
  rates, decay = dict(rates), prompts.curriculum.decay
  for position, right, counted in zip(
    positions, accuracy, sample_mask, strict=True
  ):
    if counted.any():
      problem = int(prompts.order[position])
      mean = float(right[counted].mean(dtype=np.float64))
      before = rates.get(problem, mean)
      rates[problem] = decay * before + (1 - decay) * mean
  return rates
