"""Advantages of golden.json that are per token or of the whole batch."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import masked, recipes, returns
from grpo_jax.algorithms.loss import prepare

grpo = partial(recipes.grpo, length_budget=6, ddof=0, std_eps=0.0)


def test_process_supervision(golden, make_rollouts, dtype, close):
  case, expected = golden("adv_process_supervision")
  shape = (1, 4, max(case["lengths"]))
  step_rewards, step_mask = np.zeros(shape), np.zeros(shape, bool)
  for g, (ends, values) in enumerate(
    zip(case["step_end_index_0based"], case["step_rewards"], strict=True)
  ):
    step_rewards[0, g, ends] = values
    step_mask[0, g, ends] = True
  rollouts = make_rollouts(
    rewards=np.zeros(shape[:2]),
    mask=np.arange(shape[-1]) < np.asarray(case["lengths"])[None, :, None],
    old_logp=np.zeros(shape),
    dtype=dtype,
    step_rewards=step_rewards,
    step_mask=jnp.asarray(step_mask),
  )
  recipe = recipes.grpo_process(length_budget=6, ddof=0, std_eps=0.0)
  advantages = recipe.advantages(rollouts.outcome, rollouts)
  for g, row in enumerate(expected["adv"]):
    close(advantages[0, g, : len(row)], row)


@pytest.mark.parametrize(
  ("decay", "key", "after"),
  [
    (None, "adv_vs_previous_running_mean", "running_mean_after"),
    (0.9, "adv_vs_previous_ema", "ema_after"),
  ],
)
def test_moving_baseline(
  decay, key, after, golden, make_rollouts, dtype, close
):
  case, expected = golden("baseline_moving_average")
  recipe = recipes.reinforce_moving_average(length_budget=6, decay=decay)
  state = recipe.memories[0].initial
  ones = jnp.ones((1, 2, 1), dtype)
  for i, mean in enumerate(case["batch_mean_rewards"]):
    rewards = jnp.full((1, 2), mean, dtype)
    rollouts = make_rollouts(
      rewards=rewards,
      mask=ones,
      old_logp=ones,
      dtype=dtype,
      memory={"moving_average": state},
    )
    close(recipe.advantages(rewards, rollouts)[0, 0], expected[key][i])
    state = recipe.memories[0].update(state, rewards, rollouts)
    close(state.mean, expected[after][i])


def eps_of(convention, std):
  """What is added to a standard deviation, by where the trainers put 1e-8."""
  return {
    "std": 1e-8,
    "variance": (std**2 + 1e-8) ** 0.5 - std,  # verl
    "variance floor": max(std, 1e-4) - std,  # OpenRLHF
  }[convention]


@pytest.mark.parametrize(
  ("key", "ddof", "convention"),
  [
    ("adv_openrlhf_var0_clamp1e-8", 0, "variance floor"),
    ("adv_verl_var1_plus1e-8", 1, "variance"),
    ("adv_std0_plus1e-8", 0, "std"),
  ],
)
def test_reinforce_plus_plus(
  key, ddof, convention, golden, golden_rollouts, dtype, close
):
  case, expected = golden("reinforce_pp_beta0")
  rollouts, _ = golden_rollouts(case, groups=2)
  mask = rollouts.loss_mask
  per_token = returns.token_rewards(
    rollouts.outcome, rollouts, kl_coefficient=case["beta"]
  )
  to_go = returns.reward_to_go(per_token, mask, discount=case["gamma"])
  close(to_go.reshape(8, -1), expected["adv_raw"])
  normalise = partial(adv.batch_normalised_advantages, to_go, mask, ddof=ddof)
  eps = eps_of(convention, float(np.std(to_go[mask], ddof=ddof)))
  normalised = normalise(each="token", eps=eps)
  close(normalised.reshape(8, -1), expected[key])
  if ddof == 0:
    by_sequence = normalise(each="sequence", eps=0.0)
    close(by_sequence[..., 0].ravel(), expected["seq_level_ddof0_eps0"])


@pytest.mark.parametrize(
  ("key", "each", "ddof", "convention"),
  [
    ("adv_token_weighted_var0_clamp1e-8", "token", 0, "variance floor"),
    ("adv_token_weighted_var1_plus1e-8", "token", 1, "variance"),
    ("adv_sequence_weighted_ddof0", "sequence", 0, None),
  ],
)
def test_reinforce_plus_plus_baseline(
  key, each, ddof, convention, golden, golden_rollouts, close
):
  case, expected = golden("reinforce_pp_baseline")
  rollouts, _ = golden_rollouts(case, groups=2)
  mask = rollouts.loss_mask
  centred = masked.centred(rollouts.outcome, rollouts.sample_mask)
  close(centred.ravel(), expected["group_centered"])
  per_token = jnp.broadcast_to(centred[..., None], mask.shape)
  std = float(np.std(per_token[mask], ddof=ddof))
  normalised = adv.batch_normalised_advantages(
    per_token,
    mask,
    each=each,
    ddof=ddof,
    eps=eps_of(convention, std) if convention else 0.0,
  )
  close(normalised[..., 0].ravel(), expected[key])


def test_reinforce_plus_plus_recipe(golden, golden_rollouts, close):
  case, expected = golden("reinforce_pp_beta0")
  rollouts, _ = golden_rollouts(case, groups=2)
  recipe = recipes.reinforce_plus_plus(length_budget=6, kl_coefficient=0.0)
  prepared, _ = prepare(recipe, rollouts, {})
  advantage = prepared.advantage
  close(advantage.reshape(8, -1), expected["adv_std0_plus1e-8"])


@pytest.mark.parametrize(
  "name", ["gae_g1_l1", "gae_g1_l0.95", "gae_g1_l0", "gae_kl_reward"]
)
def test_generalised_advantages(name, golden, make_rollouts, dtype, close):
  case, expected = golden(name)
  values = jnp.asarray([[case["values"]]], dtype)
  mask = jnp.ones(values.shape, bool)
  if "kl_k1" in case:
    rollouts = make_rollouts(
      rewards=[[case["score_at_eos"]]],
      mask=mask,
      old_logp=[[case["kl_k1"]]],
      dtype=dtype,
    )
    rewards = returns.token_rewards(
      rollouts.outcome, rollouts, kl_coefficient=case["beta"]
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


def test_reinforce_plus_plus_baseline_recipe(golden, golden_rollouts, close):
  case, expected = golden("reinforce_pp_baseline")
  rollouts, _ = golden_rollouts(case, groups=2)
  recipe = recipes.reinforce_plus_plus_baseline(
    length_budget=6, each="sequence", std_eps=0.0
  )
  prepared, _ = prepare(recipe, rollouts, {})
  advantage = prepared.advantage
  close(advantage[..., 0].ravel(), expected["adv_sequence_weighted_ddof0"])
