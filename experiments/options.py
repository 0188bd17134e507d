"""Sections of a ConfigDict as the typed options of the parts."""

import math

from ml_collections import ConfigDict

from experiments import conventions
from experiments.conventions import Convention
from experiments.named import call_function, call_named
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.training.curriculum import EVERYTHING, Curriculum
from grpo_jax.training.rollouts import Task
from grpo_jax.training.setup import LoopOptions
from grpo_jax.training.step import OptimizerOptions


def optimizer_options(config: ConfigDict) -> OptimizerOptions:
  """Of the updates of reinforcement; raises ValueError like the others."""
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


def check_division(config: ConfigDict) -> None:
  """Raises a ValueError if a rollout batch cannot be split as configured."""
  prompts, size = config.sampling.prompts_per_step, config.sampling.group_size
  parts, micro = config.optimizer.minibatches, config.optimizer.microbatches
  shared = config.optimizer.completions_per_row
  if min(prompts, size, parts, micro, shared) < 1:
    raise ValueError(
      "minibatches, microbatches, completions_per_row,"
      " sampling.prompts_per_step and sampling.group_size must be at least 1."
    )
  if prompts % parts:
    raise ValueError(
      f"minibatches = {parts} does not divide sampling.prompts_per_step ="
      f" {prompts}; possible are {_divisors(prompts)}."
    )
  completions = prompts // parts * size
  if completions % micro:
    raise ValueError(
      f"microbatches = {micro} does not divide the {completions} completions"
      f" of a minibatch; possible are {_divisors(completions)}."
    )
  whole = math.gcd(size, completions // micro)
  if whole % shared:
    raise ValueError(
      f"completions_per_row = {shared} does not divide both sampling.group_size"
      f" = {size} and the {completions // micro} completions of a microbatch;"
      f" possible are {_divisors(whole)}."
    )


def _divisors(number: int) -> str:
  found = [d for d in range(1, number + 1) if number % d == 0]
  return ", ".join(map(str, found))


def sampling_options(
  config: ConfigDict,
  task: Task,
  *,
  temperature: float,
  top_p: float = 1.0,
  top_k: int = 0,
) -> SamplingOptions:
  """Of training, or of evaluation."""
  return SamplingOptions(
    max_completion_tokens=config.sampling.max_completion_tokens,
    temperature=temperature,
    top_k=top_k,
    top_p=top_p,
    stop_ids=task.tokenizer.stop_ids,
  )


def curriculum_options(config: ConfigDict) -> Curriculum:
  """Which problems are passed over; none by default."""
  text = config.sampling.curriculum
  if not text:
    return EVERYTHING
  return call_function("sampling.curriculum", Curriculum, text, {})


def evaluation_convention(config: ConfigDict) -> Convention:
  """How held-out problems are sampled, by name and arguments."""
  e = config.evaluation
  convention = call_named(
    "evaluation", e.name, e.args, home=conventions, given={}
  )
  if not isinstance(convention, Convention):
    raise ValueError(
      f"{e.name!r} must return a Convention, not {convention!r}."
    )
  return convention


def loop_options(config: ConfigDict) -> LoopOptions:
  """Of the loop, from several sections."""
  return LoopOptions(
    steps=config.run.steps,
    minibatches=config.optimizer.minibatches,
    microbatches=config.optimizer.microbatches,
    completions_per_row=config.optimizer.completions_per_row,
    evaluate_every_steps=config.evaluation.every_steps,
    checkpoint_every_steps=config.run.checkpoint_every_steps,
    logged_prompts=config.run.logged_prompts,
    max_skipped_in_a_row=config.run.max_skipped_in_a_row,
    seed=config.seed,
    temperature=config.sampling.temperature,
  )
