"""The contract of an algorithm, and the parts that several of them share."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from grpo_jax.algorithms import penalties
from grpo_jax.algorithms.advantages import group_relative_advantages
from grpo_jax.algorithms.returns import token_rewards
from grpo_jax.algorithms.shaping import mixed_accuracy_groups


class Penalty(NamedTuple):
  """A per-token term beside the surrogate: coefficient * scale * value.

  Attributes:
    coefficient: in units of the loss per unit of the value.
    value: (scores, batch) -> `[N, T]`, differentiable.
    scale: (rollouts, advantage `[P, G, T]`) -> `[P, G, T]`, constants of the
      rollout batch; None for 1.
  """

  coefficient: float
  value: Callable
  scale: Callable | None = None


class Critic(NamedTuple):
  """How a value model learns beside the policy.

  Attributes:
    kind: `head` on the policy's hidden states, or a `model` of its own.
    learning_rate_factor: of its parameters, times the policy's.
    warmup_steps: rollout batches in which only the critic's loss counts.
    coefficient: of its loss.
    loss: (value, old value, target) -> `[N, T]`.
    targets: (rewards, rollouts) -> `[P, G, T]`.
  """

  kind: str
  learning_rate_factor: float
  warmup_steps: int
  coefficient: float
  loss: Callable
  targets: Callable


class Memory(NamedTuple):
  """What an algorithm keeps from one rollout batch to the next.

  Attributes:
    name: its key in `rollouts.memory`, where the recipe's functions find it.
    initial: state before the first batch, a pytree of arrays. The training
      state holds it, and so do checkpoints.
    update: (state, rewards, rollouts) -> state for the next batch.
  """

  name: str
  initial: Any
  update: Callable


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
    penalties: any number of `Penalty`.
    needs_reference: whether `ref_logp` has to be computed.
    needs_steps: whether the task has to judge steps.
    critic: None without one.
    memories: any number of `Memory`, most often none.
  """

  shape_rewards: Callable
  keep_groups: Callable
  keep_samples: Callable
  advantages: Callable
  weights: Callable
  log_ratio: Callable
  surrogate: Callable
  penalties: tuple[Penalty, ...]
  needs_reference: bool
  needs_steps: bool = False
  critic: Critic | None = None
  memories: tuple[Memory, ...] = ()

  @property
  def initial_memory(self) -> dict[str, Any]:
    """The states of its memories before the first rollout batch, by name.

    Raises:
      ValueError: two memories have the same name.
    """
    states = {memory.name: memory.initial for memory in self.memories}
    if len(states) < len(self.memories):
      names = sorted(memory.name for memory in self.memories)
      raise ValueError(f"two memories of the recipe have one name: {names}.")
    return states


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


def rewards_with_kl(rewards, rollouts, kl_coefficient):
  """The reward on the last token, and k1 towards the reference on each."""
  return token_rewards(
    rewards,
    rollouts.old_logp,
    rollouts.ref_logp,
    kept_tokens(rollouts),
    kl_coefficient=kl_coefficient,
  )


def per_group(function, rewards, rollouts, **constants):
  """The advantages field from a function of (rewards, sample mask)."""
  return function(rewards, rollouts.sample_mask, **constants)


def group_relative(scale: str, ddof: int, eps: float) -> Callable:
  """The advantages field of the GRPO family."""
  return partial(
    per_group, group_relative_advantages, scale=scale, ddof=ddof, eps=eps
  )


def per_token(advantages, rollouts):
  """Advantages `[P, G, T]`, from those or from `[P, G]`."""
  shape = rollouts.loss_mask.shape
  if advantages.shape not in (shape, shape[:2]):
    raise ValueError(
      f"advantages must have shape {shape[:2]} or {shape}, not"
      f" {advantages.shape}."
    )
  if advantages.ndim == 2:
    advantages = advantages[..., None]
  return jnp.broadcast_to(advantages, shape)


def check_range(
  at_least: float = 0.0, at_most: float = math.inf, **values: float
) -> None:
  """Raises a ValueError that names the argument which lies outside."""
  for name, value in values.items():
    if not at_least <= value <= at_most:
      raise ValueError(
        f"{name} must lie between {at_least:g} and {at_most:g}, not {value}."
      )


def check_choice(choices: tuple[str, ...], **values: str) -> None:
  """Raises a ValueError that names the argument which is none of them."""
  for name, value in values.items():
    if value not in choices:
      raise ValueError(f"{name} must be one of {choices}, not {value!r}.")


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
  check_range(kl_coefficient=coefficient)
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
  return (Penalty(coefficient, estimators[estimator]),) if coefficient else ()
