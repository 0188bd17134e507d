"""Algorithms that are each other's special cases."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import penalties, recipes
from grpo_jax.algorithms.ratios import clamped, token_log_ratio
from grpo_jax.algorithms.surrogates import (
  clipped_surrogate,
  without_off_policy_rows,
)
from grpo_jax.algorithms.weights import group_token_mean, token_mean
from grpo_jax.types import TokenScores, TrainBatch

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
  np.testing.assert_allclose(
    group_token_mean(mask, count_empty=True), token_mean(mask), rtol=1e-6
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
  np.testing.assert_allclose(
    adv.length_weighted_advantages(
      rollouts.outcome, mask, jnp.full(mask.shape, 3)
    ),
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
    ratio = clamped(token_log_ratio, limit=20.0)(
      logp, rollouts.old_logp[0], mask
    )
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
    masked = plain._replace(
      surrogate=without_off_policy_rows(plain.surrogate, threshold=threshold)
    )
    grad = loss_and_grad(masked, rollouts, logp)[1][0]
    expected = loss_and_grad(plain, rollouts, logp)[1][0]
    np.testing.assert_array_equal(
      grad, expected.at[jnp.asarray(dropped, int)].set(0.0)
    )


def test_a_cap_below_the_clip_is_refused():
  one = jnp.ones((1, 1))
  with pytest.raises(ValueError, match="ratio_cap"):
    clipped_surrogate(one, one, one, eps_low=0.2, eps_high=0.28, ratio_cap=1.2)


def bandit_gradient(advantages, p, G):
  """E[sum_i A_i d log pi(a_i) / d theta] / G over all outcomes of G pulls."""
  total = 0.0
  for outcome in product((0.0, 1.0), repeat=G):
    rewards = jnp.asarray([outcome])
    A = advantages(rewards, jnp.ones((1, G), bool))[0]
    chance = np.prod([p if r else 1 - p for r in outcome])
    total += chance * float(jnp.mean(A * (rewards[0] - p)))
  return total


@pytest.mark.parametrize(
  ("name", "advantages"),
  [
    ("rloo", adv.leave_one_out_advantages),
    (
      "dr_grpo",
      partial(adv.group_relative_advantages, scale="none", ddof=0, eps=0.0),
    ),
    (
      "grpo_ddof0",
      partial(
        adv.group_relative_advantages, scale="group_std", ddof=0, eps=0.0
      ),
    ),
    (
      "grpo_ddof1",
      partial(
        adv.group_relative_advantages, scale="group_std", ddof=1, eps=0.0
      ),
    ),
    ("maxrl", partial(adv.maximum_likelihood_advantages, eps=0.0)),
  ],
)
def test_exact_gradient_of_a_bandit(name, advantages, golden):
  _, outputs = golden("bernoulli_bandit_exact_gradients")
  jitted = jax.jit(advantages)
  for row in outputs["rows"]:
    if row["G"] <= 4:
      expected = row["expected"][name]
      actual = bandit_gradient(jitted, row["p"], row["G"])
      assert actual == pytest.approx(expected, rel=1e-4)
      if name == "rloo":
        assert actual == pytest.approx(row["true_grad_J"], rel=1e-4)


def test_expected_gradients_of_kl_estimators():
  """k2 and weighted k3 pull along KL(pi || ref), k3 along KL(ref || pi)."""
  with jax.enable_x64(True):
    logits = jnp.asarray([0.3, -0.4, 0.8])
    ref = jax.nn.log_softmax(jnp.asarray([-0.2, 0.5, 0.1]))
    old = jax.nn.log_softmax(jnp.asarray([0.1, 0.2, 0.3]))

    def expected_gradient(penalty, sampled_from):
      """Sum over actions of p(a) grad penalty(a); p is held constant."""

      def loss(logits):
        logp = jax.nn.log_softmax(logits)[None]
        batch = TrainBatch(
          rows=None,
          tokens=None,
          loss_mask=jnp.ones((1, 3), bool),
          weight=None,
          advantage=None,
          old_logp=sampled_from[None],
          ref_logp=ref[None],
        )
        values = penalty(TokenScores(logp=logp, entropy=None), batch)
        return jnp.sum(jnp.exp(sampled_from) * values[0])

      return jax.grad(loss)(logits)

    def kl(logits, forward):
      logp = jax.nn.log_softmax(logits)
      first, second = (logp, ref) if forward else (ref, logp)
      return jnp.sum(jnp.exp(first) * (first - second))

    pi = jax.nn.log_softmax(logits)
    same = partial(np.testing.assert_allclose, rtol=1e-10)
    towards = jax.grad(kl)(logits, True)
    same(expected_gradient(penalties.kl_k2, pi), towards)
    same(expected_gradient(penalties.kl_weighted_k3, pi), towards)
    same(expected_gradient(penalties.kl_weighted_k3, old), towards)
    same(expected_gradient(penalties.kl_k3, pi), jax.grad(kl)(logits, False))
    k1 = expected_gradient(lambda s, b: s.logp - b.ref_logp, pi)
    np.testing.assert_allclose(k1, 0, atol=1e-12)
