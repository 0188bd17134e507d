"""Penalties and corrections against loops in NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.algorithms import corrections, penalties, recipes
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.types import TokenScores
from tests.algorithms.oracles import SEEDS, SHAPES, penalty_batch

PENALTIES = {
  "kl_k2": lambda new, ref, old: (new - ref) ** 2 / 2,
  "kl_k3": lambda new, ref, old: np.exp(ref - new) - (ref - new) - 1,
  "kl_weighted_k3": lambda new, ref, old: (
    np.exp(new - old) * (np.exp(ref - new) - (ref - new) - 1)
  ),
  "negative_log_likelihood": lambda new, ref, old: -new,
  "absolute_log_ratio": lambda new, ref, old: np.abs(new - old),
}


@given(SEEDS, SHAPES)
@pytest.mark.parametrize("name", PENALTIES)
def test_penalties(name, draw, agree, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  logp, ref, old = rng.normal(0, 0.7, size=(3, *mask.shape))
  expected = np.zeros(mask.shape)
  for n, row in enumerate(mask):
    expected[n, row] = PENALTIES[name](logp[n, row], ref[n, row], old[n, row])
  logp[~mask], ref[~mask], old[~mask] = np.nan, np.inf, np.nan
  zeros = jnp.zeros(mask.shape)
  batch = penalty_batch(
    mask, old_logp=jnp.asarray(old), ref_logp=jnp.asarray(ref)
  )

  def total(logp):
    scores = TokenScores(logp=logp, entropy=zeros)
    values = getattr(penalties, name)(scores, batch)
    return values.sum(), values

  slope, values = jax.grad(total, has_aux=True)(jnp.asarray(logp))
  agree(values, expected)
  assert np.isfinite(slope).all() and not slope[~mask].any()


@given(SEEDS, SHAPES)
def test_negative_entropy(draw, agree, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  entropy = np.where(mask, rng.exponential(size=mask.shape), np.nan)
  batch = penalty_batch(mask)
  scores = TokenScores(logp=None, entropy=jnp.asarray(entropy))
  agree(
    penalties.negative_entropy(scores, batch), np.where(mask, -entropy, 0.0)
  )


@given(SEEDS)
def test_clipped_value_loss(agree, seed):
  values, old, target = np.random.default_rng(seed).normal(size=(3, 2, 4))
  actual = penalties.clipped_value_loss(
    *map(jnp.asarray, (values, old, target)), clip=0.3
  )
  for index in np.ndindex(2, 4):
    v, o, r = values[index], old[index], target[index]
    bounded = min(max(v, o - 0.3), o + 0.3)
    agree(actual[index], max((v - r) ** 2, (bounded - r) ** 2) / 2)


@given(SEEDS, SHAPES)
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("outside", ["truncate", "mask"])
def test_sampler_correction(
  level, outside, draw, agree, make_rollouts, seed, shape
):
  rng, _, _, mask = draw(seed, shape)
  old, behaviour = rng.normal(0, 0.5, (2, *shape))
  expected = np.zeros(shape)
  for p, g, t in np.argwhere(mask):
    row = mask[p, g]
    logs = (old - behaviour)[p, g]
    log_weight = {
      "token": logs[t],
      "sequence": logs[row].sum(),
      "geometric": logs[row].mean(),
    }[level]
    w = math.exp(log_weight)
    inside = 0.5 <= w <= 2.0
    bound = min(max(w, 0.5), 2.0) if outside == "truncate" else 0.0
    expected[p, g, t] = w if inside else bound
  behaviour[~mask] = np.nan
  rollouts = make_rollouts(
    rewards=np.zeros(shape[:2]),
    mask=mask,
    old_logp=old,
    behaviour_logp=behaviour,
  )
  recipe = pieces.sampler_correction(
    recipes.supervised(length_budget=1),  # whose advantages are 1
    level=level,
    outside=outside,
    lowest=0.5,
    highest=2.0,
  )
  agree(recipe.advantages(rollouts.outcome, rollouts), expected)


@given(SEEDS, SHAPES)
def test_token_covariance(draw, agree, seed, shape):
  rng, _, _, mask = draw(seed, shape)
  logp, A = rng.normal(size=(2, *shape))
  expected = np.zeros(shape)
  if mask.any():
    centred = [x[mask] - x[mask].mean() for x in (logp, A)]
    expected[mask] = centred[0] * centred[1]
  logp[~mask] = np.nan
  actual = corrections.token_covariance(*map(jnp.asarray, (logp, A, mask)))
  agree(actual, expected)


@given(SEEDS, SHAPES, st.sampled_from([0.01, 0.2, 0.5, 1.0]))
def test_largest_fraction(draw, seed, shape, fraction):
  rng, _, _, mask = draw(seed, shape)
  values = rng.integers(0, 4, shape).astype(float)
  candidates = mask & (rng.random(shape) < 0.7)
  values[~candidates] = np.nan
  count = max(1, math.floor(fraction * mask.sum()))
  # Ties go to the first.
  places = sorted(np.flatnonzero(candidates), key=lambda i: -values.flat[i])
  expected = np.zeros(values.size, bool)
  expected[places[:count]] = True
  arrays = jnp.asarray(candidates), jnp.asarray(mask)
  actual = corrections.largest_fraction(
    jnp.asarray(values), *arrays, fraction=fraction
  )
  assert (np.ravel(actual) == expected).all()
  chosen = corrections.randomly_chosen(
    *arrays, jax.random.key(seed), fraction=fraction
  )
  assert not (chosen & ~candidates).any()
  assert chosen.sum() == min(count, candidates.sum())
