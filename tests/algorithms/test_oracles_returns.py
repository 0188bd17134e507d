"""Batch statistics, returns and shaping against loops in NumPy."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.algorithms import recipes, returns, shaping
from grpo_jax.algorithms.advantages import batch_normalised_advantages
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.training.metrics import explained_variance
from tests.algorithms.oracles import SEEDS, SHAPES, centred, groups_oracle


@given(SEEDS, SHAPES, st.sampled_from([0, 1]))
@pytest.mark.parametrize("each", ["token", "sequence"])
def test_batch_normalised(each, draw, agree, seed, shape, ddof):
  rng, _, _, mask = draw(seed, shape)
  A = np.where(mask, rng.normal(size=shape), np.nan)
  total = mean = square = 0.0
  for p, g, t in np.argwhere(mask):
    w = 1.0 if each == "token" else 1 / mask[p, g].sum()
    total += w
    mean += w * A[p, g, t]
  mean /= max(total, 1)
  for p, g, t in np.argwhere(mask):
    w = 1.0 if each == "token" else 1 / mask[p, g].sum()
    square += w * (A[p, g, t] - mean) ** 2
  std = (square / max(total - ddof, 1)) ** 0.5 + 0.01
  tied = len(set(A[mask])) < 2
  expected = np.where(mask & (not tied), (A - mean) / std, 0.0)
  actual = batch_normalised_advantages(
    *map(jnp.asarray, (A, mask)), each=each, ddof=ddof, eps=0.01
  )
  agree(actual, expected)


@given(SEEDS, SHAPES)
def test_multi_reward(draw, agree, make_rollouts, seed, shape):
  rng, first, sample_mask, loss_mask = draw(seed, shape)
  second = np.where(sample_mask, rng.normal(size=shape[:2]), np.nan)
  mixed = sum(
    weight
    * groups_oracle(
      lambda r: centred(r) / (r.std() + 0.01), sample_mask, rewards
    )
    for weight, rewards in ((0.5, first), (2.0, second))
  )
  kept = mixed[sample_mask]
  expected = np.zeros(shape[:2])
  if len(set(kept)) > 1:
    expected[sample_mask] = (kept - kept.mean()) / (kept.std() + 0.01)
  rollouts = make_rollouts(
    rewards=first,
    mask=loss_mask,
    old_logp=np.zeros(shape),
    sample_mask=jnp.asarray(sample_mask),
    components=np.stack([first, second], axis=-1),
  )
  recipe = recipes.gdpo(
    length_budget=1, reward_weights=(0.5, 2.0), ddof=0, std_eps=0.01
  )
  agree(recipe.advantages(rollouts.outcome, rollouts), expected)


@given(SEEDS, SHAPES, st.sampled_from([None, 0.9, 0.0]))
def test_moving_baseline(draw, agree, make_rollouts, seed, shape, decay):
  recipe = recipes.reinforce_moving_average(length_budget=1, decay=decay)
  (memory,) = recipe.memories
  state = memory.initial
  means, baseline = [], 0.0
  for i in range(3):
    _, rewards, sample_mask, loss_mask = draw(seed + i, shape)
    rollouts = make_rollouts(
      rewards=rewards,
      mask=loss_mask,
      old_logp=np.zeros(shape),
      sample_mask=jnp.asarray(sample_mask),
    )
    state = memory.update(state, rollouts.outcome, rollouts)
    if sample_mask.any():
      means.append(rewards[sample_mask].mean())
      old = 0.0 if decay is None else decay * baseline
      baseline = (
        np.mean(means) if decay is None else old + (1 - decay) * means[-1]
      )
    agree(state.mean, baseline)


def test_an_empty_batch_leaves_the_moving_baseline_alone(make_rollouts):
  recipe = recipes.reinforce_moving_average(length_budget=1, decay=None)
  (memory,) = recipe.memories
  state = memory.initial._replace(
    mean=jnp.asarray(0.5), updates=jnp.asarray(3, jnp.int32)
  )
  rollouts = make_rollouts(
    rewards=jnp.full((2, 2), jnp.nan),
    mask=np.zeros((2, 2, 1)),
    old_logp=np.zeros((2, 2, 1)),
    sample_mask=jnp.zeros((2, 2), bool),
  )
  after = memory.update(state, rollouts.outcome, rollouts)
  assert after.mean == 0.5 and after.updates == 3


@given(SEEDS, SHAPES)
def test_token_rewards(draw, agree, make_rollouts, seed, shape):
  rng, _, _, mask = draw(seed, shape)
  rewards, (old, ref) = rng.normal(size=shape[:2]), rng.normal(size=(2, *shape))
  expected = np.zeros(shape)
  for p, g, t in np.argwhere(mask):
    expected[p, g, t] = -0.3 * (old - ref)[p, g, t]
    if not mask[p, g, t + 1 :].any():
      expected[p, g, t] += rewards[p, g]
  old[~mask], ref[~mask] = np.nan, np.inf
  rollouts = make_rollouts(
    rewards=rewards, mask=mask, old_logp=old, ref_logp=ref
  )
  actual = jax.jit(partial(returns.token_rewards, kl_coefficient=0.3))(
    rewards, rollouts
  )
  agree(actual, expected)


@given(SEEDS, SHAPES)
def test_generalised_advantages(draw, agree, seed, shape):
  rng, _, _, mask = draw(seed, shape)
  rewards, values = rng.normal(size=(2, *shape))
  decay, bootstrap = rng.random((2, *shape[:2]))
  gamma = 0.9
  expected, to_go = np.zeros((2, *shape))
  for p, g in np.ndindex(shape[:2]):
    places = np.flatnonzero(mask[p, g])
    r = rewards[p, g, places]
    v = np.append(values[p, g, places], bootstrap[p, g])
    deltas = r + gamma * v[1:] - v[:-1]
    for i, t in enumerate(places):
      expected[p, g, t] = sum(
        (gamma * decay[p, g]) ** k * d for k, d in enumerate(deltas[i:])
      )
      to_go[p, g, t] = sum(gamma**k * x for k, x in enumerate(r[i:]))
  rewards[~mask], values[~mask] = np.nan, np.inf
  actual = jax.jit(partial(returns.generalised_advantages, discount=gamma))(
    rewards, values, mask, trace_decay=decay, bootstrap=bootstrap
  )
  agree(actual, expected)
  actual = jax.jit(partial(returns.reward_to_go, discount=gamma))(rewards, mask)
  agree(actual, to_go)


@given(SEEDS, SHAPES)
def test_explained_variance(draw, agree, seed, shape):
  rng, _, _, mask = draw(seed, shape)
  values, target = rng.normal(size=(2, *shape))
  target = np.round(target)  # some tie
  spread = np.var(target[mask]) if mask.any() else 0.0
  expected = 1 - np.var((target - values)[mask]) / spread if spread else 0.0
  values[~mask] = np.nan
  share, weight = explained_variance(*map(jnp.asarray, (values, target, mask)))
  assert weight == (spread > 0)
  np.testing.assert_allclose(share, expected, rtol=1e-3, atol=1e-3)


@given(SEEDS, SHAPES)
def test_process_advantages(draw, agree, make_rollouts, seed, shape):
  rng, _, _, mask = draw(seed, shape)
  step_mask = mask & (rng.random(shape) < 0.5)
  rewards = np.where(step_mask, rng.normal(size=shape), np.nan)
  expected = np.zeros(shape)
  for p in range(shape[0]):
    kept = rewards[p][step_mask[p]]
    if len(kept) < 2:
      continue
    normalised = (rewards[p] - kept.mean()) / (kept.std() + 0.01)
    for g, t in np.argwhere(mask[p]):
      expected[p, g, t] = normalised[g, t:][step_mask[p, g, t:]].sum()
  rollouts = make_rollouts(
    rewards=np.zeros(shape[:2]),
    mask=mask,
    old_logp=np.zeros(shape),
    step_rewards=rewards,
    step_mask=jnp.asarray(step_mask),
  )
  recipe = recipes.grpo_process(length_budget=1, ddof=0, std_eps=0.01)
  agree(recipe.advantages(rollouts.outcome, rollouts), expected)


@given(SEEDS, SHAPES)
def test_mixed_accuracy_groups(draw, make_rollouts, seed, shape):
  _, rewards, sample_mask, loss_mask = draw(seed, shape)
  rollouts = make_rollouts(
    rewards=rewards,
    mask=loss_mask,
    old_logp=np.zeros(shape),
    sample_mask=jnp.asarray(sample_mask),
  )
  actual = recipes.dapo(length_budget=1).keep_groups(rollouts)
  expected = [
    len(set(r[keep])) > 1 for r, keep in zip(rewards, sample_mask, strict=True)
  ]
  assert actual.tolist() == expected


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 30))
def test_overlong_penalties(agree, max_tokens, buffer_tokens, length):
  start = max_tokens - min(buffer_tokens, max_tokens)
  if length <= start:
    expected = 0.0
  elif length <= max_tokens:
    expected = (start - length) / (max_tokens - start)
  else:
    expected = -1.0
  lengths = jnp.full((1, 1), length)
  actual = shaping.soft_overlong_penalty(
    lengths, max_tokens=max_tokens, buffer_tokens=max_tokens - start
  )
  agree(actual[0, 0], expected)
  actual = shaping.soft_overlong_penalty(
    lengths, max_tokens=max_tokens, buffer_tokens=0
  )
  assert actual[0, 0] == (-1.0 if length > max_tokens else 0.0)


@given(SEEDS, SHAPES)
def test_relative_length_reward(draw, agree, seed, shape):
  rng, _, sample_mask, _ = draw(seed, shape)
  lengths = rng.integers(1, 6, shape[:2])
  correct = rng.random(shape[:2]) < 0.5

  def formula(n, right):
    if max(n) == min(n):
      return np.zeros(len(n))
    reward = 0.5 - (n - min(n)) / (max(n) - min(n))
    return np.where(right, reward, np.minimum(reward, 0))

  actual = shaping.relative_length_reward(
    *map(jnp.asarray, (lengths, correct, sample_mask))
  )
  agree(actual, groups_oracle(formula, sample_mask, lengths, correct))


@given(SEEDS, SHAPES)
def test_kl_in_reward(draw, agree, make_rollouts, seed, shape):
  rng, _, _, mask = draw(seed, shape)
  old, ref = rng.normal(size=(2, *shape))
  expected = [
    [
      0.5 - 0.2 * math.fsum((old - ref)[p, g][mask[p, g]])
      for g in range(shape[1])
    ]
    for p in range(shape[0])
  ]
  ref[~mask] = np.nan
  rollouts = make_rollouts(
    rewards=np.full(shape[:2], 0.5), mask=mask, old_logp=old, ref_logp=ref
  )
  recipe = pieces.kl_in_reward(recipes.grpo(length_budget=1), coefficient=0.2)
  agree(recipe.shape_rewards(rollouts), expected)
