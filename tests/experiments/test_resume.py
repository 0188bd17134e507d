"""A run that was stopped anywhere ends like one that was not."""

import json
import random
import shutil
import signal
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from grpo_jax.reporting.sinks import read_metrics, read_samples
from tests.experiments.conftest import QUICKSTART, TINY

# What the clock says differs between runs; nothing else may.
_TIMES = ("time/", "tokens_per_second")
SETTINGS = (
  QUICKSTART,
  *TINY,
  "--config.task.name=tests.toy_task:make_task",
  "--config.recipe.name=tests.toy_task:everything",
  "--config.recipe.pieces=adaptive_entropy(target=2.0)",
  "--config.reward.weights=correctness=1.0, format=0.05",
  "--config.optimizer.learning_rate=3e-3",
  "--config.sampling.max_rounds=4",
  "--config.run.steps=6",
  "--config.run.checkpoint_every_steps=2",
)


def _parameters(workdir: Path, step: int = 6):
  with ocp.CheckpointManager(
    workdir / "checkpoints", item_names=("state", "host")
  ) as manager:
    restored = manager.restore(
      step, args=ocp.args.Composite(state=ocp.args.StandardRestore())
    )
  return {k: restored["state"][k] for k in ("params", "critic", "memory")}


def _rows(workdir: Path):
  return [
    {k: v for k, v in row.items() if not k.startswith(_TIMES)}
    for row in read_metrics(workdir / "metrics.jsonl")
  ]


def _assert_same_run(one: Path, other: Path):
  jax.tree.map(
    np.testing.assert_array_equal, _parameters(one), _parameters(other)
  )
  assert json.dumps(_rows(one)) == json.dumps(_rows(other))
  samples = [read_samples(w / "samples.jsonl.gz") for w in (one, other)]
  assert samples[0] == samples[1]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
  return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture
def reference(call, undisturbed) -> Path:
  """The same run without a disturbance, made once."""
  if not (undisturbed / "results.json").exists():
    code, error = call(*SETTINGS, f"--workdir={undisturbed}")
    assert code == 0, error
  return undisturbed


def test_a_run_writes_all_it_promises(reference):
  names = {path.name for path in reference.iterdir()}
  assert names >= {
    "config.json",
    "metrics.jsonl",
    "samples.jsonl.gz",
    "tensorboard",
    "checkpoints",
    "results.json",
    "report",
  }
  rows = _rows(reference)
  assert [row["step"] for row in rows] == list(range(7))
  results = json.loads((reference / "results.json").read_text())
  assert results["steps"] == 6
  assert results["difference"]["pass@1"] == pytest.approx(
    results["after"]["pass@1"] - results["before"]["pass@1"]
  )
  assert "<html" in (reference / "report/index.html").read_text()


def test_the_reference_run_has_something_to_lose(reference):
  """Were nothing learnt or carried, the tests below would prove nothing."""
  first, last = (_parameters(reference, step) for step in (4, 6))
  for part in ("params", "critic", "memory"):
    leaves = zip(*map(jax.tree.leaves, (first[part], last[part])), strict=True)
    assert not all(np.array_equal(*pair) for pair in leaves), part
  rows = _rows(reference)[1:]
  assert all(row["groups/trained"] == 4 for row in rows)
  assert any(row["groups/max_age_steps"] > 0 for row in rows)
  assert any(row["groups/all_wrong"] > 0 for row in rows)


def _wait_for(process, condition, timeout_s=120):
  end = time.monotonic() + timeout_s
  while not condition():
    assert time.monotonic() < end, "nothing happened in time"
    assert process.poll() is None, process.stdout.read()
    time.sleep(0.02)


def _steps_done(workdir: Path) -> int:
  try:
    return len((workdir / "metrics.jsonl").read_bytes().splitlines()) - 1
  except FileNotFoundError:
    return -1


def test_a_signal_saves_and_the_same_command_continues(
  start, run, reference, tmp_path
):
  """One run, stopped twice: by Ctrl-C, then as a scheduler does."""
  for steps, number in ((1, signal.SIGINT), (3, signal.SIGTERM)):
    process = start(*SETTINGS, f"--workdir={tmp_path}")
    _wait_for(process, lambda steps=steps: _steps_done(tmp_path) >= steps)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "Stopped and saved at step" in output
    assert not (tmp_path / "results.json").exists()
  code, output = run(*SETTINGS, f"--workdir={tmp_path}")
  assert code == 0, output
  _assert_same_run(tmp_path, reference)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_killed_run_continues_bit_by_bit(
  start, run, reference, tmp_path, seed
):
  """Kill -9 at random moments: in steps, evaluations and checkpoints."""
  rng = random.Random(seed)
  for _ in range(3):
    process = start(*SETTINGS, f"--workdir={tmp_path}")
    _wait_to_kill(process, tmp_path, rng)
    process.kill()
    process.communicate()
  code, output = run(*SETTINGS, f"--workdir={tmp_path}")
  assert code == 0, output
  _assert_same_run(tmp_path, reference)


def _wait_to_kill(process, workdir: Path, rng: random.Random) -> None:
  """Until a checkpoint is being written, or a step or two were done."""
  target = _steps_done(workdir) + rng.randint(1, 2)
  in_checkpoint = rng.random() < 0.5
  while process.poll() is None:
    if in_checkpoint:
      if any((workdir / "checkpoints").glob("*tmp*")):
        return
    elif _steps_done(workdir) >= target:
      time.sleep(rng.random() * 0.3)
      return
    time.sleep(0.002)


def test_a_damaged_checkpoint_costs_its_steps_only(
  call, reference, tmp_path, caplog
):
  workdir = shutil.copytree(reference, tmp_path / "run")
  for path in (workdir / "checkpoints/6/state").rglob("*"):
    if path.is_file():
      path.write_bytes(b"")
  code, error = call(
    *SETTINGS,
    "--config.run.checkpoint_every_steps=5",
    "--allow_config_change",
    f"--workdir={workdir}",
  )
  assert code == 0, error
  assert "step 6 cannot be read" in caplog.text
  assert {path.name for path in (workdir / "checkpoints").glob("[0-9]")} == {
    "5",
    "6",
  }
  _assert_same_run(workdir, reference)


def test_gradients_that_are_not_finite_end_the_run_with_a_checkpoint(
  call, tmp_path
):
  code, error = call(
    *SETTINGS,
    "--config.optimizer.learning_rate=1e30",
    "--config.optimizer.warmup_steps=0",
    "--config.run.max_skipped_in_a_row=2",
    f"--workdir={tmp_path}",
  )
  assert code == 1, error
  assert "not finite" in error and "Traceback" not in error
  assert any((tmp_path / "checkpoints").glob("[1-9]"))
  rows = read_metrics(tmp_path / "metrics.jsonl")
  assert rows[-1]["update_skipped"] > 0


def test_a_batch_without_signal_is_skipped_with_a_warning(
  call, tmp_path, caplog
):
  code, error = call(
    *SETTINGS,
    "--config.run.steps=2",
    "--config.task.name=tests.toy_task:make_hopeless_task",
    f"--workdir={tmp_path}",
  )
  assert code == 0, error
  assert "nothing is updated" in caplog.text
  assert read_metrics(tmp_path / "metrics.jsonl")[-1]["groups/no_signal"] == 1
