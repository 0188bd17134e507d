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
  corrections,
  penalties,
  ratios,
  surrogates,
  weights,
)
from grpo_jax.types import TokenScores, TrainBatch

# Few shapes, so that few programs are compiled; G = 1 is one of them.
SHAPES = st.sampled_from([(3, 4, 5), (2, 1, 3)])
SEEDS = st.integers(0, 2**32 - 1)


def weights_oracle(name, mask, budget, count_empty):
  out = np.zeros(mask.shape)
  P, G, T = mask.shape
  rows = sum(
    1 for p in range(P) for g in range(G) if count_empty or mask[p, g].any()
  )
  groups = sum(1 for p in range(P) if count_empty or mask[p].any())
  for p in range(P):
    for g in range(G):
      for t in range(T):
        if mask[p, g, t]:
          out[p, g, t] = {
            "token_mean": 1 / mask.sum(),
            "sequence_mean": 1 / (mask[p, g].sum() * rows),
            "constant_length": 1 / (rows * budget),
            "token_sum_mean": 1 / rows,
            "group_token_mean": 1 / (mask[p].sum() * groups),
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
    ("token_sum_mean", {"count_empty": True}),
    ("token_sum_mean", {"count_empty": False}),
    ("group_token_mean", {"count_empty": True}),
    ("group_token_mean", {"count_empty": False}),
  ],
)
def test_weights(name, options, draw, agree, seed, shape):
  loss_mask = draw(seed, shape)[-1]
  actual = jax.jit(partial(getattr(weights, name), **options))(
    jnp.asarray(loss_mask)
  )
  expected = weights_oracle(name, loss_mask, 7, options.get("count_empty"))
  agree(actual, expected)
  assert not getattr(weights, name)(jnp.zeros(shape, bool), **options).any()


def ratio_oracle(name, logp, old, mask):
  out = np.zeros(mask.shape)
  for n, row in enumerate(mask):
    logs = [logp[n, t] - old[n, t] for t in np.flatnonzero(row)]
    for i, t in enumerate(np.flatnonzero(row)):
      out[n, t] = {
        "token_log_ratio": logs[i],
        "product_log_ratio": sum(logs),
        "sequence_log_ratio": sum(logs) / len(logs),
        "sequence_token_log_ratio": sum(logs) / len(logs),
      }[name]
  return out


@given(SEEDS, SHAPES)
@pytest.mark.parametrize(
  "name",
  [
    "token_log_ratio",
    "product_log_ratio",
    "sequence_log_ratio",
    "sequence_token_log_ratio",
  ],
)
def test_log_ratios(name, draw, agree, seed, shape):
  rng, _, _, loss_mask = draw(seed, shape)
  mask = loss_mask[0]
  logp, old = rng.normal(size=(2, *mask.shape))
  expected = ratio_oracle(name, logp, old, mask)
  old[~mask] = np.nan
  function = jax.jit(getattr(ratios, name))
  agree(function(logp, old, mask), expected)
  limited = ratios.clamped(getattr(ratios, name), limit=0.1)
  agree(limited(*map(jnp.asarray, (logp, old, mask))), expected.clip(-0.1, 0.1))


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
  surrogate = surrogates.without_off_policy_rows(
    surrogates.log_likelihood, threshold=0.1
  )
  actual, _ = surrogate(*map(jnp.asarray, (log_ratio, A, logp)))
  for n, row in enumerate(mask):
    bad = row.any() and A[n].min() < 0 and -log_ratio[n][row].mean() > 0.1
    agree(actual[n][row], 0.0 if bad else -(A[n] * logp[n])[row])


PENALTIES = {
  "kl_k2": lambda new, ref, old: (new - ref) ** 2 / 2,
  "kl_k3": lambda new, ref, old: np.exp(ref - new) - (ref - new) - 1,
  "kl_weighted_k3": lambda new, ref, old: (
    np.exp(new - old) * (np.exp(ref - new) - (ref - new) - 1)
  ),
  "kl_sequence_k3": lambda new, ref, old: (
    np.exp(sum(ref - new)) - sum(ref - new) - 1
  ),
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
  batch = TrainBatch(
    rows=None,
    tokens=None,
    loss_mask=jnp.asarray(mask),
    weight=zeros,
    advantage=zeros,
    old_logp=jnp.asarray(old),
    ref_logp=jnp.asarray(ref),
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
  batch = TrainBatch(
    rows=None,
    tokens=None,
    loss_mask=jnp.asarray(mask),
    weight=None,
    advantage=None,
    old_logp=None,
    ref_logp=None,
  )
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
def test_sampler_correction(level, outside, draw, agree, seed, shape):
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
  actual = corrections.sampler_correction(
    *map(jnp.asarray, (old, behaviour, mask)),
    level=level,
    outside=outside,
    lowest=0.5,
    highest=2.0,
  )
  agree(actual, expected)


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
  candidates = corrections.covariance_candidates(
    actual, jnp.asarray(mask), lowest=0.1, highest=1.0
  )
  near = np.isclose(expected, 0.1, atol=1e-4) | np.isclose(expected, 1.0)
  inside = mask & (expected > 0.1) & (expected < 1.0)
  assert (candidates == inside)[~near].all()


@given(SEEDS, SHAPES, st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_largest_fraction(draw, seed, shape, fraction):
  rng, _, _, mask = draw(seed, shape)
  values = rng.integers(0, 4, shape).astype(float)
  candidates = mask & (rng.random(shape) < 0.7)
  values[~candidates] = np.nan
  count = math.floor(fraction * mask.sum())
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
