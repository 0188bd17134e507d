"""The library reproduces numbers that were derived independently of it.

`golden.json`: formulas of the papers evaluated in NumPy, with gradients
derived by hand; a second opinion came from another framework's autograd.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.penalties import kl_k3
from grpo_jax.algorithms.ratios import product_log_ratio
from grpo_jax.algorithms.recipes import pieces
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


def exact(recipe):
  """With the advantages of the cases: ddof 0 and no eps."""
  return recipe._replace(advantages=grpo().advantages)


def corrected(level):
  return pieces.sampler_correction(
    dapo(), level=level, outside="truncate", lowest=0.0, highest=2.0
  )


def r1_as_typeset():
  """k3 of the whole completion: of log-probabilities that are summed first."""

  def k3_of_completions(scores, batch):
    def summed(logp):
      logp = jnp.where(batch.loss_mask, logp, 0.0)
      return jnp.broadcast_to(logp.sum(-1, keepdims=True), logp.shape)

    return kl_k3(
      scores.replace(logp=summed(scores.logp)),
      batch.replace(ref_logp=summed(batch.ref_logp)),
    )

  return grpo(eps=10.0)._replace(
    log_ratio=product_log_ratio,
    penalties=(recipes.Penalty(0.001, k3_of_completions),),
  )


cispo = partial(recipes.cispo, length_budget=6, overlong_penalty=0.0)

LOSSES = {
  "loss_grpo": grpo(),
  "loss_grpo_on_policy": grpo(),
  "loss_grpo_k3_beta0.04": grpo(kl_coefficient=0.04),
  "loss_grpo_clip_higher": dapo(token_level_loss=False),
  "loss_dapo": dapo(),
  "loss_dr_grpo_const_L6": dr_grpo(),
  "loss_dr_grpo_paper_sum": recipes.dr_grpo(length_budget=1),
  "loss_gspo_paper": exact(recipes.gspo(length_budget=6)),
  "loss_gmpo_e0.4": exact(recipes.gmpo(length_budget=6)),
  "loss_r1_sequence_eps10": r1_as_typeset(),
  "loss_cispo_minimax_upper_only": exact(cispo(highest=1.28)),
  "loss_cispo_scalerl_max5": exact(cispo()),
  "loss_sapo": exact(recipes.sapo(length_budget=6)),
  "loss_ppo_unclipped_is": dapo(eps_low=math.inf, eps_high=math.inf),
  "loss_gpg": recipes.gpg(length_budget=6),
  "loss_rloo_reinforce": recipes.rloo(length_budget=6),
  "loss_kimi_k15": recipes.kimi_k15(length_budget=6),
  "loss_tis_token_truncate": corrected("token"),
  "loss_tis_seq_truncate": corrected("sequence"),
  "loss_grpo_v32_unbiased_kl": pieces.kl_loss(
    grpo(), coefficient=0.04, estimator="weighted_k3"
  ),
}

# Values that are printed in the sources' survey alone, to ten digits.
PRINTED = {
  "gspo wide": (
    exact(recipes.gspo(length_budget=6, eps_low=0.2, eps_high=0.28)),
    -0.0541652601,
  ),
  "gmpo 0.2": (exact(recipes.gmpo(length_budget=6, eps=0.2)), -0.0258254067),
  "luspo wide": (
    exact(recipes.luspo(length_budget=6, eps_low=0.2, eps_high=0.28)),
    0.4195560006,
  ),
  "cispo verl": (exact(cispo(lowest=0.8, highest=1.28)), -0.1526424025),
  "token mask": (
    pieces.sampler_correction(
      dapo(), level="token", outside="mask", lowest=0.5, highest=2.0
    ),
    -0.0150739,
  ),
  "sequence mask": (
    pieces.sampler_correction(
      dapo(), level="sequence", outside="mask", lowest=0.5, highest=2.0
    ),
    0.7051094,
  ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient(
  name, golden, golden_rollouts, loss_and_grad, dtype, close
):
  case, expected = golden(name)
  rollouts, logp = golden_rollouts(case)
  loss, grad, _ = loss_and_grad(LOSSES[name], rollouts, logp)
  close(loss, expected["loss"])
  close(grad[0], expected["grad_logp_new"])


@pytest.mark.parametrize("name", PRINTED)
def test_printed_value(name, golden, golden_rollouts, loss_and_grad):
  with jax.enable_x64(True):
    recipe, expected = PRINTED[name]
    rollouts, logp = golden_rollouts(golden("loss_grpo")[0])
    loss, _, _ = loss_and_grad(recipe, rollouts, logp)
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_gspo_token(golden, golden_rollouts, loss_and_grad, dtype, close):
  case, expected = golden("loss_gspo_token")
  rollouts, logp = golden_rollouts(case)
  recipe = recipes.gspo_token(
    length_budget=6, eps_low=case["eps_low"], eps_high=case["eps_high"]
  )._replace(
    advantages=lambda rewards, _: jnp.asarray([case["adv_token"]], dtype)
  )
  loss, grad, _ = loss_and_grad(recipe, rollouts, logp)
  close(loss, expected["loss"])
  close(grad[0], expected["grad_logp_new"])


@pytest.mark.parametrize("cap", [3.0, math.inf])
def test_dual_clip(cap, golden, golden_rollouts, loss_and_grad, close):
  case, expected = golden("loss_dual_clip_c3")
  rollouts, logp = golden_rollouts(case | {"rewards": case["adv"]})
  recipe = dapo()._replace(
    advantages=lambda rewards, _: rewards,
    surrogate=partial(
      clipped_surrogate, eps_low=0.2, eps_high=0.2, ratio_cap=cap
    ),
  )
  loss, grad, _ = loss_and_grad(recipe, rollouts, logp)
  dual = cap == case["c"]
  close(loss, expected["loss" if dual else "loss_without_dual_clip"])
  key = "grad_logp_new" if dual else "grad_without_dual_clip"
  close(grad[0], expected[key])


def test_clip_fraction(golden, golden_rollouts, loss_and_grad, dtype):
  case, expected = golden("clip_fraction")
  rollouts, logp = golden_rollouts(case)
  for (low, high), row in zip(case["pairs"], expected["rows"], strict=True):
    recipe = dapo(eps_low=low, eps_high=high)
    _, _, totals = loss_and_grad(recipe, rollouts, logp)
    for edge in ("low", "high"):
      total, tokens = totals[f"clip_ratio/{edge}_mean"]
      assert total == row[f"clip_{edge}"] and tokens == row["tokens"]


def test_microbatches_add_up(
  golden, golden_rollouts, loss_and_grad, dtype, close
):
  case, expected = golden("microbatch_token_mean")
  rollouts, logp = golden_rollouts(case)
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
  key, weights, golden, golden_rollouts, loss_and_grad, dtype, close
):
  case, expected = golden("empty_completion")
  rollouts, logp = golden_rollouts(case)
  recipe = grpo()._replace(weights=weights)
  prepared, _ = prepare(recipe, rollouts, {})
  advantage = prepared.advantage
  close(advantage[0, 0, 0], expected["adv_ddof0"][0])
  close(advantage[0, 2, 0], expected["adv_ddof0"][2])
  loss, grad, _ = loss_and_grad(recipe, rollouts, logp)
  close(loss, expected[key]["loss"])
  close(grad[0], expected[key]["grad_logp_new"])


@pytest.mark.parametrize(
  ("statistics", "key", "weights"),
  [
    ("include", "seq_mean_token_mean", grpo().weights),
    ("include", "token_mean", dapo().weights),
    ("include", "constant", dr_grpo().weights),
    (
      "include",
      "seq_mean_skip_empty",
      partial(sequence_mean, count_empty=False),
    ),
    ("exclude", "seq_mean_token_mean", grpo().weights),
    ("exclude", "token_mean", dapo().weights),
    ("exclude", "constant", dr_grpo().weights),
  ],
)
def test_overlong_filtering(
  statistics, key, weights, golden, golden_rollouts, loss_and_grad, dtype, close
):
  case, outputs = golden("overlong_filtering")
  expected = outputs[f"{statistics}_{key}"]
  truncated = jnp.asarray([case["truncated"]])
  rollouts, logp = golden_rollouts(
    case,
    stop_reason=jnp.where(truncated, LENGTH, EOS),
  )
  recipe = dapo(
    eps_low=case["eps_low"],
    eps_high=expected["eps_high"],
    overlong_filter=statistics == "include",
  )._replace(weights=weights)
  if statistics == "exclude":
    recipe = pieces.drop_truncated(recipe)
  loss_mask = prepare(recipe, rollouts, {})[0].loss_mask
  np.testing.assert_array_equal(loss_mask[0], outputs["mask_after"])
  loss, grad, _ = loss_and_grad(recipe, rollouts, logp)
  close(loss, expected["loss"])
  close(grad[0], expected["grad_logp_new"])
