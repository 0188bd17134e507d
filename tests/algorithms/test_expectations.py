"""Expected gradients, by going through all outcomes."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import penalties, recipes
from grpo_jax.algorithms.loss import optimizer_batch, prepare, token_loss
from grpo_jax.types import TokenScores, TrainBatch

T = 6


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


UNBIASED = {
  # Leave-one-out, and a baseline of earlier batches; Dr. GRPO's own is too
  # small by (G - 1) / G, as its completion is in its baseline.
  "rloo": (recipes.rloo(length_budget=1), 1.0),
  "reinforce_moving_average": (
    recipes.reinforce_moving_average(length_budget=1, kl_coefficient=0.0),
    1.0,
  ),
  "dr_grpo": (recipes.dr_grpo(length_budget=1), 2 / 3),
  "ppo": (recipes.ppo(length_budget=1, whiten=False), 1.0),
}


@pytest.mark.parametrize("name", UNBIASED)
def test_exact_gradient_of_a_softmax_bandit(name, make_rollouts):
  """Over all 64 groups of three pulls at four arms."""
  recipe, factor = UNBIASED[name]
  logits = jnp.asarray([0.3, -0.4, 0.8, 0.0])
  rewards = jnp.asarray([1.0, 0.2, -0.5, 0.7])
  groups = jnp.asarray(list(product(range(4), repeat=3)))

  def gradient(logits, arms):
    old = jax.nn.log_softmax(logits)[arms].reshape(1, 3, 1)
    rollouts = make_rollouts(
      rewards=rewards[arms][None],
      mask=jnp.ones((1, 3, 1), bool),
      old_logp=old,
      value=jnp.full((1, 3, 1), 0.4),
    )
    memory = {
      name: state._replace(mean=jnp.asarray(0.3))
      for name, state in recipe.initial_memory.items()
    }
    prepared, _ = prepare(recipe, rollouts, memory)
    batch = optimizer_batch(recipe, rollouts, prepared)

    def loss(logits):
      logp = jax.nn.log_softmax(logits)[arms][:, None]
      scores = TokenScores(logp=logp, entropy=logp, value=batch.old_logp * 0)
      return token_loss(recipe, scores, batch)[0]

    return jnp.exp(old.sum()) * jax.grad(loss)(logits)

  total = jax.jit(jax.vmap(gradient, (None, 0)))(logits, groups).sum(axis=0)
  of_mean_reward = jax.grad(lambda x: jax.nn.softmax(x) @ rewards)(logits)
  np.testing.assert_allclose(total, -factor * of_mean_reward, atol=1e-6)


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
