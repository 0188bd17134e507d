"""The critic is trained beside the policy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.models.critic import init_critic
from grpo_jax.training.batches import make_minibatches
from grpo_jax.training.scoring import make_scorer
from grpo_jax.training.step import (
  init_state,
  make_optimizer,
  make_train_step,
)
from tests.training.conftest import OPTIONS


@pytest.fixture(scope="module")
def scorer(model):
  return make_scorer(model, temperature=1.0, groups_per_call=4, ref_params=None)


@pytest.fixture
def trainer(model, params, random_rollouts, scorer):
  """Compiles the step of a recipe: (version, updates) to what comes of them."""

  def compiled(recipe):
    optimizer = make_optimizer(OPTIONS, recipe.critic)
    split = make_minibatches(recipe, minibatches=1, microbatches=2)
    step = make_train_step(recipe, model, optimizer, temperature=1.0)

    def run(version=0, updates=1):
      state = init_state(
        params,
        optimizer,
        critic=init_critic(recipe.critic.kind, params, model),
      )
      rollouts = random_rollouts()
      rollouts = rollouts.replace(
        version=np.full_like(rollouts.version, version)
      )
      explained = []
      for _ in range(updates):
        scored, _ = scorer(state.params, state.critic, rollouts)
        batch, _, metrics = jax.device_get(split(scored, {}))
        explained.append(float(metrics["value/explained_variance"][0]))
        state, metrics = step(state, jax.tree.map(lambda x: x[0], batch))
      assert metrics["update_skipped"][0] == 0
      return state, explained

    return run

  return compiled


def changed(before, after):
  differs = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, after)
  return any(jax.tree.leaves(differs))


@pytest.mark.parametrize("kind", ["head", "model"])
def test_both_learn_after_the_warm_up(kind, trainer, params, model):
  recipe = recipes.ppo(length_budget=6, critic=kind, critic_warmup_steps=2)
  start = init_critic(kind, params, model)
  train = trainer(recipe)
  for version in (1, 2):
    state, _ = train(version, updates=2)
    assert changed(start, state.critic)
    assert changed(params, state.params) == (version == 2)
    # Its optimizer has not begun either.
    policy = state.opt_state.inner_states["policy"]
    counts = optax.tree_utils.tree_get_all_with_path(policy, "count")
    assert {int(count) for _, count in counts} == {2 * (version - 1)}


def test_a_heads_loss_moves_the_trunk_that_it_shares(trainer, params):
  """After the warm-up; without a pull of the policy's own loss."""
  moved = []
  for coefficient in (0.0, 1.0):
    recipe = recipes.ppo(
      length_budget=6, critic="head", value_coefficient=coefficient
    )
    recipe = recipe._replace(
      surrogate=lambda log_ratio, advantage, logp: (0.0 * logp, {})
    )
    # The second update is the first to see a head that is not zero.
    moved.append(changed(params, trainer(recipe)(updates=2)[0].params))
  assert moved == [False, True]


def test_the_critic_has_its_own_learning_rate(trainer, params, model):
  start = init_critic("model", params, model)
  moved = {}
  for factor in (1.0, 5.0):
    recipe = recipes.ppo(length_budget=6, critic_learning_rate_factor=factor)
    state, _ = trainer(recipe)()
    moved[factor] = jax.tree.map(
      lambda a, b: np.abs(a - b).max(),
      (state.params, state.critic),
      (params, start),
    )
  policies, critics = zip(*moved.values(), strict=True)
  jax.tree.map(np.testing.assert_array_equal, *policies)
  # Adam's first step has the size of the learning rate.
  np.testing.assert_allclose(critics[0]["weight"], 1e-2, rtol=1e-3)
  np.testing.assert_allclose(critics[1]["weight"], 5e-2, rtol=1e-3)


def test_the_critic_comes_to_explain_the_rewards(trainer):
  recipe = recipes.ppo(
    length_budget=6, trace_decay=1.0, value_clip=None, critic_warmup_steps=99
  )
  _, explained = trainer(recipe)(updates=40)
  assert abs(explained[0]) < 1e-5
  # Not all: before the first token, completions of a prompt look the same.
  assert explained[-1] > 0.7


def test_the_scorer_fills_in_values(model, params, random_rollouts):
  critic = init_critic("head", params, model)
  critic["bias"] = jnp.asarray(0.5)
  scorer = make_scorer(
    model, temperature=1.0, groups_per_call=2, ref_params=None
  )
  scored, _ = scorer(params, critic, random_rollouts(P=3))
  np.testing.assert_allclose(scored.value, 0.5)
  np.testing.assert_allclose(scored.final_value, 0.5)
  assert scored.final_value.shape == (3, 4)
  entropy = scored.entropy[scored.loss_mask]
  assert (entropy > 0).all() and (entropy <= np.log(20) + 1e-5).all()
