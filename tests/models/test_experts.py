"""A mixture of experts against a loop over tokens and their experts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models.experts import mixture


@pytest.mark.parametrize("normalise", [False, True])
def test_a_mixture_is_a_loop_over_tokens_and_their_experts(normalise):
  M, D, F, E = 7, 4, 6, 5
  rng = np.random.default_rng(0)
  x, router = rng.normal(size=(M, D)), rng.normal(size=(D, E))
  router[:, 3] -= 50.0 * np.abs(router).max()  # an expert that gets nothing
  x = np.abs(x)
  gate, up = rng.normal(size=(2, E, D, F))
  down = rng.normal(size=(E, F, D))

  expected, used = np.zeros((M, D)), set()
  for m in range(M):
    logits = x[m] @ router
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    best = np.argsort(-probs)[:2]
    total = probs[best].sum() if normalise else 1.0
    used |= set(best.tolist())
    for e in best:
      h = x[m] @ gate[e]
      h = h / (1 + np.exp(-h)) * (x[m] @ up[e])
      expected[m] += probs[e] / total * (h @ down[e])

  arrays = [jnp.asarray(a, jnp.float32) for a in (x, router, gate, up, down)]
  out = mixture(*arrays, chosen=2, normalise=normalise)
  np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)

  gradient = jax.grad(
    lambda gate: mixture(
      *arrays[:2], gate, *arrays[3:], chosen=2, normalise=normalise
    ).sum()
  )(arrays[2])
  assert 1 < len(used) < E
  assert {e for e in range(E) if np.any(gradient[e])} == used
