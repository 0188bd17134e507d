"""A step's rollout batch by dynamic sampling (DAPO, arXiv:2503.14476).

Groups that the recipe does not keep are replaced by newly sampled ones until
the batch is full. Surplus groups are carried to the next step.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.training.curriculum import Prompts, choose, updated
from grpo_jax.training.rollouts import Sampled
from grpo_jax.types import Rollouts

_KEEP_RATE_DECAY = 0.9  # of the running mean, per round
_LEAST_KEEP_RATE = 0.1  # bounds a round at ten times the groups still missing


@dataclasses.dataclass(frozen=True)
class CollectOptions:
  """How a rollout batch is filled.

  Attributes:
    prompts_per_step: P, groups of a full batch.
    max_rounds: of sampling per step; then the step goes on with what it has.
  """

  prompts_per_step: int
  max_rounds: int

  def __post_init__(self):
    if self.prompts_per_step < 1 or self.max_rounds < 1:
      raise ValueError("prompts_per_step and max_rounds must be at least 1.")


class StreamState(NamedTuple):
  """Where the stream of prompts stands: host state, saved with checkpoints.

  Attributes:
    next_prompt: index of the next problem to draw.
    keep_rate: running share of groups that the recipe keeps.
    pending: kept groups that no step has used yet, the oldest first.
    solve_rates: running solve rate of each problem that was tried, by index.
  """

  next_prompt: int
  keep_rate: float
  pending: Rollouts | None
  solve_rates: dict[int, float]


class Collected(NamedTuple):
  """A rollout batch.

  Attributes:
    rollouts: exactly P groups; None if there is no group at all.
    groups: how many of them are real, the others only fill up.
    sampled: everything that was sampled for it, kept or not.
    keep_rate: share of the sampled groups that the recipe kept; None if none
      was sampled.
    passed_over: share of the stream's problems that were not drawn; None if
      none was sampled.
    logp_difference: |trainer - sampler| of the scored tokens, in nats.
    score_s: seconds of scoring.
  """

  rollouts: Rollouts | None
  groups: int
  sampled: list[Sampled]
  keep_rate: float | None
  passed_over: float | None
  logp_difference: np.ndarray
  score_s: float


def collect(
  stream: StreamState,
  options: CollectOptions,
  *,
  prompts: Prompts,
  recipe: Recipe,
  draw: Callable[[Sequence[int]], Sampled],
  score: Callable[[Rollouts], tuple[Rollouts, float]],
) -> tuple[Collected, StreamState]:
  """Fills a batch, from pending groups first.

  Args:
    stream: where the last step left it.
    options: the batch's size.
    prompts: the stream itself.
    recipe: says which groups to keep.
    draw: samples the problems at some positions of the stream.
    score: fills in what the present parameters say of groups, and tells the
      seconds it took.

  Returns:
    The batch and the stream after it.
  """
  wanted = options.prompts_per_step
  next_prompt, keep_rate, kept, rates = stream
  sampled, keeps, differences, score_s = [], [], [], 0.0
  keep_groups = jax.jit(recipe.keep_groups)  # compiled once per recipe
  for _ in range(options.max_rounds):
    missing = wanted - group_count(kept)
    if missing <= 0:
      break
    count = _round_up(math.ceil(missing / keep_rate), wanted)
    positions = choose(prompts, rates, start=next_prompt, count=count)
    next_prompt = positions[-1] + 1
    drawn = draw(positions)
    rates = updated(
      prompts,
      rates,
      positions,
      drawn.rollouts.accuracy,
      drawn.rollouts.sample_mask,
    )
    sampled.append(drawn)
    keep = np.asarray(keep_groups(drawn.rollouts))
    keeps.append(keep)
    keep_rate = max(
      _KEEP_RATE_DECAY * keep_rate + (1 - _KEEP_RATE_DECAY) * keep.mean(),
      _LEAST_KEEP_RATE,
    )
    if keep.any():
      groups, seconds = score(_take(drawn.rollouts, keep))
      score_s += seconds
      difference = np.abs(groups.old_logp - groups.behaviour_logp)
      differences.append(difference[groups.loss_mask])
      kept = join(kept, groups)
  rollouts, pending = _split(kept, wanted)
  drawn, passed = sum(map(len, keeps)), next_prompt - stream.next_prompt
  collected = Collected(
    rollouts=None if rollouts is None else _fill(rollouts, wanted),
    groups=group_count(rollouts),
    sampled=sampled,
    keep_rate=float(np.concatenate(keeps).mean()) if keeps else None,
    passed_over=1 - drawn / passed if keeps else None,
    logp_difference=np.concatenate([*differences, np.zeros(0)]),
    score_s=score_s,
  )
  return collected, StreamState(next_prompt, float(keep_rate), pending, rates)


def group_count(rollouts: Rollouts | None) -> int:
  """Groups in a value that may be None."""
  return 0 if rollouts is None else len(rollouts.prompt_lengths)


def join(first: Rollouts | None, second: Rollouts) -> Rollouts:
  """Groups of both, in order."""
  if first is None:
    return second
  return jax.tree.map(lambda a, b: np.concatenate([a, b]), first, second)


def _take(rollouts: Rollouts, keep: np.ndarray) -> Rollouts:
  return jax.tree.map(lambda x: x[keep], rollouts)


def _round_up(count: int, multiple: int) -> int:
  return -(-count // multiple) * multiple


def _split(kept: Rollouts | None, wanted: int):
  if kept is None:
    return None, None
  used = jax.tree.map(lambda x: x[:wanted], kept)
  pending = jax.tree.map(lambda x: x[wanted:], kept)
  return used, pending if group_count(pending) else None


def _fill(rollouts: Rollouts, wanted: int) -> Rollouts:
  """Repeats the first group up to the batch's size, with nothing to learn."""
  missing = wanted - group_count(rollouts)
  if not missing:
    return rollouts
  filler = jax.tree.map(lambda x: np.repeat(x[:1], missing, axis=0), rollouts)
  filler = filler.replace(
    sample_mask=np.zeros_like(filler.sample_mask),
    loss_mask=np.zeros_like(filler.loss_mask),
  )
  return join(rollouts, filler)
