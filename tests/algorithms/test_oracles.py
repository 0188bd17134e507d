"""Weights and ratios against loops in NumPy that read like the formulas."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.algorithms import (
  ratios,
  weights,
)

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
  weigh = jax.jit(partial(getattr(weights, name), **options))
  exists = jnp.ones(shape[0], bool)
  actual = weigh(jnp.asarray(loss_mask), exists)
  expected = weights_oracle(name, loss_mask, 7, options.get("count_empty"))
  agree(actual, expected)
  assert not weigh(jnp.zeros(shape, bool), exists).any()
  # Groups that only fill up the batch are in no denominator.
  filled = np.concatenate([loss_mask, np.zeros_like(loss_mask)])
  agree(
    weigh(jnp.asarray(filled), jnp.arange(2 * shape[0]) < shape[0]),
    np.concatenate([expected, np.zeros_like(expected)]),
  )


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
  limited = ratios.clamped(
    getattr(ratios, name), *map(jnp.asarray, (logp, old, mask)), limit=0.1
  )
  agree(limited, expected.clip(-0.1, 0.1))
