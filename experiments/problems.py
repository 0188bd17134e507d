"""The problems that a config names: loaded, checked, put in order."""

import logging
import os
from pathlib import Path

from ml_collections import ConfigDict

from experiments.named import call_named, takes
from grpo_jax import host
from grpo_jax.data.prompts import (
  check_disjoint,
  fitting,
  mixed_prompt_stream,
  prompt_stream,
)
from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.training.rollouts import Task, encode_prompts

_log = logging.getLogger(__name__)


def cache_dir(config: ConfigDict) -> Path:
  """For what several runs share: warm starts and prepared data."""
  return Path(os.path.expanduser(config.run.cache_dir)).absolute()


def load_task(config: ConfigDict, tokenizer: Tokenizer | None) -> Task:
  """The task that a config names, with its problems.

  Args:
    config: of the experiment.
    tokenizer: of the model's checkpoint; None without one.

  Raises:
    UserError: there is no such function, or it does not take these arguments.
    ValueError: a size or a value is out of range, or problems are held out
      that are trained on.
  """
  if min(config.task.train_size, config.task.test_size) < 1:
    raise ValueError("train_size and test_size must be at least 1.")
  folder = cache_dir(config) / "data"
  files = config.data.manual_dir
  if files and not takes("task", config.task.name, "manual_dir", home=None):
    raise ValueError(
      f"{config.task.name!r} takes no files from data.manual_dir = {files!r};"
      " set it to ''."
    )
  with host.locked(folder):
    task = call_named(
      "task",
      config.task.name,
      config.task.args,
      home=None,
      given={
        "data_dir": str(folder),
        "train_size": config.task.train_size,
        "test_size": config.task.test_size,
      },
      offered={"manual_dir": files or None}
      | ({} if tokenizer is None else {"tokenizer": tokenizer}),
    )
  if not isinstance(task, Task):
    raise ValueError(f"{config.task.name!r} must return a Task, not {task!r}.")
  if tokenizer is not None and task.tokenizer is not tokenizer:
    raise ValueError(
      f"{config.task.name!r} has a tokenizer of its own, and cannot be given to"
      " the model in model.path."
    )
  if not task.train or not task.test:
    raise ValueError("the task has no problems to train on, or none held out.")
  check_disjoint(task.train, task.test)
  if task.trace is None and config.warm_start.max_steps:
    raise ValueError(
      "the task has no traces to imitate; set warm_start.max_steps to 0."
    )
  return task


def without_long_prompts(task: Task, max_prompt_tokens: int) -> Task:
  """The task without training problems that are too long, which are told.

  Raises:
    ValueError: none is left, or a held-out problem is too long.
  """
  encode_prompts(task, task.test, max_prompt_tokens)
  train = fitting(
    task.train,
    lambda example: len(task.tokenizer.encode(task.prompt(example))),
    max_prompt_tokens=max_prompt_tokens,
  )
  if len(train) < len(task.train):
    _log.info(
      "%d of %d training problems are left out: their prompts have more than"
      " sampling.max_prompt_tokens = %d tokens.",
      len(task.train) - len(train),
      len(task.train),
      max_prompt_tokens,
    )
  return task._replace(train=train)


def prompt_order(task: Task, *, seed: int):
  """The stream of training problems, as indices into `task.train`.

  Raises:
    ValueError: the weights of the task's mixture are not those of its sets.
  """
  if task.mixture is None:
    return prompt_stream(range(len(task.train)), seed=seed)
  if task.set_of is None:
    raise ValueError("a task with a mixture must tell the sets of problems.")
  sets = {name: [] for name in task.mixture}
  for index, example in enumerate(task.train):
    sets.setdefault(task.set_of(example), []).append(index)
  return mixed_prompt_stream(sets, task.mixture, seed=seed)
