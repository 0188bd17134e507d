"""The contract of an algorithm, and the parts that several of them share."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from grpo_jax.algorithms import masked
from grpo_jax.algorithms.advantages import group_relative_advantages
from grpo_jax.algorithms.checks import check_range
from grpo_jax.algorithms.surrogates import clipped_surrogate


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

  The rollouts that they are given hold the recipe's memory, and their loss mask
  leaves out the tokens of completions that do not exist; that of scales and
  memories leaves out those that are not trained on, too.

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
  penalties: tuple[Penalty, ...] = ()
  needs_reference: bool = False
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
  """Groups that are neither all right nor all wrong: 0 < #correct < G.

  The dynamic sampling of DAPO (arXiv:2503.14476). It looks at accuracy, never
  at shaped rewards: a length penalty would spread an all-right group.
  """
  return masked.differ(rollouts.accuracy, rollouts.sample_mask)[:, 0]


def all_samples(rollouts):
  """Keeps every completion."""
  return jnp.ones(rollouts.outcome.shape, bool)


def finished_samples(rollouts):
  """Overlong filtering: completions cut at the limit are not trained on."""
  return ~rollouts.truncated


def only(samples, rollouts):
  """Rollouts whose loss mask leaves out all other completions."""
  return rollouts.replace(loss_mask=rollouts.loss_mask & samples[..., None])


def right_answers(rollouts):
  """Completions whose answer is right, before any shaping."""
  return rollouts.accuracy > 0.5


def per_group(function, rewards, rollouts, **constants):
  """The advantages field from a function of (rewards, sample mask)."""
  return function(rewards, rollouts.sample_mask, **constants)


def group_relative(scale: str, ddof: int, std_eps: float) -> Callable:
  """The advantages field of the GRPO family."""
  check_range(ddof=ddof, std_eps=std_eps)
  constants = {"scale": scale, "ddof": ddof, "eps": std_eps}
  return partial(per_group, group_relative_advantages, **constants)


def clip(eps_low: float, eps_high: float) -> Callable:
  """The surrogate field of PPO and of the GRPO family."""
  check_range(eps_low=eps_low, eps_high=eps_high)
  return partial(clipped_surrogate, eps_low=eps_low, eps_high=eps_high)


def per_token(advantages, rollouts):
  """Advantages `[P, G, T]`, from those or from `[P, G]`."""
  shape = rollouts.loss_mask.shape
  if advantages.shape == shape:
    return advantages
  if advantages.shape != shape[:2]:
    raise ValueError(
      f"advantages must have shape {shape[:2]} or {shape}, not"
      f" {advantages.shape}."
    )
  return jnp.broadcast_to(advantages[..., None], shape)
