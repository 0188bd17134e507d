"""Surrogates against loops in NumPy that read like the formulas."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.algorithms import (
  surrogates,
)

# Few shapes, so that few programs are compiled; G = 1 is one of them.
SHAPES = st.sampled_from([(3, 4, 5), (2, 1, 3)])
SEEDS = st.integers(0, 2**32 - 1)


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
@pytest.mark.parametrize("cap", [1.28, 3.0, 10.0])
def test_ratio_cap(cap, token):
  log_ratio, A, _ = token
  r = math.exp(log_ratio)
  clip = partial(surrogates.clipped_surrogate, eps_low=0.2, eps_high=0.28)
  value, slope = one_token(clip, *token, ratio_cap=cap)
  plain, plain_slope = one_token(clip, *token)
  # The dual clip's own form: max(objective, c A) for A < 0.
  expected = -max(-plain, cap * A) if A < 0 else plain
  np.testing.assert_allclose(value, expected, rtol=1e-4)
  if A < 0 and r > cap * 1.001:
    assert slope == 0
  elif A >= 0 or r < cap * 0.999:
    np.testing.assert_allclose(slope, plain_slope, rtol=1e-5)


@given(tokens)
def test_log_likelihood(agree, token):
  value, slope = one_token(surrogates.log_likelihood, *token)
  _, A, logp = token
  agree(value, -A * logp)
  assert slope == -A


@given(tokens)
@pytest.mark.parametrize(("lowest", "highest"), [(0.0, 5.0), (0.8, 1.2)])
def test_clipped_importance_weight(lowest, highest, token):
  log_ratio, A, logp = token
  value, slope = one_token(
    surrogates.clipped_importance_weight,
    *token,
    lowest=lowest,
    highest=highest,
  )
  weight = min(max(math.exp(log_ratio), lowest), highest)
  np.testing.assert_allclose(value, -weight * A * logp, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(slope, -weight * A, rtol=1e-4, atol=1e-6)


@given(tokens)
def test_soft_gate(token):
  log_ratio, A, _ = token
  value, slope = one_token(
    surrogates.soft_gate, *token, tau_positive=1.0, tau_negative=1.05
  )
  tau, r = (1.0 if A > 0 else 1.05), math.exp(log_ratio)
  gate = 1 / (1 + math.exp(-min(tau * (r - 1), 500)))
  np.testing.assert_allclose(value, -4 / tau * gate * A, rtol=1e-4)
  expected = -4 * gate * (1 - gate) * r * A
  np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-5)


def rows_for_surrogates(rng, mask):
  """Log-ratios, advantages of one sign per row, log-probs; 0 where masked."""
  log_ratio = np.where(mask, rng.normal(0, 0.5, mask.shape), 0.0)
  A = rng.choice([-1.5, 0.0, 2.0], (mask.shape[0], 1))
  return log_ratio, np.where(mask, A, 0.0), -rng.exponential(size=mask.shape)


@given(SEEDS, SHAPES)
def test_geometric_surrogate(draw, agree, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  arrays = rows_for_surrogates(rng, mask)
  actual, _ = surrogates.geometric_surrogate(*map(jnp.asarray, arrays), eps=0.4)
  for n, row in enumerate(mask):
    if not row.any():
      continue
    A = arrays[1][n][row][0]
    ratio = np.exp(arrays[0][n][row])
    if A > 0:
      ratio = np.minimum(ratio, math.exp(0.4))
    else:
      ratio = np.maximum(ratio, math.exp(-0.4))
    agree(actual[n][row], -A * ratio.prod() ** (1 / row.sum()))


@given(SEEDS, SHAPES)
def test_regularised_log_likelihood(draw, agree, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  log_ratio, A, logp = rows_for_surrogates(rng, loss_mask[0])
  actual, _ = surrogates.regularised_log_likelihood(
    *map(jnp.asarray, (log_ratio, A, logp)), tau=0.3
  )
  for n in range(len(A)):
    square = sum(log_ratio[n]) ** 2
    agree(actual[n].sum(), -sum(A[n] * logp[n]) + 0.15 * square)


@given(SEEDS, SHAPES)
def test_without_off_policy_rows(draw, agree, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  log_ratio, A, logp = rows_for_surrogates(rng, mask)
  actual, _ = surrogates.without_off_policy_rows(
    surrogates.log_likelihood,
    *map(jnp.asarray, (log_ratio, A, logp)),
    threshold=0.1,
  )
  for n, row in enumerate(mask):
    bad = row.any() and A[n].min() < 0 and -log_ratio[n][row].mean() > 0.1
    agree(actual[n][row], 0.0 if bad else -(A[n] * logp[n])[row])
