"""Processes that a test started, and data that may be there."""

import json
import os
import time
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DATA = ("shared/data", "../shared/data")


def alive(pid: int) -> bool:
  """Whether a process runs; one that is dead and not yet reaped does not."""
  try:
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
  except FileNotFoundError:
    return False


@pytest.fixture
def wait_until():
  """Waits for a condition, at most ten seconds."""

  def wait(condition):
    end = time.monotonic() + 10
    while not condition():
      assert time.monotonic() < end
      time.sleep(0.01)

  return wait


@pytest.fixture
def processes():
  """The processes below this one that run a pool's worker module."""

  def find(parent: int = os.getpid()) -> set[int]:
    found, parents = set(), {parent}
    while parents:
      children = set()
      for path in Path("/proc").glob("[0-9]*/stat"):
        try:
          fields = path.read_text().rpartition(")")[2].split()
          command = (path.parent / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
          continue
        if int(fields[1]) in parents and "rewards.worker" in command:
          children.add(int(path.parent.name))
      found, parents = found | children, children
    return {pid for pid in found if alive(pid)}

  return find


@pytest.fixture(scope="session")
def data():
  """Rows of a data set by its path, where the folder with it is present."""

  def rows(path: str) -> list[dict]:
    folders = [Path(os.environ.get("GRPO_JAX_TEST_DATA", _ROOT / _DATA[0]))]
    folders += [_ROOT / folder for folder in _DATA]
    for folder in folders:
      if (folder / path).exists():
        lines = (folder / path).read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]
    pytest.skip(f"no {path} in $GRPO_JAX_TEST_DATA or {_DATA}")

  return rows
