"""Dynamic sampling: full batches, nothing thrown away, nothing invented."""

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.rewards.functions import Scored
from grpo_jax.training.batches import make_minibatches
from grpo_jax.training.collect import (
  CollectOptions,
  StreamState,
  collect,
  group_count,
)
from grpo_jax.training.curriculum import EVERYTHING, Prompts
from grpo_jax.training.rollouts import Sampled

DAPO, GRPO = (r(length_budget=6) for r in (recipes.dapo, recipes.grpo))
PROMPTS = Prompts(order=range(1000), curriculum=EVERYTHING, seed=0)
OPTIONS = CollectOptions(prompts_per_step=4, max_rounds=3)
MIXED, RIGHT, WRONG = [1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]


class Source:
  """Draws groups whose accuracies repeat a pattern over stream indices."""

  def __init__(self, random_rollouts, pattern):
    self.drawn = []
    self._make, self._pattern = random_rollouts, pattern

  def draw(self, indices):
    self.drawn.extend(indices)
    accuracy = [self._pattern[i % len(self._pattern)] for i in indices]
    rollouts = self._make(P=len(indices), accuracy=accuracy)
    # The first prompt token tells which problem a group is of.
    rollouts.prompt_tokens[:, 0] = indices
    return Sampled(rollouts, [], [], Scored({}, {}, None), 0.0, 0.0)

  def score(self, groups):
    return groups.replace(old_logp=groups.behaviour_logp - 0.25), 0.0

  def collect(self, state=None, recipe=DAPO):
    state = state or StreamState(0, 1.0, None, {})
    return collect(
      state,
      OPTIONS,
      prompts=PROMPTS,
      recipe=recipe,
      draw=self.draw,
      score=self.score,
    )


def _problems(rollouts):
  return rollouts.prompt_tokens[:, 0].tolist()


def test_tied_groups_are_replaced_until_the_batch_is_full(random_rollouts):
  source = Source(random_rollouts, [MIXED, RIGHT, WRONG, MIXED])
  collected, state = source.collect()
  assert _problems(collected.rollouts) == [0, 3, 4, 7]
  assert source.drawn == list(range(state.next_prompt)) == list(range(8))
  assert collected.groups == 4 and collected.rollouts.sample_mask.all()


def test_grpo_keeps_what_it_draws(random_rollouts):
  source = Source(random_rollouts, [MIXED, RIGHT, WRONG, MIXED])
  collected, state = source.collect(recipe=GRPO)
  assert _problems(collected.rollouts) == [0, 1, 2, 3]
  assert state.next_prompt == 4 and state.keep_rate == 1.0


def test_surplus_groups_are_the_next_steps_first(random_rollouts):
  source = Source(random_rollouts, [MIXED, MIXED, MIXED, WRONG])
  first, state = source.collect()
  assert _problems(first.rollouts) == [0, 1, 2, 4]
  assert _problems(state.pending) == [5, 6]
  second, state = source.collect(state)
  assert _problems(second.rollouts) == [5, 6, 8, 9]
  used = _problems(first.rollouts) + _problems(second.rollouts)
  assert len(set(used)) == 8
  assert (state.pending is None) or not set(used) & set(
    _problems(state.pending)
  )


def test_a_full_reserve_needs_no_sampling(random_rollouts):
  source = Source(random_rollouts, [MIXED])
  state = StreamState(50, 0.5, source.draw(range(6)).rollouts, {})
  source.drawn.clear()
  collected, state = source.collect(state)
  assert source.drawn == [] and collected.sampled == []
  assert group_count(state.pending) == 2


def test_it_gives_up_after_max_rounds_and_fills_up(random_rollouts):
  source = Source(random_rollouts, [WRONG] * 11 + [MIXED])
  collected, _ = source.collect()
  assert len(collected.sampled) == 3
  assert 0 < collected.groups < 4
  assert group_count(collected.rollouts) == 4
  real = collected.rollouts.sample_mask.any(axis=1)
  assert real.sum() == collected.groups
  assert not collected.rollouts.loss_mask[~real].any()


def test_no_signal_is_no_batch(random_rollouts):
  source = Source(random_rollouts, [WRONG, RIGHT])
  collected, state = source.collect()
  assert collected.rollouts is None and collected.groups == 0
  assert state.pending is None


def test_rounds_grow_as_the_keep_rate_falls(random_rollouts):
  source = Source(random_rollouts, [MIXED, WRONG, WRONG, WRONG])
  state, sizes = StreamState(0, 1.0, None, {}), []
  for _ in range(8):
    collected, state = source.collect(state)
    sizes.append(len(collected.sampled[0].rollouts.lengths))
  assert sizes[0] == 4 and sizes[-1] > 8
  assert state.keep_rate == pytest.approx(0.25, abs=0.1)


def test_groups_are_scored_under_the_policy_that_sampled_them(random_rollouts):
  source = Source(random_rollouts, [MIXED, MIXED, MIXED, WRONG])
  _, state = source.collect()
  np.testing.assert_allclose(
    state.pending.old_logp, state.pending.behaviour_logp - 0.25
  )
  collected, _ = source.collect(state)
  np.testing.assert_allclose(collected.logp_difference, 0.25, rtol=1e-5)


def test_filling_has_no_weight(random_rollouts):
  source = Source(random_rollouts, [WRONG] * 11 + [MIXED])
  collected, _ = source.collect()
  batch = make_minibatches(DAPO, minibatches=2, microbatches=1)(
    collected.rollouts, {}
  )[0]
  per_group = batch.weight.reshape(2, 2, -1).sum(-1)
  filled = ~collected.rollouts.sample_mask.any(1)
  assert not per_group[0][filled[0::2]].any()
  assert not per_group[1][filled[1::2]].any()
  # Nor does it shrink the weights of what is real.
  per_sequence = make_minibatches(GRPO, minibatches=2, microbatches=1)(
    collected.rollouts, {}
  )[0].weight.sum((1, 2, 3))
  real = [(~filled[m::2]).any() for m in range(2)]
  np.testing.assert_allclose(per_sequence, np.float32(real), rtol=1e-5)
  assert jnp.isfinite(batch.weight).all()
