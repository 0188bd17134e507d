"""GRPO, and what replaces its advantage, its weights or its samples."""

from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms.ratios import token_log_ratio
from grpo_jax.algorithms.recipes.recipe import (
  Recipe,
  all_groups,
  all_samples,
  check_range,
  finished_samples,
  group_relative,
  kl_penalty,
  mixed_groups,
  outcome_rewards,
)
from grpo_jax.algorithms.shaping import (
  overlong_indicator,
  soft_overlong_penalty,
)
from grpo_jax.algorithms.surrogates import clipped_surrogate, log_likelihood
from grpo_jax.algorithms.weights import (
  constant_length,
  sequence_mean,
  token_mean,
)


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
  del length_budget
  check_range(eps=eps, ddof=ddof, std_eps=std_eps)
  return Recipe(
    shape_rewards=outcome_rewards,
    keep_groups=all_groups,
    keep_samples=all_samples,
    advantages=group_relative("group_std", ddof, std_eps),
    weights=partial(sequence_mean, count_empty=True),
    log_ratio=token_log_ratio,
    surrogate=partial(clipped_surrogate, eps_low=eps, eps_high=eps),
    penalties=kl_penalty(kl_coefficient),
    needs_reference=kl_coefficient > 0,
  )


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
  base = grpo(
    length_budget=length_budget,
    kl_coefficient=kl_coefficient,
    ddof=ddof,
    std_eps=std_eps,
  )
  check_range(eps_low=eps_low, eps_high=eps_high)
  if overlong_buffer is None:
    overlong_buffer = length_budget // 5
  return base._replace(
    shape_rewards=_penalise_overlong(
      overlong_shape, overlong_penalty, length_budget, overlong_buffer
    ),
    keep_groups=mixed_groups if dynamic_sampling else all_groups,
    keep_samples=finished_samples if overlong_filter else all_samples,
    weights=token_mean if token_level_loss else base.weights,
    surrogate=partial(clipped_surrogate, eps_low=eps_low, eps_high=eps_high),
  )


def _penalise_overlong(shape, penalty, length_budget, buffer):
  if not 0 <= buffer <= length_budget:
    raise ValueError(
      f"overlong_buffer ({buffer} tokens) must lie between 0 and the length"
      f" budget ({length_budget} tokens)."
    )
  check_range(overlong_penalty=penalty)
  shapes = {
    "soft": partial(
      soft_overlong_penalty, max_tokens=length_budget, buffer_tokens=buffer
    ),
    "indicator": partial(overlong_indicator, max_tokens=length_budget - buffer),
  }
  if shape not in shapes:
    raise ValueError(f"overlong_shape must be one of {list(shapes)}.")

  return partial(_outcome_and_length, shapes[shape], penalty)


def _outcome_and_length(shape, penalty, rollouts):
  return rollouts.outcome + penalty * shape(rollouts.lengths)


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
  return grpo(
    length_budget=length_budget, eps=eps, kl_coefficient=kl_coefficient
  )._replace(
    advantages=group_relative("none", ddof=0, eps=0.0),
    weights=partial(
      constant_length, length_budget=length_budget, count_empty=True
    ),
  )


def supervised(*, length_budget: int) -> Recipe:
  """Maximum likelihood of given completions: advantage 1, token mean."""
  return grpo(length_budget=length_budget)._replace(
    advantages=_ones, weights=token_mean, surrogate=log_likelihood
  )


def _ones(rewards, rollouts):
  del rollouts
  return jnp.ones_like(rewards)
