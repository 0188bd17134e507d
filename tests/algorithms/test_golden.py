"""The library reproduces numbers that were derived independently of it.

`golden.json`: formulas of the papers evaluated in NumPy, with gradients
derived by hand; a second opinion came from another framework's autograd.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.advantages import group_relative_advantages, tied
from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.shaping import (
  mixed_accuracy_groups,
  soft_overlong_penalty,
)
from grpo_jax.algorithms.surrogates import clipped_surrogate
from grpo_jax.algorithms.weights import constant_length, sequence_mean
from grpo_jax.types import EOS, LENGTH

grpo = partial(recipes.grpo, length_budget=6, ddof=0, std_eps=0.0)
dr_grpo = partial(recipes.dr_grpo, length_budget=6)
# DAPO's clip and weights alone.
dapo = partial(
  recipes.dapo,
  length_budget=6,
  ddof=0,
  std_eps=0.0,
  overlong_penalty=0.0,
  overlong_filter=False,
)

LOSSES = {
  "loss_grpo": grpo(),
  "loss_grpo_on_policy": grpo(),
  "loss_grpo_k3_beta0.04": grpo(kl_coefficient=0.04),
  "loss_grpo_clip_higher": dapo(token_level_loss=False),
  "loss_dapo": dapo(),
  "loss_dr_grpo_const_L6": dr_grpo(),
  "loss_dr_grpo_paper_sum": recipes.dr_grpo(length_budget=1),
}


def rollouts_of(case, make_rollouts, dtype, **replaced):
  """The case as a batch of one group, and the policy's log-probs."""
  arrays = {
    name: jnp.asarray(case[source], dtype)[None]
    for name, source in (
      ("old_logp", "logp_old"),
      ("ref_logp", "logp_ref"),
      ("behaviour_logp", "logp_rollout"),
    )
    if source in case
  }
  rollouts = make_rollouts(
    rewards=[case["rewards"]],
    mask=[case["mask"]],
    dtype=dtype,
    **(arrays | replaced),
  )
  return rollouts, jnp.asarray([case["logp_new"]], dtype)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient(
  name, golden, make_rollouts, loss_and_grad, dtype, close
):
  case, expected = golden(name)
  rollouts, logp = rollouts_of(case, make_rollouts, dtype)
  loss, grad, _ = loss_and_grad(LOSSES[name], rollouts, logp)
  close(loss, expected["loss"])
  close(grad[0], expected["grad_logp_new"])


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
  advantages = group_relative_advantages(
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
  assert tied(rewards, mask).all()
  advantages = group_relative_advantages(
    rewards, mask, scale=scale, ddof=1, eps=0.0
  )
  close(advantages[0], expected[key])


def test_clip_fraction(golden, make_rollouts, loss_and_grad, dtype):
  case, expected = golden("clip_fraction")
  rollouts, logp = rollouts_of(case, make_rollouts, dtype)
  for (low, high), row in zip(case["pairs"], expected["rows"], strict=True):
    recipe = dapo(eps_low=low, eps_high=high)
    _, _, totals = loss_and_grad(recipe, rollouts, logp)
    for edge in ("low", "high"):
      total, tokens = totals[f"clip_ratio/{edge}_mean"]
      assert total == row[f"clip_{edge}"] and tokens == row["tokens"]


@pytest.mark.parametrize(
  ("form", "options"),
  [
    ("ppo_0.2", {"eps_low": 0.2, "eps_high": 0.2}),
    ("asym_0.2_0.28", {"eps_low": 0.2, "eps_high": 0.28}),
  ],
)
def test_clip_table(form, options, golden, dtype, close):
  _, expected = golden("clip_table")
  for row in expected["rows"]:
    one = jnp.ones((1, 1), dtype)

    def loss(log_ratio, A=row["A"] * one):
      return clipped_surrogate(log_ratio, A, log_ratio, **options)[0].sum()

    value, slope = jax.value_and_grad(loss)(row["log_ratio"] * one)
    close(value, row[form]["loss"])
    close(slope[0, 0], row[form]["dloss_dlogp"])


def test_microbatches_add_up(
  golden, make_rollouts, loss_and_grad, dtype, close
):
  case, expected = golden("microbatch_token_mean")
  rollouts, logp = rollouts_of(case, make_rollouts, dtype)
  for parts in (1, 2, 4):
    loss, _, _ = loss_and_grad(dapo(), rollouts, logp, parts=parts)
    close(loss, expected["global_token_mean"])


@pytest.mark.parametrize(
  ("key", "weights"),
  [
    ("seq_mean_token_mean_count_all", partial(sequence_mean, count_empty=True)),
    (
      "seq_mean_token_mean_skip_empty",
      partial(sequence_mean, count_empty=False),
    ),
    ("token_mean", dapo().weights),
    (
      "seq_mean_token_sum_count_all",
      partial(constant_length, length_budget=1, count_empty=True),
    ),
    (
      "seq_mean_token_sum_skip_empty",
      partial(constant_length, length_budget=1, count_empty=False),
    ),
    (
      "constant",
      partial(constant_length, length_budget=3, count_empty=True),
    ),
  ],
)
def test_empty_completion(
  key, weights, golden, make_rollouts, loss_and_grad, dtype, close
):
  case, expected = golden("empty_completion")
  rollouts, logp = rollouts_of(case, make_rollouts, dtype)
  recipe = grpo()._replace(weights=weights)
  advantage, _ = prepare(recipe, rollouts)
  close(advantage[0, 0, 0], expected["adv_ddof0"][0])
  close(advantage[0, 2, 0], expected["adv_ddof0"][2])
  loss, grad, _ = loss_and_grad(recipe, rollouts, logp)
  close(loss, expected[key]["loss"])
  close(grad[0], expected[key]["grad_logp_new"])


@pytest.mark.parametrize("statistics", ["include", "exclude"])
@pytest.mark.parametrize(
  ("key", "weights"),
  [
    ("seq_mean_token_mean", grpo().weights),
    ("seq_mean_skip_empty", partial(sequence_mean, count_empty=False)),
    ("token_mean", dapo().weights),
    ("constant", dr_grpo().weights),
  ],
)
def test_overlong_filtering(
  statistics, key, weights, golden, make_rollouts, loss_and_grad, dtype, close
):
  case, outputs = golden("overlong_filtering")
  if f"{statistics}_{key}" not in outputs:
    pytest.skip("no such number in golden.json")
  expected = outputs[f"{statistics}_{key}"]
  truncated = jnp.asarray([case["truncated"]])
  rollouts, logp = rollouts_of(
    case,
    make_rollouts,
    dtype,
    stop_reason=jnp.where(truncated, LENGTH, EOS),
    sample_mask=~truncated | (statistics == "include"),
  )
  recipe = dapo(
    eps_low=case["eps_low"],
    eps_high=expected["eps_high"],
    overlong_filter=True,
  )._replace(weights=weights)
  _, loss_mask = prepare(recipe, rollouts)
  np.testing.assert_array_equal(loss_mask[0], outputs["mask_after"])
  loss, grad, _ = loss_and_grad(recipe, rollouts, logp)
  close(loss, expected["loss"])
  close(grad[0], expected["grad_logp_new"])


def test_dynamic_sampling(golden, dtype):
  case, expected = golden("dynamic_sampling")
  accuracy = jnp.asarray(case["rewards"], dtype)
  keep = mixed_accuracy_groups(accuracy, jnp.ones(accuracy.shape, bool))
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
  assert dapo().keep_groups(rollouts).tolist() == expected["keep_by_acc"]
  advantage, _ = prepare(grpo(), rollouts)
  close(advantage[0, :, 0], expected["adv_shaped_ddof0"])


@pytest.mark.parametrize("name", ["soft_overlong_paper", "soft_overlong_small"])
def test_soft_overlong_penalty(name, golden, dtype, close):
  case, expected = golden(name)
  penalty = soft_overlong_penalty(
    jnp.asarray([case["lengths"]]),
    max_tokens=case["L_max"],
    buffer_tokens=case["L_cache"],
  )
  close(penalty[0], expected["R_length"])
