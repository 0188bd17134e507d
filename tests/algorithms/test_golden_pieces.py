"""Advantages, shaped rewards and masks of golden.json, piece by piece."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import (
  batch_advantages,
  corrections,
  penalties,
  recipes,
  returns,
  shaping,
)
from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.surrogates import clipped_surrogate
from grpo_jax.types import TokenScores, TrainBatch

grpo = partial(recipes.grpo, length_budget=6, ddof=0, std_eps=0.0)


def groups(case, dtype, name="rewards"):
  """Rewards [P, G] of a case, and a mask that keeps them all."""
  P = len(set(case.get("group_ids", [0])))
  values = jnp.asarray(case[name], dtype).reshape(P, -1)
  return values, jnp.ones(values.shape, bool)


@pytest.mark.parametrize(
  "name", ["adv_grpo_bal", "adv_grpo_one_of_four", "adv_grpo_pm1"]
)
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("eps", ["0", "1e-4", "1e-6"])
def test_group_relative_advantages(name, ddof, eps, golden, dtype, close):
  case, expected = golden(name)
  key = f"adv_ddof{ddof}_eps{eps}"
  if key not in expected:
    pytest.skip(f"{name} has no {key}")
  rewards = jnp.asarray([case["rewards"]], dtype)
  advantages = adv.group_relative_advantages(
    rewards,
    jnp.ones(rewards.shape, bool),
    scale="group_std",
    ddof=ddof,
    eps=float(eps),
  )
  close(advantages[0], expected[key])


@pytest.mark.parametrize(
  ("name", "key"),
  [
    ("adv_equal_all_one", "grpo"),
    ("adv_equal_all_zero", "grpo"),
    ("adv_G1_r0", "grpo_zero_convention"),
    ("adv_G1_rneg", "grpo_zero_convention"),
  ],
)
@pytest.mark.parametrize("scale", ["group_std", "none"])
def test_no_advantage_without_a_difference(
  name, key, scale, golden, dtype, close
):
  case, expected = golden(name)
  rewards = jnp.asarray([case["rewards"]], dtype)
  mask = jnp.ones(rewards.shape, bool)
  assert adv.tied(rewards, mask).all()
  advantages = adv.group_relative_advantages(
    rewards, mask, scale=scale, ddof=1, eps=0.0
  )
  close(advantages[0], expected[key])


@pytest.mark.parametrize(
  ("name", "key"),
  [
    ("rloo_vs_drgrpo_identity", "rloo"),
    ("adv_equal_all_one", "rloo"),
    ("adv_G1_r0", "rloo_zero_convention"),
    ("adv_G1_rneg", "rloo_zero_convention"),
  ],
)
def test_leave_one_out(name, key, golden, dtype, close):
  case, expected = golden(name)
  rewards, mask = groups(case, dtype)
  close(adv.leave_one_out_advantages(rewards, mask)[0], expected[key])
  if "dr_grpo_times_G_over_Gm1" in expected:
    G = case["G"]
    plain = adv.group_relative_advantages(
      rewards, mask, scale="none", ddof=0, eps=0.0
    )
    close(plain[0] * G / (G - 1), expected["dr_grpo_times_G_over_Gm1"])


@pytest.mark.parametrize(
  ("key", "scale", "ddof", "eps"),
  [
    ("adv_trl_batch_eps1e-4", "batch_std", 1, 1e-4),
    ("adv_scalerl_ddof0", "centred_batch_std", 0, 0.0),
  ],
)
def test_batch_std(key, scale, ddof, eps, golden, dtype, close):
  case, expected = golden("adv_batch_std")
  advantages = adv.group_relative_advantages(
    *groups(case, dtype), scale=scale, ddof=ddof, eps=eps
  )
  close(advantages.ravel(), expected[key])


def test_gpg(golden, dtype, close):
  case, expected = golden("adv_gpg")
  advantages = adv.rescaled_advantages(*groups(case, dtype))
  close(advantages.ravel(), expected["adv"])


@pytest.mark.parametrize("eps", ["0", "1e-6"])
def test_maxrl(eps, golden, dtype, close):
  case, expected = golden("adv_maxrl_one_of_four")
  advantages = adv.maximum_likelihood_advantages(
    *groups(case, dtype), eps=float(eps)
  )
  close(advantages[0], expected[f"adv_eps{eps}"])


@pytest.mark.parametrize("name", ["passk_N8_c2_k4", "passk_N4_c2_k1"])
def test_pass_at_k(name, golden, dtype, close):
  case, expected = golden(name)
  correct = jnp.arange(case["n"])[None] < case["n_correct"]
  advantages = adv.pass_at_k_advantages(
    correct, jnp.ones_like(correct), k=case["k"]
  )
  close(advantages[0], expected["adv_vector"])


def test_opo(dtype, close):
  # One right answer of the shortest length: baseline 2 / 20.
  rewards = jnp.asarray([[1.0, 0.0, 0.0, 0.0]], dtype)
  advantages = adv.length_weighted_advantages(
    rewards, jnp.ones((1, 4), bool), jnp.asarray([[2, 4, 6, 8]])
  )
  close(advantages[0], [0.9, -0.1, -0.1, -0.1])


def test_process_supervision(golden, dtype, close):
  case, expected = golden("adv_process_supervision")
  shape = (1, 4, max(case["lengths"]))
  step_rewards, step_mask = np.zeros(shape), np.zeros(shape, bool)
  for g, (ends, values) in enumerate(
    zip(case["step_end_index_0based"], case["step_rewards"], strict=True)
  ):
    step_rewards[0, g, ends] = values
    step_mask[0, g, ends] = True
  loss_mask = np.arange(shape[-1]) < np.asarray(case["lengths"])[:, None]
  advantages = returns.process_advantages(
    jnp.asarray(step_rewards, dtype),
    jnp.asarray(step_mask),
    jnp.asarray(loss_mask[None]),
    ddof=0,
    eps=0.0,
  )
  for g, row in enumerate(expected["adv"]):
    close(advantages[0, g, : len(row)], row)


@pytest.mark.parametrize(
  ("decay", "key", "after"),
  [
    (None, "adv_vs_previous_running_mean", "running_mean_after"),
    (0.9, "adv_vs_previous_ema", "ema_after"),
  ],
)
def test_moving_baseline(decay, key, after, golden, dtype, close):
  case, expected = golden("baseline_moving_average")
  state = batch_advantages.MovingBaseline(
    mean=jnp.zeros((), dtype), updates=jnp.zeros((), jnp.int32)
  )
  for i, mean in enumerate(case["batch_mean_rewards"]):
    rewards = jnp.full((1, 2), mean, dtype)
    advantages, state = batch_advantages.moving_baseline_advantages(
      state, rewards, jnp.ones((1, 2), bool), decay=decay
    )
    close(advantages[0, 0], expected[key][i])
    close(state.mean, expected[after][i])


# (key, ddof, where eps goes) of the three conventions.
NORMALISED = [
  ("adv_openrlhf_var0_clamp1e-8", 0, "variance_floor"),
  ("adv_verl_var1_plus1e-8", 1, "variance"),
  ("adv_std0_plus1e-8", 0, "std"),
]


@pytest.mark.parametrize(("key", "ddof", "eps_in"), NORMALISED)
def test_reinforce_plus_plus(
  key, ddof, eps_in, golden, golden_rollouts, dtype, close
):
  case, expected = golden("reinforce_pp_beta0")
  rollouts, _ = golden_rollouts(case, groups=2)
  mask = rollouts.loss_mask
  per_token = returns.token_rewards(
    rollouts.outcome,
    rollouts.old_logp,
    rollouts.ref_logp,
    mask,
    kl_coefficient=case["beta"],
  )
  to_go = returns.reward_to_go(per_token, mask, discount=case["gamma"])
  close(to_go.reshape(8, -1), expected["adv_raw"])
  normalise = partial(
    batch_advantages.batch_normalised_advantages, to_go, mask, ddof=ddof
  )
  normalised = normalise(each="token", eps=1e-8, eps_in=eps_in)
  close(normalised.reshape(8, -1), expected[key])
  if ddof == 0:
    by_sequence = normalise(each="sequence", eps=0.0, eps_in="std")
    close(by_sequence[..., 0].ravel(), expected["seq_level_ddof0_eps0"])


@pytest.mark.parametrize(
  ("key", "each", "ddof", "eps", "eps_in"),
  [
    (
      "adv_token_weighted_var0_clamp1e-8",
      "token",
      0,
      1e-8,
      "variance_floor",
    ),
    ("adv_token_weighted_var1_plus1e-8", "token", 1, 1e-8, "variance"),
    ("adv_sequence_weighted_ddof0", "sequence", 0, 0.0, "std"),
  ],
)
def test_reinforce_plus_plus_baseline(
  key, each, ddof, eps, eps_in, golden, golden_rollouts, close
):
  case, expected = golden("reinforce_pp_baseline")
  rollouts, _ = golden_rollouts(case, groups=2)
  centred = adv.group_relative_advantages(
    rollouts.outcome, rollouts.sample_mask, scale="none", ddof=0, eps=0.0
  )
  close(centred.ravel(), expected["group_centered"])
  normalised = batch_advantages.batch_normalised_advantages(
    jnp.broadcast_to(centred[..., None], rollouts.loss_mask.shape),
    rollouts.loss_mask,
    each=each,
    ddof=ddof,
    eps=eps,
    eps_in=eps_in,
  )
  close(normalised[..., 0].ravel(), expected[key])


def test_reinforce_plus_plus_recipe(golden, golden_rollouts, close):
  case, expected = golden("reinforce_pp_beta0")
  rollouts, _ = golden_rollouts(case, groups=2)
  recipe = recipes.reinforce_plus_plus(length_budget=6, kl_coefficient=0.0)
  advantage, _ = prepare(recipe, rollouts)
  close(advantage.reshape(8, -1), expected["adv_std0_plus1e-8"])


def test_gdpo(dtype):
  rewards = jnp.asarray(
    [
      [[1, 0, 0, 0], [1, 1, 0, 0]],
      [[0, 0, 1, 1], [1, 0, 0, 0]],
    ],
    dtype,
  )
  advantages = batch_advantages.multi_reward_advantages(
    rewards, jnp.ones((2, 4), bool), weights=(1.0, 1.0), ddof=1, eps=1e-4
  )
  expected = [[0.4841, -1.0432, 0.2795, 0.2795]]
  expected += [[1.8069, 0.2795, -1.0432, -1.0432]]
  np.testing.assert_allclose(advantages, expected, atol=5e-5)


@pytest.mark.parametrize(
  "name", ["seed_length_projection_F4", "seed_length_projection_equal_len"]
)
@pytest.mark.parametrize("centre", [True, False])
def test_length_projection(name, centre, golden, dtype, close):
  case, expected = golden(name)
  rewards, mask = groups(case, dtype)
  advantages = adv.group_relative_advantages(
    rewards, mask, scale="group_std", ddof=0, eps=0.0
  )
  projected = adv.project_out_lengths(
    advantages, jnp.asarray([case["lengths"]]), mask, centre=centre
  )
  close(
    projected[0],
    expected["proj_centered_lengths" if centre else "proj_raw_lengths"],
  )


def test_dynamic_sampling(golden, dtype):
  case, expected = golden("dynamic_sampling")
  accuracy = jnp.asarray(case["rewards"], dtype)
  keep = shaping.mixed_accuracy_groups(accuracy, jnp.ones(accuracy.shape, bool))
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
  advantage, _ = prepare(grpo(), rollouts)
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
  penalty = shaping.overlong_indicator(
    jnp.asarray([case["lengths"]]), max_tokens=case["L_max"]
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


@pytest.mark.parametrize(
  "name", ["gae_g1_l1", "gae_g1_l0.95", "gae_g1_l0", "gae_kl_reward"]
)
def test_generalised_advantages(name, golden, dtype, close):
  case, expected = golden(name)
  values = jnp.asarray([[case["values"]]], dtype)
  mask = jnp.ones(values.shape, bool)
  if "kl_k1" in case:
    kl = jnp.asarray([[case["kl_k1"]]], dtype)
    rewards = returns.token_rewards(
      jnp.asarray([[case["score_at_eos"]]], dtype),
      kl,
      jnp.zeros_like(kl),
      mask,
      kl_coefficient=case["beta"],
    )
    close(rewards[0, 0], expected["token_rewards"])
  else:
    rewards = jnp.asarray([[case["rewards"]]], dtype)
  advantages = returns.generalised_advantages(
    rewards,
    values,
    mask,
    discount=case["gamma"],
    trace_decay=case["lambda"],
    bootstrap=case.get("bootstrap", 0.0),
  )
  close(advantages[0, 0], expected["adv"])
  if "returns" in expected:
    close((advantages + values)[0, 0], expected["returns"])


@pytest.mark.parametrize(
  ("floor", "key"), [(-np.inf, "lambda_raw"), (0.0, "lambda_clamped_0_1")]
)
def test_length_adaptive_trace_decay(floor, key, golden, dtype, close):
  case, expected = golden("vapo_length_adaptive_lambda")
  decay = returns.length_adaptive_trace_decay(
    jnp.asarray([case["lengths"]]), alpha=case["alpha"], floor=floor
  )
  close(decay[0], expected[key])


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
  batch = TrainBatch(
    rows=None,
    tokens=None,
    loss_mask=jnp.ones(logp.shape, bool),
    weight=zeros,
    advantage=zeros,
    old_logp=zeros,
    ref_logp=zeros,
  )

  def total(logp):
    values = penalty(TokenScores(logp=logp, entropy=zeros), batch)
    return values.sum(), values

  slopes, values = jax.grad(total, has_aux=True)(logp)
  close(values[0], [row[key] for row in rows])
  close(slopes[0], [row[f"d{key}"] for row in rows])


def test_k1_cannot_be_a_loss():
  with pytest.raises(ValueError, match="expectation of its gradient"):
    recipes.kl_penalty(0.1, "k1")


def test_covariance(golden, golden_rollouts, dtype, close):
  case, expected = golden("cov_terms")
  rollouts, logp = golden_rollouts(case)
  mask = rollouts.loss_mask
  advantage, _ = prepare(grpo(), rollouts)
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
  candidates = corrections.covariance_candidates(
    covariance, mask & ~clipped[None], lowest=low, highest=high
  )
  np.testing.assert_array_equal(candidates[0], expected["clip_cov_candidates"])
  per_token = -jnp.exp(log_ratio) * advantage
  per_token += case["ppo_kl_coef"] * jnp.abs(log_ratio) * chosen
  close(
    jnp.sum(jnp.where(mask, per_token, 0.0)) / mask.sum(),
    expected["kl_cov_loss"],
  )


# Toys and fits that belong to other parts of the package.
ELSEWHERE = {
  "schulman_gaussian_toy",
  "maxrl_unbiased_for_truncated_ml",
  "difficulty_weights",
  "entropy_performance_fit",
  "snell_flops_exchange",
}


def test_every_case_is_used(golden):
  tests = "".join(
    path.read_text() for path in Path(__file__).parent.glob("test_*.py")
  )
  unused = {name for name in golden.ids if f'"{name}"' not in tests}
  assert unused == set()
