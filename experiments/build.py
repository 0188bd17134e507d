"""From a ConfigDict to the typed values that everything else takes."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

import grpo_jax
from experiments.keys import check_keys
from experiments.model import (
  checkpoint_path,
  initial_params,
  load_model_tokenizer,
  lora_options,
  model_config,
)
from experiments.named import apply_pieces, call_named
from experiments.options import (
  check_division,
  curriculum_options,
  evaluation_convention,
  loop_options,
  optimizer_options,
  sampling_options,
)
from experiments.problems import (
  cache_dir,
  load_task,
  prompt_order,
  without_long_prompts,
)
from experiments.rewards import Rewards, reward_functions, reward_weights
from grpo_jax import host
from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.recipes import Recipe, pieces
from grpo_jax.data.prompts import check_seed
from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.critic import init_critic
from grpo_jax.models.lora import LoraOptions, init_lora
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.training.collect import CollectOptions
from grpo_jax.training.curriculum import Curriculum, Prompts
from grpo_jax.training.rollouts import (
  Sampled,
  Task,
  make_rollout,
)
from grpo_jax.training.setup import LoopOptions, Setup
from grpo_jax.training.step import (
  OptimizerOptions,
  make_optimizer,
  make_schedule,
)
from grpo_jax.training.warm_start import (
  WarmStartOptions,
  trace_sequence,
  warm_start,
)

_PROBED_PROBLEMS = 64  # training problems that a warm start is probed on


class Parts(NamedTuple):
  """Everything that a config says, before any training.

  `order` are the training problems' indices as they are drawn; `too_long`
  counts those that `task` was given and lacks.
  """

  task: Task
  order: Sequence[int]
  too_long: int
  recipe: Recipe
  model: ModelConfig
  lora: LoraOptions | None
  warm_start: WarmStartOptions
  optimizer: OptimizerOptions
  collect: CollectOptions
  loop: LoopOptions
  sampling: SamplingOptions
  curriculum: Curriculum
  evaluation: SamplingOptions
  evaluation_samples: int
  rollout: Callable[..., Sampled]
  evaluation_rollout: Callable[..., Sampled]


@contextlib.contextmanager
def _blaming(section: str) -> Iterator[None]:
  """A wrong value or type in a section is the user's to mend."""
  try:
    yield
  except (TypeError, ValueError) as error:
    raise UserError(f"config.{section}: {error}") from error


def build(config: ConfigDict) -> Parts:
  """All parts of an experiment.

  Args:
    config: with the keys of `base.py`.

  Returns:
    The parts; problems are loaded, nothing is trained.

  Raises:
    UserError: a value is out of range, or names something that is not there.
  """
  check_keys(config)
  with _blaming("seed"):
    check_seed(config.seed)
  with _blaming("optimizer"):
    optimizer = optimizer_options(config)
    check_division(config)
  with _blaming("run"):
    loop = loop_options(config)
  with _blaming("warm_start"):
    warm = WarmStartOptions(**config.warm_start)
  with _blaming("reward"):
    weights = reward_weights(config)
  with _blaming("recipe"):
    recipe = call_named(
      "recipe",
      config.recipe.name,
      config.recipe.args,
      home=recipes,
      given={"length_budget": config.sampling.max_completion_tokens},
      offered={
        "group_size": config.sampling.group_size,
        "reward_weights": tuple(
          weight for _, weight in sorted(weights.items())
        ),
      },
    )
    if not isinstance(recipe, Recipe):
      raise ValueError(
        f"{config.recipe.name!r} must return a Recipe, not {recipe!r}."
      )
    recipe = apply_pieces("recipe.pieces", config.recipe.pieces, pieces, recipe)
    _ = recipe.initial_memory  # two of one name are refused before the run
  with _blaming("model"):
    tokenizer = load_model_tokenizer(config)
  with _blaming("task"):
    task = load_task(config, tokenizer)
    if recipe.needs_steps and task.judge_steps is None:
      raise ValueError(
        f"the recipe {config.recipe.name!r} needs a task that judges steps;"
        f" {config.task.name!r} does not."
      )
  with _blaming("reward"):
    rewards = Rewards(reward_functions(config, task, weights), weights)
  with _blaming("model"):
    model = model_config(config, task.tokenizer.vocab_size)
    lora = lora_options(config)
  with _blaming("sampling"):
    problems = len(task.train)
    task = without_long_prompts(task, config.sampling.max_prompt_tokens)
    curriculum = curriculum_options(config)
    collect = CollectOptions(
      prompts_per_step=config.sampling.prompts_per_step,
      max_rounds=config.sampling.max_rounds,
    )
    sampling = sampling_options(
      config, task, temperature=config.sampling.temperature
    )
    if not sampling.temperature > 0:
      raise ValueError("temperature must be positive to explore.")
    rollout = _rollout(
      config,
      task,
      rewards,
      model,
      sampling,
      config.sampling.group_size,
      judge_steps=recipe.needs_steps,
    )
  with _blaming("task"):
    order = prompt_order(task, seed=config.seed)
  with _blaming("evaluation"):
    convention = evaluation_convention(config)
    evaluation = sampling_options(
      config,
      task,
      temperature=convention.temperature,
      top_p=convention.top_p,
      top_k=convention.top_k,
    )
    evaluation_rollout = _rollout(
      config, task, rewards, model, evaluation, convention.samples
    )
  return Parts(
    task=task,
    order=order,
    too_long=problems - len(task.train),
    recipe=recipe,
    model=model,
    lora=lora,
    warm_start=warm,
    optimizer=optimizer,
    collect=collect,
    loop=loop,
    sampling=sampling,
    curriculum=curriculum,
    evaluation=evaluation,
    evaluation_samples=convention.samples,
    rollout=rollout,
    evaluation_rollout=evaluation_rollout,
  )


