"""Costs add up, and FLOPs are those that XLA counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.test_time.cost import forward_flops, no_cost, unembedding_flops

# XLA counts norms, rotations, softmax and masks too. They are this share of
# the FLOPs at most for a model as narrow as the tests', less for wider ones.
_ELEMENTWISE = 0.06


def _counted(fn, *args) -> float:
  """FLOPs by XLA's count, of one compiled call."""
  return jax.jit(fn).lower(*args).compile().cost_analysis()["flops"]


def _one_token(config, params, slots):
  """FLOPs of one more token that sees every slot of its cache."""
  shape = (1, config.kv_heads, slots, config.head_dim)
  layer = decoder.LayerCache(jnp.zeros(shape), jnp.zeros(shape))
  at = jnp.array([[slots - 1]])

  def run(params, cache):
    mask = decoder.causal_mask(at, slots)
    return decoder.trunk(params, config, jnp.array([[3]]), at, mask, cache)[0]

  return _counted(run, params, (layer,) * config.layers)


@pytest.mark.parametrize("slots", [8, 512])
def test_a_decoded_tokens_flops_are_xlas(variant, slots):
  config, params = variant(width=64, head_dim=32, mlp_width=192)
  counted = _one_token(config, params, slots)
  expected = forward_flops(config, np.array([slots - 1]), np.array([slots]))[0]
  assert expected <= counted <= expected * (1 + _ELEMENTWISE)


def test_a_prompts_flops_are_xlas_less_the_masked_half(variant):
  """XLA multiplies by every key of the prompt, the ones behind included."""
  config, params = variant(width=64, head_dim=32, mlp_width=192)
  S = 64
  positions = jnp.arange(S)[None]
  mask = decoder.causal_mask(positions, S)

  def run(params):
    return decoder.trunk(
      params, config, jnp.zeros((1, S), int), positions, mask
    )[0]

  expected = forward_flops(config, np.array([0]), np.array([S]))[0]
  behind = 4 * config.layers * config.heads * config.head_dim * S * (S - 1) / 2
  total = expected + behind
  assert total <= _counted(run, params) <= total * (1 + _ELEMENTWISE)


def test_the_unembeddings_flops_are_xlas(model, params):
  hidden = jnp.zeros((1, model.width))
  counted = _counted(lambda p, h: decoder.unembed(p, model, h), params, hidden)
  assert counted == unembedding_flops(model)


def test_flops_of_parts_add_up(variant):
  config, _ = variant(windows=(3, 0))
  whole = forward_flops(config, np.array([0]), np.array([20]))
  parts = forward_flops(config, np.arange(20), np.arange(20) + 1)
  np.testing.assert_allclose(parts.sum(), whole[0])
  assert (np.diff(parts) > 0).all()  # the layer without a window


def test_a_window_bounds_what_a_token_sees(variant):
  config, _ = variant(windows=(3, 5))
  at = np.array([0, 2, 4, 9])
  pair = 4 * config.heads * config.head_dim
  flops = forward_flops(config, at, at + 1)
  np.testing.assert_allclose(
    flops - flops[0], pair * (np.array([2, 6, 8, 8]) - 2)
  )


def test_a_mixture_counts_the_experts_that_a_token_is_sent_to(variant):
  one, _ = variant(experts=4, experts_per_token=1)
  two, _ = variant(experts=4, experts_per_token=2)
  at = np.array([0])
  difference = forward_flops(two, at, at + 1) - forward_flops(one, at, at + 1)
  assert difference == 2 * 2 * 3 * one.width * one.mlp_width


def test_costs_in_sequence_and_side_by_side():
  first = no_cost(2).replace(
    generated_tokens=np.array([3.0, 5.0]),
    sequential_depth_tokens=np.array([3.0, 3.0]),
    policy_flops=np.array([10.0, 10.0]),
    peak_cache_bytes=np.array([100.0, 100.0]),
    wall_s=np.array([1.0, 1.0]),
  )
  second = no_cost(2).replace(
    generated_tokens=np.array([1.0, 1.0]),
    sequential_depth_tokens=np.array([1.0, 7.0]),
    verifier_flops=np.array([4.0, 4.0]),
    peak_cache_bytes=np.array([50.0, 200.0]),
    wall_s=np.array([2.0, 2.0]),
  )
  then, beside = first + second, first.beside(second)
  for total in (then, beside):
    np.testing.assert_array_equal(total.generated_tokens, [4, 6])
    np.testing.assert_array_equal(total.flops, [14, 14])
    np.testing.assert_array_equal(total.wall_s, [3, 3])
  np.testing.assert_array_equal(then.sequential_depth_tokens, [4, 10])
  np.testing.assert_array_equal(beside.sequential_depth_tokens, [3, 7])
  np.testing.assert_array_equal(then.peak_cache_bytes, [100, 200])
  np.testing.assert_array_equal(beside.peak_cache_bytes, [150, 300])
