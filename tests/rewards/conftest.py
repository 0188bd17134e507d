"""Waiting for processes, and data that may be there."""

import json
import os
import time
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DATA = ("shared/data", "../shared/data")


@pytest.fixture
def wait_until():
  """Waits for a condition, at most ten seconds."""

  def wait(condition):
    end = time.monotonic() + 10
    while not condition():
      assert time.monotonic() < end
      time.sleep(0.01)

  return wait


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
