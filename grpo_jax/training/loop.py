"""The loop: collect, update, evaluate, save. Everything it does is resumable.

One step draws a rollout batch and makes several optimizer updates of it.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from grpo_jax.errors import UserError
from grpo_jax.host import return_freed_memory
from grpo_jax.reporting.progress import Progress
from grpo_jax.reporting.sinks import MetricsLog, SamplesLog
from grpo_jax.training.checkpoints import Checkpoints
from grpo_jax.training.collect import StreamState
from grpo_jax.training.evaluate import (
  Evaluation,
  evaluate,
  evaluation_metrics,
  evaluation_summary,
)
from grpo_jax.training.rl_step import make_step
from grpo_jax.training.rollouts import sample_rows
from grpo_jax.training.setup import HostState, Setup, policy_params
from grpo_jax.training.step import init_state
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
  setup: Setup,
  workdir: Path,
  *,
  stop_requested: Callable[[], bool],
  spent_s: float,
) -> Outcome:
  """Trains from the newest checkpoint in workdir, or from the start.

  Args:
    setup: the experiment.
    workdir: for metrics, samples and checkpoints.
    stop_requested: asked between steps; if true, the run saves and returns.
    spent_s: seconds that this process took before, for the report.

  Returns:
    The state it ended in.

  Raises:
    UserError: too many updates in a row had no finite gradient; a checkpoint
      is saved before. Or the checkpoints in workdir are of no use.
  """
  with checkpoints_of(workdir) as saved:
    state = initial_state(setup)
    restored = saved.restore_latest(state)
    step, host, resume_step = 0, None, None
    if restored is not None:
      step, state, host = restored
      resume_step, host = step, HostState.from_json(host)
      _log.info("Continuing from the checkpoint of step %d.", step)
    with (
      MetricsLog(workdir, resume_step=resume_step) as metrics_log,
      SamplesLog(workdir, resume_step=resume_step) as samples_log,
      Progress("step", setup.options.steps, start=step) as progress,
    ):
      outputs = Outputs(saved, metrics_log, samples_log, progress)
      if host is None:
        host = _before(setup, state, outputs)
      if step >= setup.options.steps:  # everything had been done before
        return Outcome(step, state, host, _evaluate(setup, state)[0], True)
      host = host.spent(warm_start=spent_s)
      return _train(setup, step, state, host, outputs, stop_requested)


def initial_state(setup: Setup) -> TrainState:
  """The state before the first update."""
  return init_state(
    setup.adapters if setup.lora else setup.params,
    setup.optimizer,
    critic=setup.critic,
    memory=setup.recipe.initial_memory,
  )


def checkpoints_of(workdir: Path) -> Checkpoints:
  """The checkpoints of the run in a folder."""
  return Checkpoints(workdir / "checkpoints", keep=_KEPT_CHECKPOINTS)


class Outputs(NamedTuple):
  """Where a run leaves what it makes."""

  checkpoints: Checkpoints
  metrics: MetricsLog
  samples: SamplesLog
  progress: Progress


def _train(setup, step, state, host, outputs, stop_requested) -> Outcome:
  """All steps that are left."""
  options = setup.options
  run_step = make_step(setup)
  after, saved, shown, first = None, True, {}, step
  while step < options.steps:
    if stop_requested():
      saved = outputs.checkpoints.save(step, state, host.to_json())
      return Outcome(step, state, host, None, saved)
    state, host, metrics, rows = run_step(step, state, host)
    if step == first:  # everything that a step needs is compiled now
      return_freed_memory()
    step += 1
    last = step == options.steps
    outputs.samples.write(step, rows)
    if last or _due(step, options.evaluate_every_steps):
      after, seconds = _evaluate(setup, state)
      host = host.spent(evaluate=seconds)
      metrics |= evaluation_metrics(after)
      if last:
        outputs.samples.write(step, _evaluation_rows(after, setup))
    outputs.metrics.write(step, metrics)
    shown |= _figures(metrics)
    outputs.progress.update(step, shown)
    hopeless = int(state.skipped_in_a_row) >= options.max_skipped_in_a_row
    if last or hopeless or _due(step, options.checkpoint_every_steps):
      saved = outputs.checkpoints.save(step, state, host.to_json())
    if hopeless:
      raise UserError(
        f"{int(state.skipped_in_a_row)} updates in a row had a loss or gradient"
        f" that is not finite. The run stopped at step {step} with a"
        " checkpoint. Lower the learning rate, or look at samples.jsonl.gz and"
        " metrics.jsonl for when it began.",
        exit_code=1,
      )
  return Outcome(step, state, host, after, saved)


def _evaluate(setup: Setup, state: TrainState) -> tuple[Evaluation, float]:
  """Held-out results, and the seconds they took."""
  start = time.perf_counter()
  evaluation = evaluate(
    policy_params(setup, state.params),
    setup.task,
    setup.evaluation_rollout,
    seed=_EVALUATION_SEED,
  )
  return evaluation, time.perf_counter() - start


def _before(setup: Setup, state: TrainState, outputs: Outputs) -> HostState:
  """The evaluation before training, and the first checkpoint."""
  before, seconds = _evaluate(setup, state)
  host = HostState(
    stream=StreamState(next_prompt=0, keep_rate=1.0, pending=None),
    before={
      "summary": evaluation_summary(before),
      "accuracy": before.accuracy.tolist(),
    },
    seconds={"evaluate": seconds},
    tokens=0,
  )
  outputs.metrics.write(0, evaluation_metrics(before))
  outputs.samples.write(0, _evaluation_rows(before, setup))
  outputs.checkpoints.save(0, state, host.to_json())
  outputs.progress.update(0, {"pass@1": f"{before.pass_at_1.mean:.3f}"})
  return host


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
