"""From a ConfigDict to the typed values that everything else takes."""

import ast
import contextlib
import difflib
import hashlib
import importlib
import inspect
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

import grpo_jax
from experiments.configs import base
from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.data.prompts import prompt_stream
from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.decoder import init_params
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.training.collect import CollectOptions
from grpo_jax.training.rollouts import (
  Sampled,
  Task,
  encode_prompts,
  make_rollout,
)
from grpo_jax.training.setup import LoopOptions, Setup
from grpo_jax.training.step import (
  OptimizerOptions,
  make_optimizer,
  make_schedule,
)
from grpo_jax.training.warm_start import WarmStartOptions, warm_start

_PROBED_PROBLEMS = 64  # training problems that a warm start is probed on


class Parts(NamedTuple):
  """Everything that a config says, before any training."""

  task: Task
  recipe: Recipe
  model: ModelConfig
  warm_start: WarmStartOptions
  optimizer: OptimizerOptions
  collect: CollectOptions
  loop: LoopOptions
  rollout: Callable[..., Sampled]
  evaluation_rollout: Callable[..., Sampled]


def check_keys(config: ConfigDict) -> None:
  """Raises UserError for keys that no code reads, and for missing ones."""
  known = set(leaves(base.get_config()))
  given = set(leaves(config))
  for key in sorted(given - known):
    raise UserError(unknown_name("config key", key, known))
  for key in sorted(known - given):
    raise UserError(f"The config has no {key}; start from base.get_config().")
  for key, value in leaves(config).items():
    if isinstance(value, float) and not math.isfinite(value):
      raise UserError(f"config.{key} must be a finite number, not {value}.")


def leaves(config: ConfigDict) -> dict[str, Any]:
  """Dotted names and values: {"model.width": 64, ...}."""
  flat = {}
  for key, value in config.items():
    if isinstance(value, ConfigDict):
      flat |= {f"{key}.{name}": v for name, v in leaves(value).items()}
    else:
      flat[key] = value
  return flat


def unknown_name(what: str, name: str, known) -> str:
  """A sentence that suggests the nearest known name."""
  near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.4)
  hint = f" Did you mean {near[0]!r}?" if near else ""
  return f"Unknown {what} {name!r}.{hint}"


