"""The loop: collect, update, evaluate, save. Everything it does is resumable.

One step draws a rollout batch and makes several optimizer updates of it.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from grpo_jax.errors import UserError
from grpo_jax.reporting.progress import Progress
from grpo_jax.reporting.sinks import MetricsLog, SamplesLog
from grpo_jax.training.batches import make_minibatches
from grpo_jax.training.checkpoints import Checkpoints
from grpo_jax.training.collect import StreamState, collect
from grpo_jax.training.evaluate import (
  Evaluation,
  evaluate,
  evaluation_metrics,
  evaluation_summary,
)
from grpo_jax.training.metrics import mean_totals, rollout_metrics
from grpo_jax.training.rollouts import sample_rows
from grpo_jax.training.setup import HostState, Setup
from grpo_jax.training.step import init_state, make_scorer, make_train_step
from grpo_jax.types import TrainState

_log = logging.getLogger(__name__)

_KEPT_CHECKPOINTS = 2  # the newest, and one to fall back to
_EVALUATION_SEED = 20240917  # not the run's: seeds are compared on the same


class Outcome(NamedTuple):
  """How a run ended.

  Attributes:
    step: steps done.
    state: device state.
    host: host state.
    after: the last evaluation; None if the run was stopped before its end.
    saved: whether that step's checkpoint exists.
  """

  step: int
  state: TrainState
  host: HostState
  after: Evaluation | None
  saved: bool


def train(
  setup: Setup, workdir: Path, *, stop_requested: Callable[[], bool]
) -> Outcome:
  """Trains from the newest checkpoint in workdir, or from the start.

  Args:
    setup: the experiment.
    workdir: for metrics, samples and checkpoints.
    stop_requested: asked between steps; if true, the run saves and returns.

  Returns:
    The state it ended in.

  Raises:
    UserError: too many updates in a row had no finite gradient; a checkpoint
      is saved before.
  """
  options = setup.options
  checkpoints = Checkpoints(workdir / "checkpoints", keep=_KEPT_CHECKPOINTS)
  state = init_state(setup.params, setup.optimizer)
  restored = checkpoints.restore_latest(state)
  if restored is None:
    step, host = 0, None
  else:
    step, state, host = (
      restored[0],
      restored[1],
      HostState.from_json(restored[2]),
    )
    _log.info("Continuing from the checkpoint of step %d.", step)
  run_step = _make_step(setup)
  resume_step = None if restored is None else step

  def evaluation(state):
    start = time.perf_counter()
    result = evaluate(
      state.params,
      setup.task,
      setup.evaluation_rollout,
      seed=_EVALUATION_SEED,
    )
    return result, time.perf_counter() - start

  after, saved = None, True
  with (
    MetricsLog(workdir, resume_step=resume_step) as metrics_log,
    SamplesLog(workdir, resume_step=resume_step) as samples_log,
    Progress("step", options.steps, start=step) as progress,
  ):
    if host is None:
      before, seconds = evaluation(state)
      host = _first_host_state(before, seconds)
      metrics_log.write(0, evaluation_metrics(before))
      samples_log.write(0, _evaluation_rows(before, setup))
      checkpoints.save(0, state, host.to_json())
      progress.update(0, {"pass@1": f"{before.pass_at_1.mean:.3f}"})
    shown = {}
    while step < options.steps:
      if stop_requested():
        saved = checkpoints.save(step, state, host.to_json())
        return Outcome(step, state, host, None, saved)
      state, host, metrics, rows = run_step(step, state, host)
      step += 1
      samples_log.write(step, rows)
      if step == options.steps or _due(step, options.evaluate_every_steps):
        after, seconds = evaluation(state)
        host = _spent(host, evaluate=seconds)
        metrics |= evaluation_metrics(after)
        if step == options.steps:
          samples_log.write(step, _evaluation_rows(after, setup))
      metrics_log.write(step, metrics)
      shown |= _figures(metrics)
      progress.update(step, shown)
      hopeless = int(state.skipped_in_a_row) >= options.max_skipped_in_a_row
      if (
        hopeless
        or step == options.steps
        or _due(step, options.checkpoint_every_steps)
      ):
        saved = checkpoints.save(step, state, host.to_json())
      if hopeless:
        raise UserError(
          f"{int(state.skipped_in_a_row)} updates in a row had a loss or"
          " gradient that is not finite. The run stopped at step"
          f" {step} with a checkpoint. Lower the learning rate, or look at"
          " samples.jsonl.gz and metrics.jsonl for when it began.",
          exit_code=1,
        )
  if after is None:  # everything had been done before
    after, _ = evaluation(state)
  checkpoints.close()
  return Outcome(step, state, host, after, saved)


def _make_step(setup: Setup) -> Callable:
  """`run_step(step, state, host) -> (state, host, metrics, sample rows)`."""
  options = setup.options
  train_step = make_train_step(
    setup.recipe,
    setup.config,
    setup.optimizer,
    temperature=options.temperature,
  )
  scorer = make_scorer(
    setup.config,
    temperature=options.temperature,
    groups_per_call=setup.collect_options.prompts_per_step,
    ref_params=setup.params if setup.recipe.needs_reference else None,
  )
  minibatches = make_minibatches(
    setup.recipe,
    minibatches=options.minibatches,
    microbatches=options.microbatches,
  )
  root = jax.random.key(options.seed)

  def run_step(step: int, state: TrainState, host: HostState):
    start = time.perf_counter()
    key = jax.random.fold_in(root, step)

    def draw(indices):
      examples = [setup.stream[i] for i in indices]
      return setup.rollout(state.params, examples, list(indices), key, step)

    collected, stream = collect(
      host.stream,
      setup.collect_options,
      recipe=setup.recipe,
      draw=draw,
      score=lambda groups: scorer(state.params, groups),
    )
    metrics = rollout_metrics(collected)
    metrics["learning_rate"] = float(setup.schedule(state.step))
    updating = time.perf_counter()
    state, update_metrics = _update(state, collected, minibatches, train_step)
    metrics |= update_metrics
    end = time.perf_counter()

    tokens = sum(int(s.rollouts.lengths.sum()) for s in collected.sampled)
    seconds = {
      "sample": sum(s.sample_s for s in collected.sampled),
      "reward": sum(s.reward_s for s in collected.sampled),
      "score": collected.score_s,
      "train": end - updating,
    }
    seconds["other"] = end - start - sum(seconds.values())
    metrics |= {f"time/{name}_s": value for name, value in seconds.items()}
    metrics["time/step_s"] = end - start
    metrics["tokens_per_second"] = tokens / (end - start)
    metrics["num_tokens"] = float(host.tokens + tokens)
    host = _spent(host, **seconds)._replace(
      stream=stream, tokens=host.tokens + tokens
    )
    rows = [
      row
      for sampled in collected.sampled[:1]
      for row in sample_rows(sampled, setup.task, options.logged_prompts)
    ]
    return state, host, metrics, rows

  return run_step


def _update(state, collected, minibatches, train_step):
  """All updates of a rollout batch; none if nothing can be learnt from it."""
  if collected.rollouts is None:
    _log.warning(
      "No group of this step's rollouts carries a signal; nothing is updated."
    )
    return state, {"groups/no_signal": 1.0}
  batch = minibatches(collected.rollouts)
  signal, trained = jax.device_get(
    (jax.numpy.any(batch.advantage != 0), batch.weight.sum((1, 2, 3)) > 0)
  )
  if not signal:
    _log.warning("All advantages of this step are zero; nothing is updated.")
    return state, {"groups/no_signal": 1.0}
  parts = []
  for m in np.flatnonzero(trained):  # the others hold nothing but filling
    part = jax.tree.map(lambda x, m=m: x[m], batch)
    state, metrics = train_step(state, part)
    parts.append(metrics)
  means = mean_totals(jax.device_get(parts))
  low, high = (means.get(f"clip_ratio/{s}_mean") for s in ("low", "high"))
  if low is not None and high is not None:
    means["clip_ratio/region_mean"] = low + high
  return state, {**means, "groups/no_signal": 0.0}


def _first_host_state(before: Evaluation, seconds: float) -> HostState:
  summary = evaluation_summary(before)
  return HostState(
    stream=StreamState(next_prompt=0, keep_rate=1.0, pending=None),
    before={"summary": summary, "accuracy": before.accuracy.tolist()},
    seconds={"evaluate": seconds},
    tokens=0,
  )


def _spent(host: HostState, **seconds: float) -> HostState:
  """Adds to the seconds of each phase."""
  total = dict(host.seconds)
  for name, value in seconds.items():
    total[name] = total.get(name, 0.0) + value
  return host._replace(seconds=total)


def _due(step: int, every: int) -> bool:
  return every > 0 and step % every == 0


def _evaluation_rows(evaluation: Evaluation, setup: Setup) -> list[dict]:
  return sample_rows(
    evaluation.sampled, setup.task, setup.options.logged_prompts
  )


def _figures(metrics: dict[str, float]) -> dict[str, str]:
  """What the progress bar shows of a step."""
  names = {
    "reward": "reward",
    "pass@1": "eval/pass@1",
    "length": "completions/mean_length",
    "entropy": "entropy",
  }
  return {
    shown: f"{metrics[name]:.3f}"
    for shown, name in names.items()
    if name in metrics
  }
