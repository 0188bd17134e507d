"""A made-up run, plausible enough to look at its report, and a full disk."""

import errno
import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_jax.reporting import append_file
from grpo_jax.reporting.sinks import MetricsLog, SamplesLog

LABELS = ("terms=2", "terms=3", "terms=4")


def _training_row(step: int, steps: int, rng: random.Random) -> dict:
  gained = 1 - math.exp(-3 * step / steps)
  right = 0.33 + 0.34 * gained + rng.gauss(0, 0.03)
  length = 44 - 6 * gained + rng.gauss(0, 1)
  times = {
    "time/sample_s": 0.9 + rng.random() / 10,
    "time/reward_s": 0.05,
    "time/score_s": 0.2,
    "time/train_s": 1.1 + rng.random() / 10,
    "time/other_s": 0.04,
  }
  return {
    "reward": right + 0.1,
    "reward_std": 0.46,
    "rewards/correctness/mean": right,
    "rewards/format/mean": min(1.0, 0.9 + 0.1 * gained),
    "groups/all_right": 0.04 + 0.3 * gained + rng.random() / 20,
    "groups/all_wrong": 0.25 - 0.2 * gained + rng.random() / 20,
    "grad_norm": 0.3 + rng.random() / 5,
    "entropy": 0.62 - 0.3 * gained + rng.gauss(0, 0.01),
    "clip_ratio/low_mean": 0.004 + rng.random() / 500,
    "clip_ratio/high_mean": 0.007 + rng.random() / 300,
    "completions/mean_length": length,
    "completions/mean_length_right": length - 3,
    "completions/mean_length_wrong": length + 5,
    "completions/clipped_ratio": 0.06 * (1 - gained) + rng.random() / 100,
    "sampling/sampling_logp_difference/mean": 2e-6 * (1 + rng.random()),
    "sampling/sampling_logp_difference/max": 4e-5 * (1 + rng.random()),
    "time/step_s": sum(times.values()),
    "tokens_per_second": 256 * length / sum(times.values()),
    **times,
  }


def _evaluation(step: int, steps: int) -> dict:
  gained = 1 - math.exp(-3 * step / steps)
  right = 0.33 + 0.34 * gained
  return {
    "pass@1": right,
    "pass@1_low": right - 0.04,
    "pass@1_high": right + 0.04,
    "pass@2": right + 0.12,
    "pass@4": right + 0.2,
    "pass@8": right + 0.26,
    "mean_length": 44 - 6 * gained,
    "truncated_fraction": 0.06 * (1 - gained),
    **{
      f"pass@1/{label}": min(1, right + 0.25 - 0.22 * i)
      for i, label in enumerate(LABELS)
    },
  }


def _outcome(evaluation: dict) -> dict:
  by_difficulty = {
    label: {"pass@1": evaluation.pop(f"pass@1/{label}"), "questions": 64}
    for label in LABELS
  }
  return evaluation | {"by_difficulty": by_difficulty}


def _completions(step: int, rng: random.Random) -> list[dict]:
  rows = []
  for a, b, c in ((17, 25, 8), (9, 41, 30), (52, 13, 7)):
    answer = a + b + c + (0 if step > 1 else rng.choice((-1, 10)))
    careful = f"{a}+{b}={a + b}\n{a + b}+{c}={a + b + c}\n"
    thought = careful if step > 1 else f"{a}+{b}+{c} is about {answer}\n"
    right = float(answer == a + b + c)
    rows.append(
      {
        "prompt": f"What is {a} + {b} + {c}?",
        "completion": f"<think>\n{thought}</think>\n\\boxed{{{answer}}}",
        "rewards": {"correctness": right, "format": 1.0},
        "stop_reason": "eos",
      }
    )
  return rows


def write_run(workdir: Path, steps: int, seed: int = 0) -> Path:
  """Writes the four files that a finished run of so many steps leaves."""
  rng = random.Random(seed)
  metrics = MetricsLog(workdir, resume_step=None)
  samples = SamplesLog(workdir, resume_step=None)
  for step in range(steps + 1):
    row = _training_row(step, steps, rng) if step else {}
    if step % 10 == 0 or step == steps:
      evaluation = _evaluation(step, steps)
      row |= {f"eval/{name}": value for name, value in evaluation.items()}
    metrics.write(step, row)
    if step:
      samples.write(step, _completions(step, rng))
  before = _outcome(_evaluation(0, steps))
  after = _outcome(_evaluation(steps, steps))
  gain = after["pass@1"] - before["pass@1"]
  results = {
    "before": before,
    "after": after,
    "difference": {"pass@1": gain, "low": gain - 0.05, "high": gain + 0.05},
    "recipe": "dapo",
    "seed": seed,
    "steps": steps,
    "seconds": {
      "warm_start": 41.0,
      "evaluate": 9.5,
      "sample": 38.0,
      "reward": 2.0,
      "train": 46.0,
      "report": 2.5,
      "total": 139.0,
    },
    "device": "cpu (2 cores)",
    "versions": {"python": "3.11", "jax": "0.9", "flax": "0.12"},
  }
  config = {
    "recipe": {"name": "dapo", "eps_low": 0.2, "eps_high": 0.28},
    "optimizer": {"learning_rate": 1e-4, "warmup_steps": 0},
    "sampling": {"temperature": 1.0, "max_length_tokens": 64},
  }
  (workdir / "results.json").write_text(json.dumps(results))
  (workdir / "config.json").write_text(json.dumps(config))
  return workdir


@pytest.fixture
def make_run(tmp_path) -> Callable[..., Path]:
  """A function of the options, such as steps, to such a run's directory."""
  return lambda **options: write_run(tmp_path / "run", **options)


@pytest.fixture
def finished_run(make_run) -> Path:
  return make_run(steps=40)


@pytest.fixture
def full_disk(monkeypatch):
  """A switch; while it is on, half of each write arrives, then ENOSPC."""
  switch = {"on": False}

  def guarded_open(path, mode):
    file = path.open(mode)
    return HalfWriter(file) if switch["on"] else file

  monkeypatch.setattr(append_file, "open", guarded_open, raising=False)
  return switch


class HalfWriter:
  def __init__(self, file):
    self._file = file

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._file.close()

  def __getattr__(self, name):
    return getattr(self._file, name)

  def write(self, data):
    self._file.write(data[: len(data) // 2])
    self._file.flush()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  def writelines(self, parts):
    self.write(b"".join(parts))
