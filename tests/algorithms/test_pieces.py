"""What each piece does to a recipe; what must not matter is tested for all."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import corrections, recipes
from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.recipes import pieces

T = 6
GRPO = recipes.grpo(length_budget=T, ddof=0, std_eps=0.0)


def test_kl_cov_is_the_golden_case(
  golden, golden_rollouts, loss_and_grad, close
):
  """With the covariances of the policy at sampling, as the case has them."""
  case, expected = golden("cov_terms")
  rollouts, logp = golden_rollouts(case)
  base = GRPO._replace(
    weights=recipes.dapo(length_budget=T).weights,
    surrogate=lambda log_ratio, A, logp: (-jnp.exp(log_ratio) * A, {}),
  )
  recipe = pieces.kl_cov(
    base, fraction=case["k_ratio"], coefficient=case["ppo_kl_coef"]
  )
  # The case chooses by the policy's log-probabilities, the piece by those at
  # sampling: so it chooses from the former, and the loss has the latter.
  choose = recipe.penalties[0].scale
  term = recipe.penalties[0]._replace(
    scale=lambda r, A: choose(r.replace(old_logp=logp), A)
  )
  recipe = recipe._replace(penalties=(term,))
  chosen = np.argwhere(prepare(recipe, rollouts, {})[0].scales[0][0])
  assert sorted(chosen.tolist()) == sorted(expected["kl_cov_selected"])
  loss, gradient, _ = loss_and_grad(recipe, rollouts, logp)
  close(loss, expected["kl_cov_loss"])
  close(gradient[0], expected["kl_cov_grad_logp_new"])


def test_clip_cov_takes_the_pull_of_some_candidates(random_batch):
  rollouts, _ = random_batch(0, P=4, G=6)
  recipe = pieces.clip_cov(GRPO, fraction=0.1, lowest=0.2, highest=2.0)

  before = prepare(GRPO, rollouts, {})[0].advantage
  memory, draws = recipe.initial_memory, []
  for _ in range(2):
    prepared, memory = prepare(recipe, rollouts, memory)
    draws.append((before != 0) & (prepared.advantage == 0))
  tokens = int(rollouts.loss_mask.sum())
  covariance = corrections.token_covariance(
    rollouts.old_logp, before, rollouts.loss_mask
  )
  for dropped in draws:
    assert 0 < dropped.sum() <= tokens // 10
    assert ((covariance > 0.2) & (covariance < 2.0))[dropped].all()
  assert (draws[0] != draws[1]).any()
  again = prepare(recipe, rollouts, recipe.initial_memory)[0].advantage
  np.testing.assert_array_equal((before != 0) & (again == 0), draws[0])


def test_filtered_completions_are_not_chosen_from(random_batch):
  rollouts, _ = random_batch(3, P=4, G=6)
  recipe = pieces.kl_cov(recipes.dapo(length_budget=T), fraction=0.2)
  prepared, _ = prepare(recipe, rollouts, {})
  trained = int(prepared.loss_mask.sum())
  assert trained < int(rollouts.loss_mask.sum())
  assert int(prepared.scales[0].sum()) == trained // 5


def test_high_entropy_tokens_alone_are_trained_on(random_batch, loss_and_grad):
  rollouts, logp = random_batch(1)
  recipe = pieces.high_entropy_tokens(GRPO, fraction=0.2)
  gradient = loss_and_grad(recipe, rollouts, logp)[1]
  plain = loss_and_grad(GRPO, rollouts, logp)[1]
  mask = rollouts.loss_mask
  entropy = np.sort(np.asarray(rollouts.entropy)[mask])[::-1]
  lowest = entropy[int(0.2 * mask.sum()) - 1]
  chosen = mask & (rollouts.entropy >= lowest)
  np.testing.assert_allclose(
    gradient, np.where(chosen, plain, 0.0), rtol=1e-6, atol=1e-8
  )


def test_sampler_correction_weighs_the_gradient(random_batch, loss_and_grad):
  rollouts, logp = random_batch(1)
  plain = recipes.dapo(length_budget=6, overlong_penalty=0.0)
  recipe = pieces.sampler_correction(
    plain, level="token", outside="mask", lowest=0.7, highest=1.4
  )
  weight = np.exp(rollouts.old_logp - rollouts.behaviour_logp)
  weight = np.where((weight < 0.7) | (weight > 1.4), 0.0, weight)
  np.testing.assert_allclose(
    loss_and_grad(recipe, rollouts, logp)[1],
    weight * loss_and_grad(plain, rollouts, logp)[1],
    rtol=1e-5,
    atol=1e-7,
  )


def test_kl_in_the_reward_lowers_it_by_k1(random_batch):
  rollouts, _ = random_batch(2)
  recipe = pieces.kl_in_reward(GRPO, coefficient=0.1)
  k1 = np.where(rollouts.loss_mask, rollouts.old_logp - rollouts.ref_logp, 0.0)
  np.testing.assert_allclose(
    recipe.shape_rewards(rollouts),
    rollouts.outcome - 0.1 * k1.sum(-1),
    rtol=1e-5,
  )
  assert recipe.needs_reference


@pytest.mark.parametrize(
  ("piece", "options", "message"),
  [
    ("dual_clip", {"ratio_cap": 1.1}, "ratio_cap"),
    ("kl_loss", {"coefficient": 0.1, "estimator": "k1"}, "expectation"),
    ("kl_in_reward", {"coefficient": -0.1}, "coefficient"),
    (
      "sampler_correction",
      {"level": "sequences", "outside": "mask"},
      "level",
    ),
  ],
)
def test_bad_arguments_are_named(piece, options, message):
  with pytest.raises(ValueError, match=message):
    inspect.unwrap(getattr(pieces, piece))(GRPO, **options)


@pytest.mark.parametrize("piece", ["kl_loss", "kl_in_reward"])
def test_a_second_kl_is_refused(piece):
  options = {"estimator": "k3"} if piece == "kl_loss" else {}
  recipe = recipes.reinforce_plus_plus(length_budget=T)
  with pytest.raises(ValueError, match="already"):
    getattr(pieces, piece)(recipe, coefficient=0.1, **options)


def test_drift_per_token_needs_token_ratios():
  with pytest.raises(ValueError, match="token ratios"):
    pieces.off_policy_mask(recipes.gspo(length_budget=T), threshold=0.5)


def test_a_dual_clip_needs_a_clip():
  with pytest.raises(ValueError, match="clip"):
    pieces.dual_clip(recipes.rloo(length_budget=T))