def prepare(
  config: ConfigDict, parts: Parts, *, stop_requested: Callable[[], bool]
) -> Setup | None:
  """Trains or reads the warm start, and puts the training run together.

  Args:
    config: of the experiment.
    parts: from `build`.
    stop_requested: asked between updates.

  Returns:
    What `training.loop.train` takes; None if the warm start was stopped.

  Raises:
    UserError: the warm start has nothing to imitate, or could not be saved
      when it was stopped.
  """
  probed = parts.task.train[:_PROBED_PROBLEMS]

  def probe(params):
    sampled = parts.evaluation_rollout(
      params, probed, range(len(probed)), jax.random.key(config.seed), 0
    )
    return float(sampled.rollouts.accuracy.mean())

  with _blaming("task"):
    name = _warm_start_hash(config, parts)
  folder = cache_dir(config) / "warm_start" / name
  with _blaming("warm_start"), host.locked(folder):
    params = warm_start(
      initial_params(config, parts.model),
      parts.task,
      parts.model,
      parts.warm_start,
      probe=probe,
      completion_width=config.sampling.max_completion_tokens,
      seed=config.seed,
      directory=folder / "checkpoints",
      stop_requested=stop_requested,
    )
  if params is None:
    return None
  critic, lora = parts.recipe.critic, parts.lora
  with _blaming("model.lora"):
    key = jax.random.key(config.seed)
    adapters = init_lora(params, lora, key) if lora else None
  return Setup(
    task=parts.task,
    prompts=Prompts(
      order=parts.order,
      curriculum=parts.curriculum,
      seed=config.seed,
    ),
    recipe=parts.recipe,
    config=parts.model,
    params=params,
    lora=lora,
    adapters=adapters,
    critic=init_critic(critic.kind, params, parts.model) if critic else (),
    optimizer=make_optimizer(
      parts.optimizer,
      critic,
      master_weights=parts.model.param_dtype == "bfloat16",
    ),
    schedule=make_schedule(parts.optimizer),
    rollout=parts.rollout,
    evaluation_rollout=parts.evaluation_rollout,
    collect_options=parts.collect,
    options=parts.loop,
  )


def _rollout(
  config: ConfigDict,
  task: Task,
  rewards: Rewards,
  model: ModelConfig,
  options: SamplingOptions,
  group_size: int,
  judge_steps: bool = False,
) -> Callable[..., Sampled]:
  # Every call has as many rows as one of a training step, or nearly.
  rows = config.sampling.prompts_per_step * config.sampling.group_size
  return make_rollout(
    task,
    model,
    options,
    reward_functions=rewards.functions,
    reward_weights=rewards.weights,
    prompts_per_call=max(1, rows // group_size),
    group_size=group_size,
    max_prompt_tokens=config.sampling.max_prompt_tokens,
    judge_steps=judge_steps,
  )


def _warm_start_hash(config: ConfigDict, parts: Parts) -> str:
  """Of what the warm start's parameters depend on, its traces included."""
  if not parts.warm_start.max_steps:
    return "none"
  sequence = trace_sequence(parts.task, config.seed)
  dependencies = [
    config.seed,
    checkpoint_path(config),
    dataclasses.asdict(parts.model),
    dataclasses.asdict(parts.warm_start),
    dataclasses.asdict(parts.evaluation),
    parts.evaluation_samples,
    [sequence(i) for i in itertools.chain(range(256), [len(parts.task.train)])],
    [grpo_jax.__version__, jax.__version__],
  ]
  text = json.dumps(dependencies)
  return hashlib.sha256(text.encode()).hexdigest()[:16]
