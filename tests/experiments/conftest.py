"""Runs of the real command in processes of their own."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from absl.testing import flagsaver
from array_record.python import array_record_data_source  # noqa: F401

# Flags that a library defines when it is imported must exist before they are
# saved: hence these two, which main() would import later.
import experiments.build  # noqa: F401
from experiments.run import main
from grpo_jax.data.tokenizer_files import load_tokenizer
from grpo_jax.models.decoder import init_params
from grpo_jax.models.huggingface import save

ROOT = Path(__file__).parents[2]
QUICKSTART = "--config=experiments/configs/quickstart.py:smoke"

# Smaller than smoke: what is tested here is the machinery, not the learning.
TINY = (
  "--config.model.shape="
  "width=16, layers=1, heads=4, kv_heads=2, head_dim=8, mlp_width=24",
  "--config.warm_start.max_steps=6",
  "--config.warm_start.probe_every_steps=3",
  "--config.sampling.prompts_per_step=4",
  "--config.sampling.group_size=4",
  "--config.sampling.max_completion_tokens=24",
  "--config.evaluation.args=samples=2",
  "--config.task.train_size=64",
  "--config.task.test_size=8",
)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, model) -> Path:
  """A Hugging Face folder: random parameters, a tokenizer of Qwen's kind."""
  folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
  source = ROOT / "tests/data/references/qwen_style"
  vocab_size = load_tokenizer(source).vocab_size
  config = dataclasses.replace(model, vocab_size=vocab_size, layers=1)
  save(folder, config, init_params(config, jax.random.key(0)))
  for file in source.iterdir():
    shutil.copy(file, folder)
  return folder


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
  """Prepared data and warm starts, shared by all runs of the session."""
  return tmp_path_factory.mktemp("home")


@pytest.fixture
def environment(home) -> dict[str, str]:
  """One CPU device, and compiled code kept between runs."""
  return os.environ | {
    "HOME": str(home),
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONPATH": str(ROOT),
  }


@pytest.fixture
def call(home, monkeypatch, capfd):
  """Calls main() in this process: (exit code, standard error)."""
  monkeypatch.setenv("HOME", str(home))
  monkeypatch.chdir(ROOT)
  handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

  def go(*arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    with flagsaver.flagsaver():
      code = main(["run", *arguments])
    return code, capfd.readouterr().err

  yield go
  for number, handler in handlers.items():
    signal.signal(number, handler)


@pytest.fixture
def start(environment):
  """Starts a run without waiting for it."""

  def go(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
      [sys.executable, "-m", "experiments.run", *arguments],
      cwd=ROOT,
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  return go


@pytest.fixture
def run(start):
  """Runs to the end: (exit code, everything that was printed)."""

  def go(*arguments: str) -> tuple[int, str]:
    process = start(*arguments)
    try:
      output, _ = process.communicate(timeout=900)
    finally:
      process.kill()  # a run that takes too long does not outlive its test
    return process.returncode, output

  return go
