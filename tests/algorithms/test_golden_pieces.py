"""Shaped rewards, penalties and covariances of golden.json."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import (
  corrections,
  penalties,
  recipes,
  shaping,
)
from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.surrogates import clipped_surrogate
from grpo_jax.types import TokenScores
from tests.algorithms.oracles import penalty_batch

grpo = partial(recipes.grpo, length_budget=6, ddof=0, std_eps=0.0)


def test_dynamic_sampling(golden, make_rollouts, dtype):
  case, expected = golden("dynamic_sampling")
  accuracy = jnp.asarray(case["rewards"], dtype)
  ones = jnp.ones((*accuracy.shape, 1), dtype)
  rollouts = make_rollouts(
    rewards=accuracy, mask=ones, old_logp=ones, dtype=dtype
  )
  keep = recipes.dapo(length_budget=6).keep_groups(rollouts)
  assert keep.tolist() == expected["keep"]


def test_dynamic_sampling_looks_at_accuracy(
  golden, make_rollouts, dtype, close
):
  case, expected = golden("dynamic_sampling_vs_shaped")
  shaped = np.add(case["acc"], case["len_penalty"])
  ones = jnp.ones((1, 4, 1))
  rollouts = make_rollouts(
    rewards=shaped,
    mask=ones,
    old_logp=ones,
    accuracy=case["acc"],
    dtype=dtype,
  )
  assert (
    recipes.dapo(length_budget=6).keep_groups(rollouts).tolist()
    == expected["keep_by_acc"]
  )
  prepared, _ = prepare(grpo(), rollouts, {})
  advantage = prepared.advantage
  close(advantage[0, :, 0], expected["adv_shaped_ddof0"])


@pytest.mark.parametrize("name", ["soft_overlong_paper", "soft_overlong_small"])
def test_soft_overlong_penalty(name, golden, dtype, close):
  case, expected = golden(name)
  penalty = shaping.soft_overlong_penalty(
    jnp.asarray([case["lengths"]]),
    max_tokens=case["L_max"],
    buffer_tokens=case["L_cache"],
  )
  close(penalty[0], expected["R_length"])


def test_overlong_indicator(golden, dtype, close):
  case, expected = golden("seed_overlong_indicator")
  rewards = jnp.asarray(case["rewards"], dtype)
  penalty = shaping.soft_overlong_penalty(
    jnp.asarray([case["lengths"]]), max_tokens=case["L_max"], buffer_tokens=0
  )
  close(rewards + case["lambda"] * penalty[0], expected["reward"])


@pytest.mark.parametrize("name", ["kimi_len_reward", "kimi_len_reward_equal"])
def test_kimi_length_reward(name, golden, dtype, close):
  case, expected = golden(name)
  correct = jnp.asarray([case["correct"]], bool)
  reward = shaping.relative_length_reward(
    jnp.asarray([case["lengths"]]), correct, jnp.ones_like(correct)
  )
  close(reward[0], expected["len_reward"])


def test_clipped_value_loss(golden, dtype, close):
  case, expected = golden("value_loss_clip")
  arrays = [
    jnp.asarray([case[name]], dtype)
    for name in ("values", "old_values", "returns")
  ]
  loss = penalties.clipped_value_loss(*arrays, clip=case["clip"])
  close(2 * loss[0], expected["per_token_max_sq"])
  close(loss.mean(), expected["half_mean"])


def test_adaptive_kl_coefficient(golden, dtype, close):
  case, expected = golden("ppo_adaptive_kl")
  beta = jnp.asarray(case["beta0"], dtype)
  for kl, after in zip(case["kl"], expected["beta"], strict=True):
    beta = penalties.adaptive_kl_coefficient(
      beta, jnp.asarray(kl, dtype), target=case["d_targ"]
    )
    close(beta, after)


@pytest.mark.parametrize(
  ("penalty", "key"), [(penalties.kl_k2, "k2"), (penalties.kl_k3, "k3")]
)
def test_kl_estimators(penalty, key, golden, dtype, close):
  _, expected = golden("kl_estimators_table")
  rows = expected["rows"]
  logp = jnp.asarray([[row["logp_minus_ref"] for row in rows]], dtype)
  zeros = jnp.zeros_like(logp)
  batch = penalty_batch(np.ones(logp.shape), old_logp=zeros, ref_logp=zeros)

  def total(logp):
    values = penalty(TokenScores(logp=logp, entropy=zeros), batch)
    return values.sum(), values

  slopes, values = jax.grad(total, has_aux=True)(logp)
  close(values[0], [row[key] for row in rows])
  close(slopes[0], [row[f"d{key}"] for row in rows])


def test_covariance(golden, golden_rollouts, dtype, close):
  case, expected = golden("cov_terms")
  rollouts, logp = golden_rollouts(case)
  mask = rollouts.loss_mask
  prepared, _ = prepare(grpo(), rollouts, {})
  advantage = prepared.advantage
  covariance = corrections.token_covariance(logp, advantage, mask)
  close(covariance[0], expected["cov"])
  close(covariance.sum() / mask.sum(), expected["mean_cov"])
  chosen = corrections.largest_fraction(
    covariance, mask, mask, fraction=case["k_ratio"]
  )
  assert sorted(np.argwhere(chosen[0]).tolist()) == sorted(
    expected["kl_cov_selected"]
  )
  log_ratio = logp - rollouts.old_logp
  _, counts = clipped_surrogate(
    log_ratio[0], advantage[0], logp[0], eps_low=0.2, eps_high=0.2
  )
  low, high = case["omega"]
  clipped = counts["clip_ratio/low_mean"] | counts["clip_ratio/high_mean"]
  candidates = mask & ~clipped[None] & (covariance > low) & (covariance < high)
  np.testing.assert_array_equal(candidates[0], expected["clip_cov_candidates"])
  per_token = -jnp.exp(log_ratio) * advantage
  per_token += case["ppo_kl_coef"] * jnp.abs(log_ratio) * chosen
  close(
    jnp.sum(jnp.where(mask, per_token, 0.0)) / mask.sum(),
    expected["kl_cov_loss"],
  )


# A fit and an exchange rate that are no algorithm's.
ELSEWHERE = {"entropy_performance_fit", "snell_flops_exchange"}


def test_every_case_is_used(golden):
  tests = "".join(
    path.read_text() for path in Path(__file__).parent.glob("test_*.py")
  )
  mentions = {name: tests.count(f'"{name}"') for name in golden.ids}
  # Those of the list above are mentioned there.
  unused = {n for n, count in mentions.items() if count <= (n in ELSEWHERE)}
  assert unused == ELSEWHERE
