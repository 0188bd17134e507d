"""GRPO, and what replaces its weights, its samples or its advantage's scale."""

from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import ratios, shaping, surrogates, weights
from grpo_jax.algorithms.checks import check_choice, check_range
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.algorithms.recipes import recipe as fields
from grpo_jax.algorithms.recipes.recipe import Recipe


def grpo(
  *,
  length_budget: int,
  eps: float = 0.2,
  kl_coefficient: float = 0.0,
  ddof: int = 1,
  std_eps: float = 1e-6,
) -> Recipe:
  """Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300).

  Group mean and standard deviation, each completion's token mean, symmetric
  clip, k3 KL in the loss. The paper has kl_coefficient 0.04 and leaves eps,
  ddof and std_eps open; later practice, and the default here, is no KL.
  """
  check_range(eps=eps)
  recipe = Recipe(
    shape_rewards=fields.outcome_rewards,
    keep_groups=fields.all_groups,
    keep_samples=fields.all_samples,
    advantages=fields.group_relative("group_std", ddof, std_eps),
    weights=partial(weights.sequence_mean, count_empty=True),
    log_ratio=ratios.token_log_ratio,
    surrogate=fields.clip(eps, eps),
  )
  return pieces.kl_loss(recipe, coefficient=kl_coefficient, estimator="k3")


def dapo(
  *,
  length_budget: int,
  eps_low: float = 0.2,
  eps_high: float = 0.28,
  dynamic_sampling: bool = True,
  token_level_loss: bool = True,
  overlong_penalty: float = 1.0,
  overlong_shape: Literal["soft", "indicator"] = "soft",
  overlong_buffer: int | None = None,
  overlong_filter: bool = True,
  kl_coefficient: float = 0.0,
  ddof: int = 1,
  std_eps: float = 1e-6,
) -> Recipe:
  """Decoupled Clip and Dynamic sAmpling (DAPO, arXiv:2503.14476).

  GRPO's advantage without KL, and four techniques, each of which can be
  switched off alone: clip-higher (eps_high = eps_low), dynamic sampling, the
  token-level loss, and the handling of overlong completions, which is two
  things in the paper: the soft penalty (eq. 13; its buffer is a fifth of the
  length limit, as 4096 of 20480 there) and filtering (a truncated completion
  is not trained on). Deviation: the token mean is over the optimizer batch, as
  in the released code, where eq. 8 has it within each prompt's group
  (`weights.group_token_mean`).

  `overlong_shape="indicator"` is the penalty of popular descriptions instead:
  reward - overlong_penalty where a completion is longer than the limit less
  the buffer. With a buffer of 0 nothing is, for the sampler cuts there.
  """
  buffer = length_budget // 5 if overlong_buffer is None else overlong_buffer
  check_range(0, length_budget, overlong_buffer=buffer)
  check_range(overlong_penalty=overlong_penalty)
  check_choice(("soft", "indicator"), overlong_shape=overlong_shape)
  limits = {"max_tokens": length_budget, "buffer_tokens": buffer}
  if overlong_shape == "indicator":
    limits = {"max_tokens": length_budget - buffer, "buffer_tokens": 0}
  base = grpo(
    length_budget=length_budget,
    kl_coefficient=kl_coefficient,
    ddof=ddof,
    std_eps=std_eps,
  )
  samples = fields.finished_samples if overlong_filter else fields.all_samples
  return base._replace(
    shape_rewards=partial(_less_overlong, overlong_penalty, **limits),
    keep_groups=fields.mixed_groups if dynamic_sampling else base.keep_groups,
    keep_samples=samples,
    weights=weights.token_mean if token_level_loss else base.weights,
    surrogate=fields.clip(eps_low, eps_high),
  )


def _less_overlong(penalty, rollouts, **limits):
  ramp = shaping.soft_overlong_penalty(rollouts.lengths, **limits)
  return rollouts.outcome + penalty * ramp


def dr_grpo(
  *, length_budget: int, eps: float = 0.2, kl_coefficient: float = 0.0
) -> Recipe:
  """GRPO Done Right (Dr. GRPO, arXiv:2503.20783).

  Removes two terms from GRPO: the group's standard deviation, which favours
  questions that are nearly solved or nearly lost, and the completion's own
  length in the denominator, which favours long wrong answers. The constant in
  its place is the length budget (listing 1). No projection onto lengths: that
  is a popular description, not the paper; see `length_projected`.
  """
  constant = partial(weights.constant_length, length_budget=length_budget)
  return grpo(
    length_budget=length_budget, eps=eps, kl_coefficient=kl_coefficient
  )._replace(
    advantages=fields.group_relative("none", ddof=0, std_eps=0.0),
    weights=partial(constant, count_empty=True),
  )


def lite_ppo(
  *, length_budget: int, eps: float = 0.2, ddof: int = 1, std_eps: float = 1e-4
) -> Recipe:
  """LitePPO (arXiv:2508.08221): group mean, batch standard deviation.

  With the token-level loss and GRPO's clip, and nothing else of the tricks
  that the paper compares. It leaves ddof and std_eps open; these are TRL's.
  """
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=fields.group_relative("batch_std", ddof, std_eps),
    weights=weights.token_mean,
  )


def supervised(*, length_budget: int) -> Recipe:
  """Maximum likelihood of given completions: advantage 1, token mean."""
  return grpo(length_budget=length_budget)._replace(
    advantages=_ones,
    weights=weights.token_mean,
    surrogate=surrogates.log_likelihood,
  )


def _ones(rewards, rollouts):
  return jnp.ones_like(rewards)
