"""Algorithms that are each other's special cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.ratios import clamped, token_log_ratio
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.algorithms.surrogates import clipped_surrogate
from grpo_jax.algorithms.weights import group_token_mean, token_mean

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
  batch = random_batch(1, P=6)
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


def test_sequence_ratios_of_one_token_are_grpo(random_batch, loss_and_grad):
  batch = random_batch(5, T=1)
  clips = {"length_budget": 1, "eps_low": 0.2, "eps_high": 0.2}
  grpo = recipes.grpo(length_budget=1)
  for name in ("gspo", "gspo_token", "luspo"):
    assert_same(getattr(recipes, name)(**clips), grpo, batch, loss_and_grad)
  rloo = recipes.rloo(length_budget=1, ratio="sequence")
  assert_same(
    rloo._replace(advantages=grpo.advantages), grpo, batch, loss_and_grad
  )


def test_gspo_token_is_gspo(random_batch, loss_and_grad):
  clips = {"length_budget": T, "eps_low": 0.05, "eps_high": 0.05}
  assert_same(
    recipes.gspo_token(**clips),
    recipes.gspo(**clips),
    random_batch(6),
    loss_and_grad,
  )


def test_rloo_is_dr_grpo_times_g_over_g_minus_1(random_batch, loss_and_grad):
  rollouts, logp = random_batch(7, G=5)
  dr_grpo = recipes.dr_grpo(length_budget=1)
  gradients = [
    loss_and_grad(recipe, rollouts, logp)[1]
    for recipe in (
      recipes.rloo(length_budget=1),
      dr_grpo._replace(surrogate=recipes.gpg(length_budget=1).surrogate),
    )
  ]
  np.testing.assert_allclose(gradients[0], gradients[1] * 5 / 4, rtol=1e-5)


def test_group_token_mean_of_one_group_is_the_token_mean(random_batch):
  mask = random_batch(8, P=1)[0].loss_mask
  exists = jnp.ones(1, bool)
  np.testing.assert_allclose(
    group_token_mean(mask, exists, count_empty=True),
    token_mean(mask, exists),
    rtol=1e-6,
  )


def test_pass_at_1_is_grpo_on_accuracy(random_batch, loss_and_grad):
  rollouts, logp = random_batch(9)
  rollouts = rollouts.replace(outcome=rollouts.accuracy)
  assert_same(
    recipes.pass_at_k(length_budget=T, k=1),
    recipes.grpo(length_budget=T, ddof=0, std_eps=0.0),
    (rollouts, logp),
    loss_and_grad,
  )


def test_opo_of_equal_lengths_is_centred(random_batch):
  rollouts, _ = random_batch(10)
  mask = rollouts.sample_mask
  equal = rollouts.replace(lengths=jnp.full(mask.shape, 3))
  np.testing.assert_allclose(
    adv.length_weighted_advantages(rollouts.outcome, equal),
    adv.group_relative_advantages(
      rollouts.outcome, mask, scale="none", ddof=0, eps=0.0
    ),
    rtol=1e-5,
    atol=1e-6,
  )


@pytest.mark.parametrize("centre", [True, False])
def test_no_correlation_with_length_is_left(centre, random_batch):
  rollouts, _ = random_batch(11, P=4)
  recipe = recipes.length_projected(length_budget=T, centre=centre)
  advantages = recipe.advantages(rollouts.outcome, rollouts)
  lengths = np.asarray(rollouts.lengths, float)
  if centre:
    lengths -= lengths.mean(-1, keepdims=True)
    np.testing.assert_allclose(advantages.sum(-1), 0, atol=1e-5)
  np.testing.assert_allclose((advantages * lengths).sum(-1), 0, atol=1e-5)
  assert jnp.abs(advantages).max() > 0.1


def test_clamped_ratios_are_finite_and_flat_outside(random_batch):
  rollouts, logp = random_batch(12)
  mask = rollouts.loss_mask[0]
  far = logp[0].at[0, 0].add(500.0)

  def total(logp):
    old = rollouts.old_logp[0]
    ratio = clamped(token_log_ratio, logp, old, mask, limit=20.0)
    return jnp.exp(ratio).sum()

  value, slope = jax.value_and_grad(total)(far)
  assert jnp.isfinite(value) and slope[0, 0] == 0
  np.testing.assert_allclose(
    jax.grad(total)(logp[0])[mask][1:], slope[mask][1:]
  )


def test_off_policy_rows(golden, golden_rollouts, loss_and_grad):
  rollouts, logp = golden_rollouts(golden("loss_grpo")[0])
  plain = recipes.grpo(length_budget=T)
  # mean(old - new) of the four rows: -0.2, -0.07, 0.03, -0.0375.
  for threshold, dropped in ((0.02, [2]), (0.04, [])):
    masked = pieces.off_policy_mask(plain, threshold=threshold)
    grad = loss_and_grad(masked, rollouts, logp)[1][0]
    expected = loss_and_grad(plain, rollouts, logp)[1][0]
    np.testing.assert_array_equal(
      grad, expected.at[jnp.asarray(dropped, int)].set(0.0)
    )


def test_a_cap_below_the_clip_is_refused():
  one = jnp.ones((1, 1))
  with pytest.raises(ValueError, match="ratio_cap"):
    clipped_surrogate(one, one, one, eps_low=0.2, eps_high=0.28, ratio_cap=1.2)
