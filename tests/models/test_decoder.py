"""The decoder against loops in NumPy, and against itself with a cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.attention import attend
from grpo_jax.models.rope import rotate, rotation


def _inputs(rows, length, seed=0):
  tokens = jax.random.randint(jax.random.key(seed), (rows, length), 0, 20)
  positions = jnp.broadcast_to(jnp.arange(length), (rows, length))
  return tokens, positions, decoder.causal_mask(positions, length)


# Compiled: op by op, every test would compile dozens of small programs.
_trunk = jax.jit(decoder.trunk, static_argnames="config")


def _hidden(params, model, *inputs):
  return _trunk(params, model, *inputs)[0]


def test_attention_is_a_loop_over_heads_and_visible_slots():
  B, H, K, S, Z, C = 2, 4, 2, 3, 5, 8
  rng = np.random.default_rng(0)
  q = rng.normal(size=(B, H, S, C)).astype(np.float32)
  k, v = rng.normal(size=(2, B, K, Z, C)).astype(np.float32)
  mask = rng.random((B, S, Z)) < 0.6
  mask[..., 0] = True
  expected = np.zeros_like(q)
  for b in range(B):
    for h in range(H):
      for s in range(S):
        slots = np.flatnonzero(mask[b, s])
        group = h // (H // K)  # consecutive query heads share a kv head
        scores = k[b, group, slots] @ q[b, h, s] / np.sqrt(C)
        weights = np.exp(scores - scores.max())
        expected[b, h, s] = weights @ v[b, group, slots] / weights.sum()
  out = attend(*map(jnp.asarray, (q, k, v, mask)), kernel="xla")
  np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_rotation_keeps_lengths_and_depends_on_distance_only():
  x = jax.random.normal(jax.random.key(0), (1, 1, 2, 8))
  y = jax.random.normal(jax.random.key(1), (1, 1, 2, 8))

  def at(z, position):
    return rotate(z, rotation(jnp.array([[position]]), z.shape[-1], 1e4))

  np.testing.assert_allclose(at(x, 0), x, rtol=1e-6)
  products = [
    jnp.sum(at(x, i) * at(y, j), -1) for i, j in [(7, 3), (104, 100), (3, 7)]
  ]
  np.testing.assert_allclose(products[0], products[1], rtol=1e-4)
  assert not np.allclose(products[0], products[2], rtol=1e-2)


def test_rms_norm():
  x = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
  scale = np.linspace(0.5, 2, 16, dtype=np.float32)
  expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale
  out = decoder.rms_norm(jnp.asarray(x), jnp.asarray(scale), 1e-6)
  np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_decoding_with_the_cache_equals_the_full_pass(variant, scan_layers):
  config, params = variant(scan_layers=scan_layers)
  tokens, positions, mask = _inputs(3, 9)
  full, _ = _trunk(params, config, tokens, positions, mask)
  prompt = 4
  hidden, cache = _trunk(
    params,
    config,
    tokens[:, :prompt],
    positions[:, :prompt],
    mask[:, :prompt, :prompt],
  )
  cache = jax.tree.map(
    lambda x: jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, 5), (0, 0)]), cache
  )
  steps = [hidden]
  for t in range(prompt, 9):
    at = positions[:, t : t + 1]
    hidden, cache = _trunk(
      params,
      config,
      tokens[:, t : t + 1],
      at,
      decoder.causal_mask(at, 9),
      cache,
    )
    steps.append(hidden)
  np.testing.assert_allclose(
    jnp.concatenate(steps, axis=1), full, rtol=1e-4, atol=1e-5
  )


def test_scanned_layers_compute_what_unrolled_ones_do(model, variant):
  scanned, params = variant(scan_layers=True)
  unrolled = {
    f"blocks_{i}": jax.tree.map(lambda x, i=i: x[i], params["blocks"])
    for i in range(model.layers)
  }
  rest = {k: v for k, v in params.items() if k != "blocks"}
  inputs = _inputs(2, 6)
  np.testing.assert_allclose(
    _hidden(rest | unrolled, model, *inputs),
    _hidden(params, scanned, *inputs),
    rtol=1e-5,
    atol=1e-5,
  )


def test_a_token_changes_nothing_before_it(model, params):
  tokens, positions, mask = _inputs(1, 8)
  changed = tokens.at[0, 5].set((tokens[0, 5] + 1) % 20)
  before, after = (
    _hidden(params, model, t, positions, mask)[0] for t in (tokens, changed)
  )
  np.testing.assert_array_equal(before[:5], after[:5])
  assert np.abs(before[5:] - after[5:]).min(axis=1).max() > 0


def test_segments_do_not_see_each_other(model, params):
  tokens = jax.random.randint(jax.random.key(0), (1, 8), 0, 20)
  segments = jnp.array([[1, 1, 1, 2, 2, 2, 2, 0]])
  positions = jnp.array([[0, 1, 2, 0, 1, 2, 3, 0]])
  mask = decoder.segment_mask(segments, segments)
  packed = _hidden(params, model, tokens, positions, mask)
  alone = _hidden(
    params,
    model,
    tokens[:, 3:7],
    positions[:, 3:7],
    decoder.causal_mask(positions[:, 3:7], 4),
  )
  np.testing.assert_allclose(packed[:, 3:7], alone, rtol=1e-4, atol=1e-5)
  other = tokens.at[0, 1].set((tokens[0, 1] + 1) % 20)
  np.testing.assert_array_equal(
    _hidden(params, model, other, positions, mask)[:, 3:], packed[:, 3:]
  )


def test_untied_embeddings_have_their_own_projection(model, variant):
  config, params = variant(tie_embeddings=False)
  hidden = jnp.ones((2, model.width))
  np.testing.assert_allclose(
    decoder.unembed(params, config, hidden),
    hidden @ params["output"].T,
    rtol=1e-5,
  )


def test_logits_are_float32_under_bfloat16(variant):
  config, params = variant(dtype="bfloat16")
  hidden = _hidden(params, config, *_inputs(1, 3))
  assert hidden.dtype == jnp.bfloat16
  assert decoder.unembed(params, config, hidden).dtype == jnp.float32


@pytest.mark.parametrize(
  "fields", [{"heads": 3}, {"head_dim": 7}, {"layers": 0}, {"dtype": "int8"}]
)
def test_impossible_shapes_are_named(model, fields):
  with pytest.raises(ValueError, match=f"model.{next(iter(fields))}"):
    dataclasses.replace(model, **fields)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_what_is_computed_again_changes_no_gradient(variant, scan_layers):
  tokens = jax.random.randint(jax.random.key(0), (2, 5), 0, 20)
  positions = jnp.broadcast_to(jnp.arange(5), (2, 5))
  mask = decoder.causal_mask(positions, 5)

  def gradient(remat):
    config, params = variant(remat=remat, scan_layers=scan_layers)

    @jax.jit
    @jax.grad
    def of(params):
      hidden, _ = decoder.trunk(params, config, tokens, positions, mask)
      return jnp.sum(jnp.sin(hidden))

    return of(params)

  kept = gradient("none")
  for remat in ("dots", "full"):
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
      gradient(remat),
      kept,
    )
