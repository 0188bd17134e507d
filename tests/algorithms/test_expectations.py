"""Expected gradients, by going through all outcomes."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import penalties, recipes
from grpo_jax.algorithms.loss import optimizer_batch, prepare, token_loss
from grpo_jax.types import TokenScores
from tests.algorithms.oracles import penalty_batch

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


def test_maxrl_is_the_truncated_likelihood_less_its_baseline(golden):
  """The golden one has none: (1/K) sum r S = ours + mean S where K > 0."""
  case, expected = golden("maxrl_unbiased_for_truncated_ml")
  p, N = case["p"], case["N"]

  def with_mean_score(rewards, sample_mask):
    ours = adv.maximum_likelihood_advantages(rewards, sample_mask, eps=0.0)
    return ours + rewards.any(axis=-1, keepdims=True)

  actual = bandit_gradient(jax.jit(with_mean_score), p, N)
  assert actual == pytest.approx(expected["expected_estimator"], rel=1e-5)


def test_difficulty_weights(golden):
  """How much a problem that is solved with chance p pulls, by algorithm."""
  _, outputs = golden("difficulty_weights")
  G = 512
  success = np.arange(G) < np.arange(G + 1)[:, None]  # k of G are right
  rewards = jnp.asarray(success, jnp.float32)
  mask = jnp.ones(success.shape, bool)

  def expected_pull(advantages, p):
    # sum of A is 0, so the gradient is the mean of A r; k is binomial.
    pull = np.mean(advantages * rewards, axis=1, dtype=float)
    return np.sum(binom.pmf(np.arange(G + 1), G, p) * pull)

  relative = partial(adv.group_relative_advantages, rewards, mask, ddof=0)
  dr_grpo = relative(scale="none", eps=0.0)
  grpo = relative(scale="group_std", eps=0.0)
  maxrl = adv.maximum_likelihood_advantages(rewards, mask, eps=0.0)
  for row in outputs["rows"]:
    p = row["p"]
    gain = expected_pull(dr_grpo, p)
    assert gain == pytest.approx(row["gain_drgrpo"], rel=2 / G)
    root = expected_pull(grpo, p)
    assert root == pytest.approx(row["gain_grpo_sqrt"], rel=2e-2)
    assert root / gain == pytest.approx(row["grpo_1_over_sqrt"], rel=2e-2)
    # 512 pulls are nearly the whole likelihood, 16 not for rare successes.
    assert expected_pull(maxrl, p) / gain == pytest.approx(row["ml"], rel=1e-2)


def test_kl_estimators_of_two_gaussians(golden):
  """Bias and spread of k1, k2, k3 under samples of the policy, N(0, 1)."""
  _, outputs = golden("schulman_gaussian_toy")
  x, weight = np.polynomial.hermite_e.hermegauss(80)
  weight = weight / weight.sum()
  with jax.enable_x64(True):
    for row in outputs["rows"]:
      mu, true = row["mu"], row["true_kl"]
      logp, ref = (jnp.asarray(-((x - m) ** 2) / 2)[None] for m in (0.0, mu))
      batch = penalty_batch(np.ones(logp.shape), old_logp=logp, ref_logp=ref)
      scores = TokenScores(logp=logp, entropy=None)
      values = {
        "k1": logp - ref,
        "k2": penalties.kl_k2(scores, batch),
        "k3": penalties.kl_k3(scores, batch),
      }
      for name, value in values.items():
        mean = np.sum(weight * value[0])
        std = np.sqrt(np.sum(weight * (value[0] - mean) ** 2))
        assert std / true == pytest.approx(row[f"{name}_std_over_true"])
        bias = row.get(f"{name}_bias", row.get(f"{name}_bias_over_true"))
        assert mean / true - 1 == pytest.approx(bias, abs=1e-9)


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
        batch = penalty_batch(
          np.ones((1, 3)), old_logp=sampled_from[None], ref_logp=ref[None]
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
