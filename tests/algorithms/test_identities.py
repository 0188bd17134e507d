"""Algorithms that are each other's special cases."""

import jax.numpy as jnp
import numpy as np

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.weights import token_mean

T = 6


def assert_same(first, second, batch, loss_and_grad):
  for a, b in zip(
    loss_and_grad(first, *batch)[:2],
    loss_and_grad(second, *batch)[:2],
    strict=True,
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_dapo_without_its_techniques_is_grpo(random_batch, loss_and_grad):
  plain = recipes.dapo(
    length_budget=T,
    eps_high=0.2,
    dynamic_sampling=False,
    token_level_loss=False,
    overlong_penalty=0.0,
    overlong_filter=False,
  )
  grpo = recipes.grpo(length_budget=T)
  assert_same(plain, grpo, random_batch(0), loss_and_grad)


def test_each_technique_of_dapo_changes_something(random_batch, loss_and_grad):
  batch = random_batch(1)
  full = {"length_budget": T, "overlong_buffer": 3, "std_eps": 1e-4}
  loss = loss_and_grad(recipes.dapo(**full), *batch)[0]
  for change in (
    {"eps_high": 0.2},
    {"token_level_loss": False},
    {"overlong_penalty": 0.0},
    {"overlong_filter": False},
  ):
    other = loss_and_grad(recipes.dapo(**full | change), *batch)[0]
    assert abs(loss - other) > 1e-4, change
  rollouts = batch[0].replace(accuracy=jnp.ones_like(batch[0].accuracy))
  assert not recipes.dapo(**full).keep_groups(rollouts).any()
  assert (
    recipes.dapo(**full, dynamic_sampling=False).keep_groups(rollouts).all()
  )


def test_dapo_with_equal_clips_is_grpo_with_token_weights(
  random_batch, loss_and_grad
):
  dapo = recipes.dapo(
    length_budget=T, eps_high=0.2, overlong_penalty=0.0, overlong_filter=False
  )
  grpo = recipes.grpo(length_budget=T)._replace(weights=token_mean)
  assert_same(dapo, grpo, random_batch(2, P=1), loss_and_grad)


def test_on_policy_gradient_is_the_policy_gradient(random_batch, loss_and_grad):
  rollouts, _ = random_batch(3)
  grpo = recipes.grpo(length_budget=T)
  gradients = [
    loss_and_grad(recipe, rollouts, rollouts.old_logp)[1]
    for recipe in (
      grpo,
      grpo._replace(surrogate=recipes.supervised(length_budget=T).surrogate),
    )
  ]
  np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-7)


def test_dr_grpo_ignores_own_length_and_spread(random_batch, loss_and_grad):
  rollouts, logp = random_batch(4)
  recipe = recipes.dr_grpo(length_budget=T)
  gradient = loss_and_grad(recipe, rollouts, logp)[1]
  doubled = rollouts.replace(outcome=2 * rollouts.outcome)
  np.testing.assert_allclose(
    loss_and_grad(recipe, doubled, logp)[1], 2 * gradient, rtol=1e-5
  )
  wider = recipes.dr_grpo(length_budget=2 * T)
  np.testing.assert_allclose(
    2 * loss_and_grad(wider, rollouts, logp)[1], gradient, rtol=1e-5
  )
