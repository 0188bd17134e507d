"""Adapters: nothing at first, a matrix of rank r after, gradients to match."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models.lora import TARGETS, LoraOptions, init_lora, merge

OPTIONS = LoraOptions(rank=2, alpha=6.0, targets=TARGETS)


def _random(adapters):
  """Adapters whose b is not zero."""
  leaves, tree = jax.tree.flatten(adapters)
  keys = jax.random.split(jax.random.key(5), len(leaves))
  return tree.unflatten(
    [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
  )


def test_new_adapters_change_nothing(params):
  adapters = init_lora(params, OPTIONS, jax.random.key(0))
  jax.tree.map(
    np.testing.assert_array_equal, merge(params, adapters, OPTIONS), params
  )
  a = adapters["blocks_0"]["down"]["a"]
  assert 0.5 * 24**-0.5 < np.abs(a).max() <= 24**-0.5
  others = [adapters[f"blocks_{i}"]["query"]["a"] for i in (0, 1)]
  assert not np.allclose(*others)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_a_merged_weight_is_base_plus_scaled_product(variant, scan_layers):
  _, params = variant(scan_layers=scan_layers)
  adapters = _random(init_lora(params, OPTIONS, jax.random.key(0)))
  merged = merge(params, adapters, OPTIONS)
  block = "blocks" if scan_layers else "blocks_1"

  def layer(x):
    return np.asarray(x[1] if scan_layers else x, np.float64)

  for name, equation in {
    "query": "dr,rhc->dhc",
    "out": "hcr,rd->hcd",
    "down": "fr,rd->fd",
  }.items():
    pair = adapters[block][name]
    product = np.einsum(equation, layer(pair["a"]), layer(pair["b"]))
    np.testing.assert_allclose(
      layer(merged[block][name]),
      layer(params[block][name]) + 3.0 * product,
      rtol=1e-5,
      atol=1e-5,
    )
  assert merged["embedding"] is params["embedding"]
  assert merged[block]["mlp_norm"] is params[block]["mlp_norm"]


def test_the_merged_weights_keep_the_type_of_the_base(variant):
  _, params = variant(param_dtype="bfloat16")
  adapters = init_lora(params, OPTIONS, jax.random.key(0))
  merged = merge(params, adapters, OPTIONS)
  assert {x.dtype for x in jax.tree.leaves(merged)} == {jnp.dtype("bfloat16")}
  assert {x.dtype for x in jax.tree.leaves(adapters)} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"rank": 0}, "positive"),
    ({"alpha": 0.0}, "positive"),
    ({"targets": ()}, "query, key"),
    ({"targets": ("query", "q_proj")}, "q_proj"),
  ],
)
def test_options_are_checked(fields, message):
  with pytest.raises(ValueError, match=message):
    LoraOptions(**{"rank": 2, "alpha": 1.0, "targets": ("query",)} | fields)


def test_experts_have_no_adapters(variant):
  _, params = variant(experts=2, experts_per_token=1)
  with pytest.raises(ValueError, match="experts"):
    init_lora(params, OPTIONS, jax.random.key(0))
  attention = LoraOptions(rank=1, alpha=1.0, targets=("query",))
  assert init_lora(params, attention, jax.random.key(0))
