"""Filters of the next-token distribution, against loops."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_jax.sampling.filters import filtered_log_probs


def _oracle(logits, temperature, top_k, top_p):
  z = np.asarray(logits, np.float64) / temperature
  keep = np.ones(len(z), bool)
  if top_k:
    keep &= z >= np.sort(z)[-min(top_k, len(z))]
  p = np.exp(z - z.max()) * keep
  p /= p.sum()
  if top_p < 1:
    mass, least = 0.0, np.inf
    for i in np.argsort(-p, kind="stable"):
      if mass >= top_p:
        break
      mass += p[i]
      least = p[i]
    p = np.where(p >= least, p, 0.0)
    p /= p.sum()
  return p


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
  st.lists(st.integers(-40, 40), min_size=6, max_size=6, unique=True),
  st.sampled_from([0.5, 1.0, 1.7]),
  st.integers(0, 8),
  st.sampled_from([0.05, 0.33, 0.71, 0.97, 1.0]),
)
def test_kept_mass_is_the_oracles(logits, temperature, top_k, top_p):
  logits = np.array(logits, np.float32) / 8
  out = filtered_log_probs(
    jnp.asarray(logits), temperature=temperature, top_k=top_k, top_p=top_p
  )
  expected = _oracle(logits, temperature, top_k, top_p)
  np.testing.assert_allclose(np.exp(out), expected, rtol=1e-4, atol=1e-6)


def test_greedy_takes_the_first_of_the_largest():
  out = filtered_log_probs(
    jnp.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]]),
    temperature=0.0,
    top_k=0,
    top_p=1.0,
  )
  np.testing.assert_array_equal(np.exp(out), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize("top_p", [1e-6, 0.4])
def test_the_most_likely_token_always_stays(top_p):
  out = filtered_log_probs(
    jnp.array([0.0, 5.0, 1.0]), temperature=1.0, top_k=0, top_p=top_p
  )
  np.testing.assert_allclose(np.exp(out), [0.0, 1.0, 0.0])
