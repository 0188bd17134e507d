"""What is trained: adapters of a base, or 16-bit parameters with copies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.models.lora import LoraOptions, init_lora, merge
from grpo_jax.training.batches import make_minibatches
from grpo_jax.training.master_weights import with_master_weights
from grpo_jax.training.step import (
  init_state,
  make_optimizer,
  make_train_step,
)
from tests.training.conftest import OPTIONS

RECIPE = recipes.dr_grpo(length_budget=6)


@pytest.fixture
def batch(random_rollouts):
  split = make_minibatches(RECIPE, minibatches=1, microbatches=2)
  return jax.tree.map(lambda x: x[0], split(random_rollouts(), {})[0])


def test_only_adapters_are_trained_by_the_gradient_of_what_they_change(
  batch, model, params, assert_trees_close
):
  options = LoraOptions(rank=2, alpha=4.0, targets=("query", "down"))
  adapters = init_lora(params, options, jax.random.key(0))
  sgd = optax.sgd(1.0)
  whole = make_train_step(RECIPE, model, sgd, temperature=1.0)
  state, _ = whole(init_state(params, sgd), batch)
  gradient = jax.tree.map(jnp.subtract, params, state.params)

  step = make_train_step(RECIPE, model, sgd, temperature=1.0, adapters=options)
  state, _ = step(init_state(adapters, sgd), batch, params)
  assert jax.tree.structure(state.params) == jax.tree.structure(adapters)
  for block in adapters:
    # b starts at zero, so that its gradient is scale * a' dW and a's is zero.
    learnt, start = state.params[block]["down"], adapters[block]["down"]
    expected = -2.0 * start["a"].T @ gradient[block]["down"]
    np.testing.assert_allclose(learnt["b"], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(learnt["a"], start["a"])
  # The base is intact, and the merged model is another one.
  merged = merge(params, state.params, options)
  assert np.any(merged["blocks_0"]["query"] != params["blocks_0"]["query"])


def test_the_copies_follow_the_float32_optimizer_exactly():
  params = {"w": jnp.array([1.0, -3.0, 0.0, 1e-3], jnp.bfloat16)}
  inner = optax.adam(1e-4)
  exact, exact_state = {"w": params["w"].astype(jnp.float32)}, None
  exact_state = inner.init(exact)
  optimizer = with_master_weights(inner)
  state = optimizer.init(params)
  for i in range(50):
    grads = {"w": jnp.sin(jnp.arange(4.0) + i / 9) + 0.5}
    updates, exact_state = inner.update(grads, exact_state, exact)
    exact = optax.apply_updates(exact, updates)
    updates, state = optimizer.update(grads, state, params)
    params = optax.apply_updates(params, updates)
  assert params["w"].dtype == jnp.bfloat16
  np.testing.assert_array_equal(state.master["w"], exact["w"])
  np.testing.assert_array_equal(params["w"], exact["w"].astype(jnp.bfloat16))


def test_bfloat16_parameters_learn_from_updates_below_their_rounding(
  batch, variant
):
  model, params = variant(param_dtype="bfloat16")
  options = dataclasses.replace(OPTIONS, learning_rate=1e-5)

  def changed(master_weights):
    optimizer = make_optimizer(options, master_weights=master_weights)
    step = make_train_step(RECIPE, model, optimizer, temperature=1.0)
    state = init_state(params, optimizer)
    for _ in range(30):
      state, metrics = step(state, batch)
    assert metrics["update_skipped"][0] == 0
    embedding = state.params["embedding"]
    assert embedding.dtype == jnp.bfloat16
    return np.mean(np.asarray(embedding != params["embedding"]))

  assert changed(True) > 2 * changed(False)


def test_gradients_of_microbatches_are_summed_in_float32(batch, variant):
  model, params = variant(param_dtype="bfloat16")
  seen = []

  def update(grads, state, params=None):
    seen.extend(x.dtype for x in jax.tree.leaves(grads))
    return jax.tree.map(jnp.zeros_like, params), state

  spy = optax.GradientTransformation(lambda params: (), update)
  make_train_step(RECIPE, model, spy, temperature=1.0)(
    init_state(params, spy), batch
  )
  assert set(seen) == {jnp.dtype("float32")}
