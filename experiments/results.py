"""What a finished run says: results.json, the report page, a table."""

import json
import logging
import time
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from grpo_jax import host
from grpo_jax.errors import UserError
from grpo_jax.reporting.estimators import mean_interval
from grpo_jax.reporting.report import write_report
from grpo_jax.reporting.tables import results_table
from grpo_jax.training.evaluate import evaluation_summary
from grpo_jax.training.loop import Outcome

_log = logging.getLogger(__name__)


def write_results(
  config: ConfigDict,
  workdir: Path,
  outcome: Outcome,
  *,
  start: float,
  warm_start_s: float,
) -> None:
  """Writes results.json and the report, and prints the main figures.

  Args:
    config: of the run.
    workdir: of the run.
    outcome: of its training, with the last evaluation.
    start: `time.perf_counter()` at the start of the process.
    warm_start_s: seconds up to the start of reinforcement.

  Raises:
    UserError: the files cannot be written.
  """
  try:
    results = _results(config, outcome, warm_start_s)
    results["seconds"]["total"] = time.perf_counter() - start
    _write_json(workdir / "results.json", results)
    page = write_report(workdir)
    # The page shows its own cost only when it is made again.
    results["seconds"]["total"] = time.perf_counter() - start
    _write_json(workdir / "results.json", results)
  except OSError as error:
    raise UserError(
      f"The results could not be written to {workdir} ({error.strerror}). What"
      " the newest checkpoint holds is kept: make room and give the same"
      " command again.",
      exit_code=1,
    ) from error
  print(results_table(results))
  _log.info("Report: %s", page)


def _results(config: ConfigDict, outcome: Outcome, warm_start_s: float) -> dict:
  before, after = outcome.host.before, outcome.after
  difference = mean_interval(after.accuracy - np.array(before["accuracy"]))
  return {
    "before": before["summary"],
    "after": evaluation_summary(after),
    "difference": {
      "pass@1": difference.mean,
      "low": difference.low,
      "high": difference.high,
    },
    "recipe": config.recipe.name,
    "seed": config.seed,
    "steps": outcome.step,
    "seconds": {"warm_start": warm_start_s, **outcome.host.seconds},
    "device": host.describe_device(),
    "versions": host.versions(),
  }


def _write_json(path: Path, data: dict) -> None:
  temporary = path.with_suffix(".tmp")
  temporary.write_text(json.dumps(data, indent=2) + "\n")
  temporary.replace(path)
