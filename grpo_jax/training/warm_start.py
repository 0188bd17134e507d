"""Supervised learning on written-out completions, before reinforcement.

The "cold start" of DeepSeek-R1 (arXiv:2501.12948). It is the same train step
under the recipe `supervised`.
"""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.weights import token_mean
from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.reporting.progress import Progress
from grpo_jax.training.checkpoints import Checkpoints
from grpo_jax.training.packing import packed_rows, place
from grpo_jax.training.rollouts import Task
from grpo_jax.training.step import (
  OptimizerOptions,
  init_state,
  make_optimizer,
  make_train_step,
)
from grpo_jax.types import TrainBatch

# Traces that a batch's size is planned from, and that may all be too long
# before the settings are found at fault.
_LOOK_AHEAD = 512


def supervised_batch(
  sequence: Callable[[int], tuple[list[int], list[int]]],
  start: int,
  *,
  rows: int,
  width: int,
  max_sequences: int,
  completion_width: int,
) -> tuple[TrainBatch, int]:
  """Packs as many sequences as fit the rows, every token weighted the same.

  Args:
    sequence: index -> (prompt, completion with its end token), token ids.
    start: the first index to take.
    rows: R.
    width: S, tokens of a row.
    max_sequences: N, completions that the batch has room for.
    completion_width: T, the longest completion taken; longer ones are left out.

  Returns:
    A batch whose leaves lead with a microbatch axis of one, and the first
    index that it did not take.

  Raises:
    ValueError: no sequence fits, for a long time.
  """
  prompts, completions, places, used = [], [], [], [0] * rows
  index = start
  while len(places) < max_sequences:
    prompt, completion = sequence(index)
    length = len(prompt) + len(completion)
    if len(completion) <= completion_width and length <= width:
      at = place(length, used, width=width)
      if at is None:
        break
      prompts.append(prompt)
      completions.append(completion)
      places.append(at)
    index += 1
    if not places and index - start == _LOOK_AHEAD:
      raise ValueError(
        f"none of {_LOOK_AHEAD} traces fits {width} row tokens and"
        f" {completion_width} completion tokens: raise row_tokens or"
        " sampling.max_completion_tokens."
      )
  laid, tokens, mask = packed_rows(
    prompts,
    completions,
    places,
    rows=rows,
    width=width,
    max_sequences=max_sequences,
    completion_width=completion_width,
  )
  batch = TrainBatch(
    rows=laid,
    tokens=tokens,
    loss_mask=mask,
    weight=token_mean(jnp.asarray(mask)[None], jnp.ones(1, bool))[0],
    advantage=np.ones(mask.shape, np.float32),
    old_logp=np.zeros(mask.shape, np.float32),
    ref_logp=np.zeros(mask.shape, np.float32),
  )
  return jax.tree.map(lambda x: jnp.asarray(x)[None], batch), index


@dataclasses.dataclass(frozen=True)
class WarmStartOptions:
  """Supervised learning of the task's traces.

  Attributes:
    max_steps: optimizer updates; 0 starts from random parameters.
    rows: of packed sequences per update.
    row_tokens: of each row, prompts included.
    learning_rate: highest of a cosine over max_steps, with 5 % warm-up.
    stop_at_pass_at_1: ends before max_steps once a probe reaches it.
    probe_every_steps: updates between probes.
  """

  max_steps: int
  rows: int
  row_tokens: int
  learning_rate: float
  stop_at_pass_at_1: float
  probe_every_steps: int

  def __post_init__(self):
    if self.max_steps < 0:
      raise ValueError("max_steps must not be negative.")
    if min(self.rows, self.row_tokens, self.probe_every_steps) < 1:
      raise ValueError(
        "rows, row_tokens and probe_every_steps must be at least 1."
      )
    if not 0 < self.stop_at_pass_at_1 <= 1:
      raise ValueError("stop_at_pass_at_1 must lie in (0, 1].")


def warm_start(
  params: dict,
  task: Task,
  config: ModelConfig,
  options: WarmStartOptions,
  *,
  probe: Callable[[dict], float],
  completion_width: int,
  seed: int,
  directory: Path,
  stop_requested: Callable[[], bool],
) -> dict | None:
  """Trains on traces, or reads what an earlier call with this folder left.

  Args:
    params: random ones.
    task: with `trace`.
    config: of the model.
    options: how.
    probe: params -> pass@1 on a few training problems.
    completion_width: T; longer traces are left out.
    seed: of the traces.
    directory: for its checkpoint; one folder per configuration.
    stop_requested: asked between updates; if true, saves and gives up.

  Returns:
    Parameters; None if it was stopped. The next call goes on from there.
  """
  if not options.max_steps:
    return params
  optimizer = make_optimizer(
    OptimizerOptions(
      learning_rate=options.learning_rate,
      warmup_steps=options.max_steps // 20,
      decay_steps=options.max_steps,
      b1=0.9,
      b2=0.99,
      weight_decay=0.0,
      max_grad_norm=1.0,
    )
  )
  state = init_state(params, optimizer)
  train_step = make_train_step(
    recipes.supervised(length_budget=completion_width),
    config,
    optimizer,
    temperature=1.0,
  )
  sequence = trace_sequence(task, seed)
  lengths = [sum(map(len, sequence(i))) for i in range(_LOOK_AHEAD)]
  sizes = dict(
    rows=options.rows,
    width=options.row_tokens,
    max_sequences=options.rows * max(1, options.row_tokens // min(lengths)),
    completion_width=completion_width,
  )
  with Checkpoints(directory, keep=1) as checkpoints:
    restored = checkpoints.restore_latest(state)
    step, position = 0, {"next": 0, "done": False}
    if restored is not None:
      step, state, position = restored
    with Progress("warm start", options.max_steps, start=step) as progress:
      while not position["done"]:
        batch, position["next"] = supervised_batch(
          sequence, position["next"], **sizes
        )
        state, metrics = train_step(state, batch)
        step += 1
        position["done"] = step == options.max_steps
        if step % options.probe_every_steps == 0 or position["done"]:
          accuracy = probe(state.params)
          position["done"] |= accuracy >= options.stop_at_pass_at_1
          loss = float(metrics["loss"][0])
          if int(state.skipped_in_a_row):
            raise UserError(
              f"The warm start has no finite update at {step}, and was not"
              " saved since its last probe. Lower warm_start.learning_rate.",
              exit_code=1,
            )
          checkpoints.save(step, state, position)
          progress.update(
            step, {"nll": f"{loss:.3f}", "pass@1": f"{accuracy:.3f}"}
          )
        if stop_requested() and not position["done"]:
          if checkpoints.save(step, state, position):
            return None
          raise UserError(
            f"The warm start was stopped at update {step} and could not be"
            f" saved in {directory} (see above).",
            exit_code=1,
          )
  return state.params


def trace_sequence(task: Task, seed: int):
  """Index -> (prompt, trace with its end token), the problems in turn."""

  def sequence(index):
    example = task.train[index % len(task.train)]
    trace = task.trace(example, random.Random(f"{seed}:{index}"))
    encode = task.tokenizer.encode
    return encode(task.prompt(example)), [
      *encode(trace),
      task.tokenizer.stop_ids[0],
    ]

  return sequence
