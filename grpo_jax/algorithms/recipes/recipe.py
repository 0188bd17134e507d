"""The contract of an algorithm, and the parts that several of them share."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp

from grpo_jax.algorithms import penalties
from grpo_jax.algorithms.advantages import group_relative_advantages
from grpo_jax.algorithms.corrections import sampler_correction
from grpo_jax.algorithms.shaping import mixed_accuracy_groups


class Recipe(NamedTuple):
  """An algorithm; every field is a pure function with its constants bound.

  Attributes:
    shape_rewards: rollouts -> rewards `[P, G]`.
    keep_groups: rollouts -> `[P]`; groups that are dropped are replaced by
      newly sampled ones.
    keep_samples: rollouts -> `[P, G]`; the others are not trained on, but
      their rewards count in the statistics of their group.
    advantages: (rewards, rollouts) -> `[P, G]`, or per token `[P, G, T]`.
    weights: (loss mask `[P, G, T]`, group mask `[P]`) -> weights of the
      former's shape.
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


def mixed_groups(rollouts):
  """Dynamic sampling: groups that are neither all right nor all wrong."""
  return mixed_accuracy_groups(rollouts.accuracy, rollouts.sample_mask)


def all_samples(rollouts):
  """Keeps every completion."""
  return jnp.ones(rollouts.outcome.shape, bool)


def finished_samples(rollouts):
  """Overlong filtering: completions cut at the limit are not trained on."""
  return ~rollouts.truncated


def kept_tokens(rollouts):
  """Tokens that the policy chose, of completions that exist."""
  return rollouts.loss_mask & rollouts.sample_mask[..., None]


def right_answers(rollouts):
  """Completions whose answer is right, before any shaping."""
  return rollouts.accuracy > 0.5


def group_relative(scale: str, ddof: int, eps: float) -> Callable:
  """The advantages field of the GRPO family."""

  def advantages(rewards, rollouts):
    return group_relative_advantages(
      rewards, rollouts.sample_mask, scale=scale, ddof=ddof, eps=eps
    )

  return advantages


def check_not_negative(**values: float) -> None:
  """Raises a ValueError that names the argument which is negative."""
  for name, value in values.items():
    if value < 0:
      raise ValueError(f"{name} must not be negative.")


def kl_penalty(coefficient: float, estimator: str = "k3") -> tuple:
  """A penalty towards the reference, or none at coefficient 0.

  Args:
    coefficient: in reward units per nat.
    estimator: k2, k3 or weighted_k3, of `penalties`.

  Returns:
    A recipe's `penalties`.

  Raises:
    ValueError: the coefficient is negative, or the estimator cannot be a loss.
  """
  check_not_negative(kl_coefficient=coefficient)
  if estimator == "k1":
    raise ValueError(
      "k1 cannot be a loss: the expectation of its gradient, that of"
      " log pi, is zero, so it pulls nowhere. Put it into the reward"
      " (rloo, reinforce_plus_plus), or use k2, k3 or weighted_k3."
    )
  estimators = {
    "k2": penalties.kl_k2,
    "k3": penalties.kl_k3,
    "weighted_k3": penalties.kl_weighted_k3,
  }
  if estimator not in estimators:
    raise ValueError(f"Unknown {estimator!r}; there are {list(estimators)}.")
  return ((coefficient, estimators[estimator]),) if coefficient else ()


def with_sampler_correction(
  recipe: Recipe,
  *,
  level: Literal["token", "sequence", "geometric"],
  outside: Literal["truncate", "mask"],
  lowest: float,
  highest: float,
) -> Recipe:
  """Weighs a recipe's advantages by pi_old / pi_sampler.

  Not for `kimi_k15`, whose loss is not proportional to its advantage, nor
  where `old_logp` is the sampler's own, and the ratio holds the weight
  already. The arguments are those of `corrections.sampler_correction`.
  """

  def advantages(rewards, rollouts):
    uncorrected = recipe.advantages(rewards, rollouts)
    if uncorrected.ndim == 2:
      uncorrected = uncorrected[..., None]
    return uncorrected * sampler_correction(
      rollouts.old_logp,
      rollouts.behaviour_logp,
      kept_tokens(rollouts),
      level=level,
      outside=outside,
      lowest=lowest,
      highest=highest,
    )

  return recipe._replace(advantages=advantages)