@contextlib.contextmanager
def _blaming(section: str) -> Iterator[None]:
  """A ValueError about the values of a section is the user's to mend."""
  try:
    yield
  except ValueError as error:
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
  s = config.sampling
  with _blaming("task"):
    task = _call(
      "task",
      config.task.name,
      config.task.args,
      home=None,
      data_dir=str(_cache_dir(config) / "data"),
      train_size=config.task.train_size,
      test_size=config.task.test_size,
    )
  with _blaming("recipe"):
    recipe = _call(
      "recipe",
      config.recipe.name,
      config.recipe.args,
      home=recipes,
      length_budget=s.max_completion_tokens,
    )
  with _blaming("model"):
    model = ModelConfig(
      vocab_size=task.tokenizer.vocab_size, tie_embeddings=True, **config.model
    )
  with _blaming("warm_start"):
    warm = WarmStartOptions(**config.warm_start)
  with _blaming("optimizer"):
    optimizer = _optimizer_options(config)
    _check_division(config)
  with _blaming("sampling"):
    collect = CollectOptions(
      prompts_per_step=s.prompts_per_step, max_rounds=s.max_rounds
    )
    encode_prompts(task, [*task.train, *task.test], s.max_prompt_tokens)
    rollout = _rollout(config, task, model, evaluation=False)
  with _blaming("evaluation"):
    evaluation_rollout = _rollout(config, task, model, evaluation=True)
  with _blaming("run"):
    loop = _loop_options(config)
  return Parts(
    task=task,
    recipe=recipe,
    model=model,
    warm_start=warm,
    optimizer=optimizer,
    collect=collect,
    loop=loop,
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
  """
  probed = parts.task.train[:_PROBED_PROBLEMS]

  def probe(params):
    sampled = parts.evaluation_rollout(
      params, probed, range(len(probed)), jax.random.key(config.seed), 0
    )
    return float(sampled.rollouts.accuracy.mean())

  params = warm_start(
    init_params(parts.model, jax.random.key(config.seed)),
    parts.task,
    parts.model,
    parts.warm_start,
    probe=probe,
    completion_width=config.sampling.max_completion_tokens,
    seed=config.seed,
    directory=_cache_dir(config) / "warm_start" / _warm_start_hash(config),
    stop_requested=stop_requested,
  )
  if params is None:
    return None
  return Setup(
    task=parts.task,
    stream=prompt_stream(parts.task.train, seed=config.seed),
    recipe=parts.recipe,
    config=parts.model,
    params=params,
    optimizer=make_optimizer(parts.optimizer),
    schedule=make_schedule(parts.optimizer),
    rollout=parts.rollout,
    evaluation_rollout=parts.evaluation_rollout,
    collect_options=parts.collect,
    options=parts.loop,
  )


def _call(what: str, name: str, args: str, *, home, **given):
  """Calls a function that a config names, with the arguments it gives.

  Args:
    what: the section of the config, for errors.
    name: `function` of the module `home`, or `module:function`.
    args: "key=value, key=value" with Python literals.
    home: module of plain names; None if there is none.
    **given: arguments that the program itself provides.

  Returns:
    What the function returns.
  """
  function = _find(what, name, home)
  extra = _parse_args(what, args)
  accepted = inspect.signature(function).parameters
  for key in extra:
    if key not in accepted:
      raise UserError(
        unknown_name(f"argument of {what} {name!r}", key, set(accepted))
      )
  return function(**given, **extra)


def _find(what: str, name: str, home) -> Callable:
  module_name, colon, function_name = name.rpartition(":")
  if colon:
    try:
      module = importlib.import_module(module_name)
    except ImportError as error:
      raise UserError(f"config.{what}.name: {error}.") from error
  elif home is None:
    raise UserError(
      f"config.{what}.name must be module:function, not {name!r}."
    )
  else:
    module = home
  function = getattr(module, function_name, None)
  if not callable(function):
    functions = [
      key
      for key, value in vars(module).items()
      if inspect.isfunction(value)
      and value.__module__.startswith(module.__name__)
    ]
    raise UserError(unknown_name(what, function_name, functions))
  return function


def _parse_args(what: str, args: str) -> dict[str, Any]:
  try:
    call = ast.parse(f"f({args})", mode="eval").body
    if call.args or any(keyword.arg is None for keyword in call.keywords):
      raise ValueError("only key=value is possible")
    return {k.arg: ast.literal_eval(k.value) for k in call.keywords}
  except (SyntaxError, ValueError) as error:
    raise UserError(
      f"config.{what}.args must read like 'key=value, key=value', not"
      f" {args!r} ({error})."
    ) from error


def _optimizer_options(config: ConfigDict) -> OptimizerOptions:
  o = config.optimizer
  return OptimizerOptions(
    learning_rate=o.learning_rate,
    warmup_steps=o.warmup_steps,
    decay_steps=0,
    b1=0.9,
    b2=o.b2,
    weight_decay=o.weight_decay,
    max_grad_norm=o.max_grad_norm,
  )


def _check_division(config: ConfigDict) -> None:
  prompts, size = config.sampling.prompts_per_step, config.sampling.group_size
  parts = config.optimizer.minibatches
  if prompts % parts:
    raise ValueError(
      f"minibatches = {parts} does not divide sampling.prompts_per_step ="
      f" {prompts}; possible are {_divisors(prompts)}."
    )
  completions = prompts // parts * size
  if completions % config.optimizer.microbatches:
    raise ValueError(
      f"microbatches = {config.optimizer.microbatches} does not divide the"
      f" {completions} completions of a minibatch; possible are"
      f" {_divisors(completions)}."
    )


def _divisors(number: int) -> str:
  found = [d for d in range(1, number + 1) if number % d == 0]
  return ", ".join(map(str, found))


def _rollout(
  config: ConfigDict, task: Task, model: ModelConfig, *, evaluation: bool
) -> Callable[..., Sampled]:
  s, e = config.sampling, config.evaluation
  group_size = e.samples_per_problem if evaluation else s.group_size
  if group_size < 1:
    raise ValueError("a problem needs at least one sample.")
  # An evaluation call has as many rows as a training call, or nearly.
  rows = s.prompts_per_step * s.group_size
  calls = max(1, rows // group_size) if evaluation else s.prompts_per_step
  return make_rollout(
    task,
    model,
    SamplingOptions(
      max_completion_tokens=s.max_completion_tokens,
      temperature=e.temperature if evaluation else s.temperature,
      top_k=0,
      top_p=e.top_p if evaluation else 1.0,
      stop_ids=task.tokenizer.stop_ids,
    ),
    reward_weights=dict(config.reward),
    prompts_per_call=calls,
    group_size=group_size,
    max_prompt_tokens=s.max_prompt_tokens,
  )


def _loop_options(config: ConfigDict) -> LoopOptions:
  return LoopOptions(
    steps=config.run.steps,
    minibatches=config.optimizer.minibatches,
    microbatches=config.optimizer.microbatches,
    evaluate_every_steps=config.evaluation.every_steps,
    checkpoint_every_steps=config.run.checkpoint_every_steps,
    logged_prompts=config.run.logged_prompts,
    max_skipped_in_a_row=config.run.max_skipped_in_a_row,
    seed=config.seed,
    temperature=config.sampling.temperature,
  )


def _cache_dir(config: ConfigDict) -> Path:
  return Path(os.path.expanduser(config.run.cache_dir)).absolute()


def _warm_start_hash(config: ConfigDict) -> str:
  """Of everything that the warm start's parameters depend on."""
  dependencies = {
    "seed": config.seed,
    "task": dict(config.task),
    "model": dict(config.model),
    "warm_start": dict(config.warm_start),
    "sampling": dict(config.sampling),
    "evaluation": dict(config.evaluation),
    "versions": [grpo_jax.__version__, jax.__version__],
  }
  text = json.dumps(dependencies, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]
