"""Published algorithms, each as one function that returns a `Recipe`.

The module is the registry: a config names a function here, or any function by
its dotted path. A variant replaces a field:

  recipes.dapo(length_budget=512)._replace(advantages=my_advantages)

Every recipe takes `length_budget`, the tokens that a completion may have.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp

from grpo_jax.algorithms import penalties as penalty
from grpo_jax.algorithms.advantages import group_relative_advantages
from grpo_jax.algorithms.ratios import token_log_ratio
from grpo_jax.algorithms.shaping import (
  mixed_accuracy_groups,
  soft_overlong_penalty,
)
from grpo_jax.algorithms.surrogates import clipped_surrogate, log_likelihood
from grpo_jax.algorithms.weights import (
  constant_length,
  sequence_mean,
  token_mean,
)


class Recipe(NamedTuple):
  """An algorithm; every field is a pure function with its constants bound.

  Attributes:
    shape_rewards: rollouts -> rewards `[P, G]`.
    keep_groups: rollouts -> `[P]`; groups that are dropped are replaced by
      newly sampled ones.
    keep_samples: rollouts -> `[P, G]`; the others are not trained on, but
      their rewards count in the statistics of their group.
    advantages: (rewards, rollouts) -> `[P, G]`, or per token `[P, G, T]`.
    weights: loss mask `[P, G, T]` -> weights of the same shape.
    log_ratio: (logp, old_logp, loss mask) -> `[N, T]`.
    surrogate: (log_ratio, advantage, logp) -> (loss, counts), per token.
    penalties: ((coefficient, function of (scores, batch)), ...), per token.
    needs_reference: whether `ref_logp` has to be computed.
  """

  shape_rewards: Callable
  keep_groups: Callable
  keep_samples: Callable
  advantages: Callable
  weights: Callable
  log_ratio: Callable
  surrogate: Callable
  penalties: tuple
  needs_reference: bool


def outcome_rewards(rollouts):
  """The reward as it was given."""
  return rollouts.outcome


def all_groups(rollouts):
  """Keeps every group."""
  return jnp.ones(rollouts.outcome.shape[:1], bool)


def all_samples(rollouts):
  """Keeps every completion."""
  return jnp.ones(rollouts.outcome.shape, bool)


def finished_samples(rollouts):
  """Overlong filtering: completions cut at the limit are not trained on."""
  return ~rollouts.truncated


def kl_penalty(coefficient: float) -> tuple:
  """A k3 penalty towards the reference, or none at coefficient 0."""
  if coefficient < 0:
    raise ValueError("kl_coefficient must not be negative.")
  return ((coefficient, penalty.kl_k3),) if coefficient else ()


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
  return Recipe(
    shape_rewards=outcome_rewards,
    keep_groups=all_groups,
    keep_samples=all_samples,
    advantages=_group_relative("group_std", ddof, std_eps),
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
  in the released code, where eq. 8 has it within each prompt's group.
  """
  if overlong_buffer is None:
    overlong_buffer = length_budget // 5
  if not 0 <= overlong_buffer <= length_budget:
    raise ValueError(
      f"overlong_buffer ({overlong_buffer} tokens) must lie between 0 and the"
      f" length budget ({length_budget} tokens)."
    )
  if overlong_penalty < 0:
    raise ValueError("overlong_penalty must not be negative.")

  def shape_rewards(rollouts):
    return rollouts.outcome + overlong_penalty * soft_overlong_penalty(
      rollouts.lengths,
      max_tokens=length_budget,
      buffer_tokens=overlong_buffer,
    )

  base = grpo(
    length_budget=length_budget,
    kl_coefficient=kl_coefficient,
    ddof=ddof,
    std_eps=std_eps,
  )
  return base._replace(
    shape_rewards=shape_rewards,
    keep_groups=mixed_groups if dynamic_sampling else all_groups,
    keep_samples=finished_samples if overlong_filter else all_samples,
    weights=token_mean if token_level_loss else base.weights,
    surrogate=partial(clipped_surrogate, eps_low=eps_low, eps_high=eps_high),
  )


def dr_grpo(
  *, length_budget: int, eps: float = 0.2, kl_coefficient: float = 0.0
) -> Recipe:
  """GRPO Done Right (Dr. GRPO, arXiv:2503.20783).

  Removes two terms from GRPO: the group's standard deviation, which favours
  questions that are nearly solved or nearly lost, and the completion's own
  length in the denominator, which favours long wrong answers. The constant in
  its place is the length budget (listing 1). No projection onto lengths: that
  is a popular description, not the paper.
  """
  return grpo(
    length_budget=length_budget, eps=eps, kl_coefficient=kl_coefficient
  )._replace(
    advantages=_group_relative("none", ddof=0, eps=0.0),
    weights=partial(
      constant_length, length_budget=length_budget, count_empty=True
    ),
  )


def supervised(*, length_budget: int) -> Recipe:
  """Maximum likelihood of given completions: advantage 1, token mean."""
  return grpo(length_budget=length_budget)._replace(
    advantages=lambda rewards, rollouts: jnp.ones_like(rewards),
    weights=token_mean,
    surrogate=log_likelihood,
  )


def mixed_groups(rollouts):
  """Dynamic sampling: groups that are neither all right nor all wrong."""
  return mixed_accuracy_groups(rollouts.accuracy, rollouts.sample_mask)


def _group_relative(scale, ddof, eps):
  def advantages(rewards, rollouts):
    return group_relative_advantages(
      rewards, rollouts.sample_mask, scale=scale, ddof=ddof, eps=eps
    )

  return advantages
