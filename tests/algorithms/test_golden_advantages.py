"""Advantages of golden.json, one per completion."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import masked, recipes

grpo = partial(recipes.grpo, length_budget=6, ddof=0, std_eps=0.0)


def groups(case, dtype, name="rewards"):
  """Rewards [P, G] of a case, and a mask that keeps them all."""
  P = len(set(case.get("group_ids", [0])))
  values = jnp.asarray(case[name], dtype).reshape(P, -1)
  return values, jnp.ones(values.shape, bool)


@pytest.mark.parametrize(
  "name", ["adv_grpo_bal", "adv_grpo_one_of_four", "adv_grpo_pm1"]
)
@pytest.mark.parametrize(
  ("ddof", "eps"),
  [(0, "0"), (1, "0"), (0, "1e-4"), (1, "1e-4"), (1, "1e-6"), (1, "1e-8")],
)
def test_group_relative_advantages(name, ddof, eps, golden, dtype, close):
  case, expected = golden(name)
  key = f"adv_ddof{ddof}_eps{eps}"
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
  assert not masked.differ(rewards, mask).any()
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


def test_batch_std(golden, dtype, close):
  case, expected = golden("adv_batch_std")
  rewards, mask = groups(case, dtype)
  scaled = partial(
    adv.group_relative_advantages, sample_mask=mask, scale="batch_std"
  )
  close(
    scaled(rewards, ddof=1, eps=1e-4).ravel(), expected["adv_trl_batch_eps1e-4"]
  )
  # ScaleRL's is the standard deviation of centred rewards.
  centred = masked.centred(rewards, mask)
  close(scaled(centred, ddof=0, eps=0.0).ravel(), expected["adv_scalerl_ddof0"])


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


def test_opo(make_rollouts, dtype, close):
  # One right answer of the shortest length: baseline 2 / 20.
  ones = jnp.ones((1, 4, 1), dtype)
  rollouts = make_rollouts(
    rewards=[[1.0, 0.0, 0.0, 0.0]],
    mask=ones,
    old_logp=ones,
    dtype=dtype,
    lengths=jnp.asarray([[2, 4, 6, 8]]),
  )
  advantages = adv.length_weighted_advantages(rollouts.outcome, rollouts)
  close(advantages[0], [0.9, -0.1, -0.1, -0.1])


def test_gdpo(make_rollouts, dtype):
  first = np.asarray([[1, 0, 0, 0], [1, 1, 0, 0]])
  second = np.asarray([[0, 0, 1, 1], [1, 0, 0, 0]])
  ones = jnp.ones((2, 4, 1), dtype)
  rollouts = make_rollouts(
    rewards=first,
    mask=ones,
    old_logp=ones,
    dtype=dtype,
    components=np.stack([first, second], axis=-1),
  )
  recipe = recipes.gdpo(length_budget=1, reward_weights=(1.0, 1.0))
  advantages = recipe.advantages(rollouts.outcome, rollouts)
  expected = [[0.4841, -1.0432, 0.2795, 0.2795]]
  expected += [[1.8069, 0.2795, -1.0432, -1.0432]]
  np.testing.assert_allclose(advantages, expected, atol=5e-5)


@pytest.mark.parametrize(
  "name", ["seed_length_projection_F4", "seed_length_projection_equal_len"]
)
@pytest.mark.parametrize("centre", [True, False])
def test_length_projection(name, centre, golden, make_rollouts, dtype, close):
  case, expected = golden(name)
  ones = jnp.ones((1, len(case["rewards"]), 1), dtype)
  rollouts = make_rollouts(
    rewards=[case["rewards"]],
    mask=ones,
    old_logp=ones,
    dtype=dtype,
    lengths=jnp.asarray([case["lengths"]]),
  )
  projected = adv.projected_advantages(
    grpo().advantages, rollouts.outcome, rollouts, centre=centre
  )
  close(
    projected[0],
    expected["proj_centered_lengths" if centre else "proj_raw_lengths"],
  )
