"""One optimizer step: exact under any split, safe, and compiled once."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.models.logprobs import completion_rows, score
from grpo_jax.training import step as step_module
from grpo_jax.training.batches import make_minibatches
from grpo_jax.training.scoring import make_scorer
from grpo_jax.training.step import (
  init_state,
  make_optimizer,
  make_schedule,
  make_train_step,
)
from tests.training.conftest import OPTIONS

WEIGHTINGS = {
  "token_mean": recipes.dapo(length_budget=6, kl_coefficient=0.05),
  "sequence_mean": recipes.grpo(length_budget=6, kl_coefficient=0.05),
  "constant_length": recipes.dr_grpo(length_budget=6, kl_coefficient=0.05),
}
_score = jax.jit(score, static_argnames=("config", "temperature"))


@pytest.fixture(scope="module")
def measure(model, params):
  """SGD at rate 1, so that the update is the gradient.

  Weightings differ in the batch that they make, not in the step, which is
  compiled once for all of them.
  """
  optimizer = optax.sgd(1.0)
  step = make_train_step(
    WEIGHTINGS["token_mean"], model, optimizer, temperature=1.0
  )

  def run(recipe, rollouts, microbatches=1):
    split = make_minibatches(recipe, minibatches=1, microbatches=microbatches)
    batch = jax.device_get(split(rollouts, {})[0])
    batch = jax.tree.map(lambda x: x[0], batch)
    state, metrics = jax.device_get(step(init_state(params, optimizer), batch))
    gradient = jax.tree.map(np.subtract, params, state.params)
    return metrics, gradient

  return run


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_microbatches_and_padding_change_neither_loss_nor_gradient(
  measure, random_rollouts, assert_trees_close, weighting
):
  def run(rollouts, microbatches=1):
    recipe = WEIGHTINGS[weighting]
    metrics, gradient = measure(recipe, rollouts, microbatches)
    return metrics["loss"][0], gradient

  rollouts = random_rollouts()
  whole = run(rollouts)
  assert abs(whole[0]) > 1e-3
  for microbatches in (2, 4):
    assert_trees_close(run(rollouts, microbatches), whole, 1e-5, 1e-6)

  garbage = np.full((4, 4, 3), np.nan, np.float32)
  wide = rollouts.replace(
    tokens=np.pad(rollouts.tokens, ((0, 0), (0, 0), (0, 3)), constant_values=5),
    loss_mask=np.pad(rollouts.loss_mask, ((0, 0), (0, 0), (0, 3))),
    **{
      name: np.concatenate([getattr(rollouts, name), garbage], axis=-1)
      for name in ("old_logp", "ref_logp", "behaviour_logp")
    },
  )
  assert_trees_close(run(wide), whole, 1e-5, 1e-6)


def test_the_distance_to_the_reference_is_measured(
  measure, model, params, random_rollouts
):
  rollouts = random_rollouts()
  scored, _ = make_scorer(
    model, temperature=1.0, groups_per_call=4, ref_params=None
  )(params, (), rollouts)
  rollouts = rollouts.replace(ref_logp=scored.old_logp - 0.5)
  metrics, _ = measure(WEIGHTINGS["sequence_mean"], rollouts, 2)
  total, weight = metrics["kl"]
  expected = np.exp(-0.5) - 1 + 0.5  # k3 at log pi_ref - log pi = -0.5
  assert total / weight == pytest.approx(expected, rel=1e-3)


def test_without_a_penalty_no_distance_is_measured(
  model, params, random_rollouts
):
  recipe = recipes.grpo(length_budget=6, kl_coefficient=0.0)
  split = make_minibatches(recipe, minibatches=1, microbatches=2)
  batch = jax.tree.map(lambda x: x[0], split(random_rollouts(), {})[0])
  optimizer = optax.sgd(0.1)
  step = make_train_step(recipe, model, optimizer, temperature=1.0)
  _, metrics = jax.eval_shape(step, init_state(params, optimizer), batch)
  assert "loss" in metrics and "kl" not in metrics


def test_the_end_token_gets_a_gradient(measure, random_rollouts):
  rollouts = random_rollouts()
  last = rollouts.lengths[..., None] - 1 == np.arange(6)
  only_last = rollouts.replace(loss_mask=last)
  _, gradient = measure(WEIGHTINGS["sequence_mean"], only_last)
  assert optax.global_norm(gradient) > 1e-3


def test_updates_that_are_not_finite_are_skipped_and_counted(
  model, params, random_rollouts, assert_trees_close
):
  recipe = WEIGHTINGS["token_mean"]
  optimizer = make_optimizer(OPTIONS)
  step = make_train_step(recipe, model, optimizer, temperature=1.0)
  split = make_minibatches(recipe, minibatches=1, microbatches=1)
  good = jax.tree.map(lambda x: x[0], split(random_rollouts(), {})[0])
  bad = good.replace(weight=good.weight * jnp.nan)
  state, metrics = step(init_state(params, optimizer), good)
  assert metrics["update_skipped"][0] == 0
  before = jax.device_get(state)
  state, metrics = step(state, bad)
  assert metrics["update_skipped"][0] == 1
  assert_trees_close(state.params, before.params, 0, 0)
  assert_trees_close(state.opt_state, before.opt_state, 0, 0)
  assert state.skipped_in_a_row == 1 and state.step == 2
  state, _ = step(state, bad)
  assert state.skipped_in_a_row == 2
  state, _ = step(state, good)
  assert state.skipped_in_a_row == 0
  assert not np.array_equal(
    state.params["embedding"], before.params["embedding"]
  )


def test_the_step_compiles_once(model, params, random_rollouts, monkeypatch):
  chex.clear_trace_counter()
  # Two traces: one to learn the shapes of the gradients, one to compile.
  monkeypatch.setattr(
    step_module,
    "token_loss",
    chex.assert_max_traces(n=2)(step_module.token_loss),
  )
  recipe = WEIGHTINGS["token_mean"]
  optimizer = make_optimizer(OPTIONS)
  step = make_train_step(recipe, model, optimizer, temperature=1.0)
  split = make_minibatches(recipe, minibatches=2, microbatches=2)
  state = init_state(params, optimizer)
  for seed in range(3):
    batches = split(random_rollouts(seed=seed), {})[0]
    for m in range(2):
      state, _ = step(state, jax.tree.map(lambda x, m=m: x[m], batches))


def test_scorer_scores_any_number_of_groups(model, params, random_rollouts):
  rollouts = random_rollouts(P=5)
  other = jax.tree.map(lambda x: x * 1.1, params)
  scorer = make_scorer(
    model, temperature=0.7, groups_per_call=2, ref_params=other
  )
  scored, seconds = scorer(params, (), rollouts)
  rows = completion_rows(
    *(
      jnp.asarray(np.repeat(x, 4, axis=0))
      for x in (rollouts.prompt_tokens, rollouts.prompt_lengths)
    ),
    jnp.asarray(rollouts.tokens.reshape(20, 6)),
  )
  for name, weights in (("old_logp", params), ("ref_logp", other)):
    expected = _score(
      weights,
      model,
      rows,
      jnp.asarray(rollouts.tokens.reshape(20, 6)),
      temperature=0.7,
    ).logp.reshape(5, 4, 6)
    np.testing.assert_allclose(
      getattr(scored, name), expected, rtol=1e-4, atol=1e-5
    )
  assert seconds > 0


def test_schedules():
  constant = make_schedule(OPTIONS)
  assert constant(0) == constant(1000) == pytest.approx(1e-2)
  warm = make_schedule(dataclasses.replace(OPTIONS, warmup_steps=4))
  assert [float(warm(i)) for i in (0, 2, 4, 9)] == pytest.approx(
    [0, 5e-3, 1e-2, 1e-2]
  )
  cosine = make_schedule(
    dataclasses.replace(OPTIONS, warmup_steps=2, decay_steps=10)
  )
  assert cosine(2) == pytest.approx(1e-2)
  assert cosine(10) == pytest.approx(0, abs=1e-8)
