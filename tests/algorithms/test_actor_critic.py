"""PPO and VAPO: their advantages, their critic's loss, and the warm-up."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.loss import optimizer_batch, prepare, token_loss
from grpo_jax.algorithms.weights import token_mean
from grpo_jax.types import TokenScores

T = 6


def value_gradient(recipe, rollouts, values):
  """Loss and its gradient in the critic's values `[P, G, T]`."""
  prepared, _ = prepare(recipe, rollouts, {})
  batch = optimizer_batch(recipe, rollouts, prepared)
  logp = rollouts.old_logp.reshape(batch.tokens.shape)

  def loss(values):
    scores = TokenScores(
      logp=logp, entropy=-logp, value=values.reshape(logp.shape)
    )
    return token_loss(recipe, scores, batch)[0]

  return jax.value_and_grad(loss)(values)


def test_undecayed_traces_without_values_are_rewards_to_go(
  random_batch, loss_and_grad
):
  rollouts, logp = random_batch(0)
  rollouts = rollouts.replace(value=jnp.zeros_like(logp))
  ppo = recipes.ppo(length_budget=T, trace_decay=1.0, kl_coefficient=0.1)
  other = recipes.reinforce_plus_plus(length_budget=T, kl_coefficient=0.1)
  other = other._replace(weights=token_mean)
  actual, expected = (
    loss_and_grad(recipe, rollouts, logp)[1] for recipe in (ppo, other)
  )
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def test_advantages_and_targets_by_hand(make_rollouts):
  """One completion of three tokens, reward 1, gamma 1, lambda 0.5."""
  rollouts = make_rollouts(
    rewards=[[1.0]],
    mask=[[[1, 1, 1, 0]]],
    old_logp=jnp.zeros((1, 1, 4)),
    value=[[[0.2, 0.4, 0.5, 9.0]]],
  )
  recipe = recipes.ppo(length_budget=4, trace_decay=0.5, whiten=False)
  prepared, _ = prepare(recipe, rollouts, {})
  # delta = 0.2, 0.1, 0.5
  advantage = [0.2 + 0.5 * 0.35, 0.1 + 0.5 * 0.5, 0.5, 0.0]
  np.testing.assert_allclose(prepared.advantage[0, 0], advantage, rtol=1e-6)
  target = np.add(advantage, [0.2, 0.4, 0.5, 0.0])
  np.testing.assert_allclose(prepared.target[0, 0], target, rtol=1e-6)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_cut_is_an_end_unless_told(bootstrap, random_batch):
  rollouts, _ = random_batch(1)
  recipe = recipes.ppo(
    length_budget=T, bootstrap_truncated=bootstrap, whiten=False
  )
  other = rollouts.replace(final_value=rollouts.final_value + 1.0)
  before, after = (
    prepare(recipe, r, {})[0].advantage for r in (rollouts, other)
  )
  changed = (before != after).any(-1)
  expected = rollouts.truncated if bootstrap else np.zeros_like(changed)
  np.testing.assert_array_equal(changed, expected)


def test_the_critics_gradient_is_that_of_its_error(random_batch):
  rollouts, _ = random_batch(2)
  recipe = recipes.ppo(length_budget=T, value_coefficient=0.3, value_clip=None)
  target = prepare(recipe, rollouts, {})[0].target
  values = rollouts.value + 0.1
  _, gradient = value_gradient(recipe, rollouts, values)
  mask = rollouts.loss_mask
  expected = np.where(mask, 0.3 * (values - target) / mask.sum(), 0.0)
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-7)


def test_monte_carlo_targets_of_vapo_are_the_rewards(random_batch):
  rollouts, _ = random_batch(3)
  recipe = recipes.vapo(length_budget=T)
  target = prepare(recipe, rollouts, {})[0].target
  outcome = rollouts.outcome[..., None]
  np.testing.assert_allclose(
    target, np.where(rollouts.loss_mask, outcome, 0.0), rtol=1e-5, atol=1e-6
  )


def test_only_the_critic_learns_in_its_warm_up(random_batch, loss_and_grad):
  rollouts, logp = random_batch(4)
  recipe = recipes.vapo(length_budget=T, critic_warmup_steps=3)
  for version, learns in ((2, False), (3, True)):
    aged = rollouts.replace(version=jnp.full_like(rollouts.version, version))
    assert loss_and_grad(recipe, aged, logp)[1].any() == learns
    assert value_gradient(recipe, aged, rollouts.value)[1].any()


def test_likelihood_of_right_answers_is_a_mean_over_their_tokens(
  random_batch, loss_and_grad
):
  rollouts, logp = random_batch(5)
  with_it, without = (
    loss_and_grad(
      recipes.vapo(
        length_budget=T, critic_warmup_steps=0, nll_coefficient=coefficient
      ),
      rollouts,
      logp,
    )[1]
    for coefficient in (0.1, 0.0)
  )
  right = rollouts.loss_mask & (rollouts.accuracy > 0.5)[..., None]
  expected = np.where(right, -0.1 / right.sum(), 0.0)
  np.testing.assert_allclose(with_it - without, expected, atol=1e-6)
  wrong = rollouts.replace(accuracy=jnp.zeros_like(rollouts.accuracy))
  scale = prepare(recipes.vapo(length_budget=T), wrong, {})[0].scales[0]
  assert not scale.any()


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"critic": "other"}, "critic"),
    ({"value_clip": -1.0}, "value_clip"),
    ({"critic_learning_rate_factor": 0.0}, "critic_learning_rate_factor"),
    ({"critic_warmup_steps": -1}, "critic_warmup_steps"),
  ],
)
def test_bad_arguments_are_named(options, message):
  with pytest.raises(ValueError, match=message):
    inspect.unwrap(recipes.ppo)(length_budget=T, **options)
