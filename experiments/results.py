"""What a finished run says: results.json, the report page, a table."""

import json
import logging
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from experiments.build import Parts
from grpo_jax import host
from grpo_jax.errors import UserError
from grpo_jax.reporting.estimators import mean_interval
from grpo_jax.reporting.report import write_report
from grpo_jax.reporting.tables import results_table
from grpo_jax.training.evaluate import evaluation_summary
from grpo_jax.training.loop import Outcome

_log = logging.getLogger(__name__)


def write_results(
  config: ConfigDict, parts: Parts, workdir: Path, outcome: Outcome
) -> None:
  """Writes results.json and the report, and prints the main figures.

  Args:
    config: of the run.
    parts: that it was built of.
    workdir: of the run.
    outcome: of its training, with the last evaluation.

  Raises:
    UserError: the files cannot be written.
  """
  results = _results(config, parts, outcome)
  try:
    _write_json(workdir / "results.json", results)
    page = write_report(workdir)
  except OSError as error:
    raise UserError(
      f"The results could not be written to {workdir} ({error.strerror}). What"
      " the newest checkpoint holds is kept: make room and give the same"
      " command again.",
      exit_code=1,
    ) from error
  print(results_table(results))
  _log.info("Report: %s", page)


def _results(config: ConfigDict, parts: Parts, outcome: Outcome) -> dict:
  before, after = outcome.host.before, outcome.after
  seconds = outcome.host.seconds  # of all processes that worked on the run
  gains = after.accuracy - np.array(before["accuracy"])
  return {
    "before": before["summary"],
    "after": evaluation_summary(after),
    "difference": _difference(gains)
    | {
      "sets": {
        name: _difference(gains[figures.questions])
        for name, figures in after.by_set.items()
      }
    },
    "evaluation": _sampling(config, parts),
    "training_problems": {
      "drawn_from": len(parts.task.train),
      "too_long": parts.too_long,
    },
    "recipe": config.recipe.name,
    "seed": config.seed,
    "steps": outcome.step,
    "updates_skipped": int(outcome.state.skipped),
    "seconds": seconds | {"total": sum(seconds.values())},
    "device": host.describe_device(),
    "versions": host.versions(),
  }


def _difference(gains: np.ndarray) -> dict[str, float]:
  """After minus before, paired by question."""
  mean, low, high = mean_interval(gains)
  return {"pass@1": mean, "low": low, "high": high}


def _sampling(config: ConfigDict, parts: Parts) -> dict:
  """What a figure of accuracy depends on besides the model."""
  options = parts.evaluation
  return {
    "name": config.evaluation.name,
    "samples": parts.evaluation_samples,
    "temperature": options.temperature,
    "top_p": options.top_p,
    "top_k": options.top_k,
    "max_completion_tokens": options.max_completion_tokens,
  }


def _write_json(path: Path, data: dict) -> None:
  temporary = path.with_suffix(".tmp")
  # An interval of one question is infinite, which JSON cannot say.
  text = json.dumps(data, indent=2).replace("-Infinity", "null")
  temporary.write_text(text.replace("Infinity", "null") + "\n")
  temporary.replace(path)
