"""Each function against a loop in NumPy that reads like the formula."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.algorithms import (
  advantages,
  penalties,
  ratios,
  shaping,
  surrogates,
  weights,
)
from grpo_jax.types import TokenScores, TrainBatch

# Few shapes, so that few programs are compiled; G = 1 is one of them.
SHAPES = st.sampled_from([(3, 4, 5), (2, 1, 3)])
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed, shape):
  """Rewards with ties, masks with empty rows, NaN wherever masked."""
  rng = np.random.default_rng(seed)
  P, G, T = shape
  rewards = rng.choice([0.0, 0.1, 1.0, -2.5], (P, G))
  rewards[rng.random(P) < 0.3] = 0.1
  sample_mask = rng.random((P, G)) < 0.8
  loss_mask = rng.random((P, G, T)) < 0.7
  loss_mask[rng.random((P, G)) < 0.2] = False
  rewards = np.where(sample_mask, rewards, np.nan)
  return rng, rewards, sample_mask, loss_mask


def agree(actual, expected):
  np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


def groups_oracle(formula, rewards, sample_mask):
  """Applies a formula to the kept rewards of each group; the rest is 0."""
  out = np.zeros(rewards.shape)
  for p in range(rewards.shape[0]):
    keep = sample_mask[p]
    if keep.any():
      out[p, keep] = formula(rewards[p, keep])
  return out


@given(SEEDS, SHAPES, st.sampled_from([0, 1]))
@pytest.mark.parametrize("scale", ["group_std", "none"])
def test_group_relative_advantages(scale, seed, shape, ddof):
  _, rewards, sample_mask, _ = draw(seed, shape)

  def formula(r):
    if max(r) == min(r):
      return np.zeros_like(r)
    centred = r - r.mean()
    return centred / (r.std(ddof=ddof) + 0.01) if scale != "none" else centred

  actual = jax.jit(
    partial(
      advantages.group_relative_advantages, scale=scale, ddof=ddof, eps=0.01
    )
  )(jnp.asarray(rewards), jnp.asarray(sample_mask))
  agree(actual, groups_oracle(formula, rewards, sample_mask))


@given(SEEDS, SHAPES)
def test_mixed_accuracy_groups(seed, shape):
  _, rewards, sample_mask, _ = draw(seed, shape)
  actual = shaping.mixed_accuracy_groups(
    jnp.asarray(rewards), jnp.asarray(sample_mask)
  )
  expected = [
    len(set(r[keep])) > 1 for r, keep in zip(rewards, sample_mask, strict=True)
  ]
  assert actual.tolist() == expected


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 30))
def test_soft_overlong_penalty(max_tokens, buffer_tokens, length):
  if buffer_tokens > max_tokens:
    return
  start = max_tokens - buffer_tokens
  if length <= start:
    expected = 0.0
  elif length <= max_tokens:
    expected = (start - length) / buffer_tokens
  else:
    expected = -1.0
  actual = shaping.soft_overlong_penalty(
    jnp.full((1, 1), length),
    max_tokens=max_tokens,
    buffer_tokens=buffer_tokens,
  )
  agree(actual[0, 0], expected)


def weights_oracle(name, mask, budget, count_empty):
  out = np.zeros(mask.shape)
  P, G, T = mask.shape
  rows = sum(
    1 for p in range(P) for g in range(G) if count_empty or mask[p, g].any()
  )
  for p in range(P):
    for g in range(G):
      for t in range(T):
        if mask[p, g, t]:
          out[p, g, t] = {
            "token_mean": 1 / mask.sum(),
            "sequence_mean": 1 / (mask[p, g].sum() * rows),
            "constant_length": 1 / (rows * budget),
          }[name]
  return out


@given(SEEDS, SHAPES)
@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("token_mean", {}),
    ("sequence_mean", {"count_empty": True}),
    ("sequence_mean", {"count_empty": False}),
    ("constant_length", {"count_empty": True, "length_budget": 7}),
    ("constant_length", {"count_empty": False, "length_budget": 7}),
  ],
)
def test_weights(name, options, seed, shape):
  loss_mask = draw(seed, shape)[-1]
  actual = jax.jit(partial(getattr(weights, name), **options))(
    jnp.asarray(loss_mask)
  )
  expected = weights_oracle(name, loss_mask, 7, options.get("count_empty"))
  agree(actual, expected)
  assert not getattr(weights, name)(jnp.zeros(shape, bool), **options).any()


@given(SEEDS, SHAPES)
def test_token_log_ratio(seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  logp, old = rng.normal(size=(2, *mask.shape))
  expected = [
    [n - o if m else 0.0 for n, o, m in zip(*rows, strict=True)]
    for rows in zip(logp, old, mask, strict=True)
  ]
  old[~mask] = np.nan
  actual = ratios.token_log_ratio(
    jnp.asarray(logp), jnp.asarray(old), jnp.asarray(mask)
  )
  agree(actual, expected)


# Extreme ratios, and A = 0.
tokens = st.tuples(
  st.floats(-20, 20, width=32),
  st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0]),
  st.floats(-10, 0, width=32),
)


def one_token(surrogate, log_ratio, advantage, logp, **options):
  """Loss and d loss / d log pi of a single token."""

  def loss(x):
    array = jnp.full((1, 1), x)
    return surrogate(
      array - logp + log_ratio, jnp.full((1, 1), advantage), array, **options
    )[0][0, 0]

  value, slope = jax.value_and_grad(loss)(jnp.float32(logp))
  return float(value), float(slope)


@given(tokens)
def test_clipped_surrogate(token):
  log_ratio, A, _ = token
  r = math.exp(log_ratio)
  clipped = min(max(r, 0.8), 1.28)
  value, _ = one_token(
    surrogates.clipped_surrogate, *token, eps_low=0.2, eps_high=0.28
  )
  np.testing.assert_allclose(value, -min(r * A, clipped * A), rtol=1e-4)


@given(tokens)
def test_log_likelihood(token):
  value, slope = one_token(surrogates.log_likelihood, *token)
  _, A, logp = token
  agree(value, -A * logp)
  assert slope == -A


@given(SEEDS, SHAPES)
@pytest.mark.parametrize(
  ("name", "formula"),
  [("kl_k3", lambda new, ref: math.exp(ref - new) - (ref - new) - 1)],
)
def test_penalties(name, formula, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  logp, ref = rng.normal(size=(2, *mask.shape))
  expected = [
    [formula(n, r) if m else 0.0 for n, r, m in zip(*rows, strict=True)]
    for rows in zip(logp, ref, mask, strict=True)
  ]
  logp[~mask] = np.nan
  ref[~mask] = np.inf
  zeros = jnp.zeros(mask.shape)
  batch = TrainBatch(
    rows=None,
    tokens=jnp.zeros(mask.shape, jnp.int32),
    loss_mask=jnp.asarray(mask),
    weight=zeros,
    advantage=zeros,
    old_logp=zeros,
    ref_logp=jnp.asarray(ref),
  )
  scores = TokenScores(logp=jnp.asarray(logp), entropy=zeros)
  agree(getattr(penalties, name)(scores, batch), expected)
