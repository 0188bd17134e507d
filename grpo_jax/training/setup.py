"""What a training run is given, and what it remembers."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.lora import LoraOptions, merge
from grpo_jax.training.checkpoints import rollouts_from_json, rollouts_to_json
from grpo_jax.training.collect import CollectOptions, StreamState
from grpo_jax.training.curriculum import Prompts
from grpo_jax.training.rollouts import Sampled, Task


@dataclasses.dataclass(frozen=True)
class LoopOptions:
  """How long to train, and what to leave behind.

  Attributes:
    steps: rollout batches.
    minibatches: optimizer updates per rollout batch.
    microbatches: parts that the gradient of an update is summed over.
    completions_per_row: that go through the model with one copy of a prompt.
    evaluate_every_steps: besides the evaluations before and after; 0 for none.
    checkpoint_every_steps: besides the one at the end; 0 for none.
    logged_prompts: prompts per step whose completions are written down.
    max_skipped_in_a_row: updates without a finite gradient before giving up.
    seed: of everything random.
    temperature: of sampling, and so of scoring.
  """

  steps: int
  minibatches: int
  microbatches: int
  completions_per_row: int
  evaluate_every_steps: int
  checkpoint_every_steps: int
  logged_prompts: int
  max_skipped_in_a_row: int
  seed: int
  temperature: float

  def __post_init__(self):
    for name in (
      "steps",
      "minibatches",
      "microbatches",
      "completions_per_row",
      "max_skipped_in_a_row",
    ):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} must be at least 1.")
    for name in (
      "evaluate_every_steps",
      "checkpoint_every_steps",
      "logged_prompts",
      "seed",
    ):
      if getattr(self, name) < 0:
        raise ValueError(f"{name} must not be negative.")


class Setup(NamedTuple):
  """What is trained, and how: everything that the loop is given.

  Attributes:
    task: problems and rewards.
    prompts: the order in which problems of the task are drawn.
    recipe: the algorithm.
    config: of the model.
    params: to start from; also the reference policy, and the base that
      adapters change.
    lora: options of the adapters that are trained; None trains all parameters.
    adapters: to start from; None without.
    critic: parameters to start from; () without a critic.
    optimizer: of the updates.
    schedule: learning rate of each update, for the log.
    rollout: samples training problems.
    evaluation_rollout: samples held-out problems.
    collect_options: how a rollout batch is filled.
    options: of the loop.
  """

  task: Task
  prompts: Prompts
  recipe: Recipe
  config: ModelConfig
  params: dict
  lora: LoraOptions | None
  adapters: dict | None
  critic: dict | tuple
  optimizer: optax.GradientTransformation
  schedule: optax.Schedule
  rollout: Callable[..., Sampled]
  evaluation_rollout: Callable[..., Sampled]
  collect_options: CollectOptions
  options: LoopOptions


_merged = jax.jit(merge, static_argnames="options")  # one for all callers


def policy_params(setup: Setup, trained: dict) -> dict:
  """The model's parameters, from those that a state trains."""
  if setup.lora is None:
    return trained
  return _merged(setup.params, trained, options=setup.lora)


class HostState(NamedTuple):
  """What a run remembers outside the device, as JSON in its checkpoints.

  Attributes:
    stream: position among the prompts, what is known of them, and groups not
      used yet.
    before: per-question accuracy and summary of the first evaluation.
    seconds: spent so far, by phase.
    tokens: completion tokens sampled so far.
  """

  stream: StreamState
  before: dict[str, Any]
  seconds: dict[str, float]
  tokens: int

  def to_json(self) -> dict[str, Any]:
    """JSON data that `from_json` restores exactly."""
    pending = rollouts_to_json(self.stream.pending)
    stream = self.stream._replace(pending=pending)._asdict()
    # Through text: Orbax's own JSON would round nothing, but it accepts less.
    return json.loads(json.dumps({**self._asdict(), "stream": stream}))

  @classmethod
  def from_json(cls, data: dict[str, Any]) -> "HostState":
    """The inverse of `to_json`."""
    stream = dict(data["stream"])
    stream["pending"] = rollouts_from_json(stream["pending"])
    stream["solve_rates"] = {
      int(problem): rate for problem, rate in stream["solve_rates"].items()
    }
    return cls(**{**data, "stream": StreamState(**stream)})

  def spent(self, **seconds: float) -> "HostState":
    """With seconds added to phases."""
    total = dict(self.seconds)
    for name, value in seconds.items():
      total[name] = total.get(name, 0.0) + value
    return self._replace(seconds=total)
