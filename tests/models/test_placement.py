"""Weights go where they belong, and are not there twice on the way.

The devices are pretended by XLA, and memory is the process's own: both tests
run this file again as a program.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from grpo_jax.models import huggingface
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.decoder import init_params
from grpo_jax.models.pretrained import load_pretrained

REFERENCES = Path(__file__).parent / "references"
DEVICES = 4
MIB = 2**20


def _run(*arguments):
  flags = f"--xla_force_host_platform_device_count={DEVICES}"
  subprocess.run(
    [sys.executable, __file__, *map(str, arguments)],
    env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": os.getcwd()},
    check=True,
    timeout=300,
  )


def test_each_device_holds_its_slice_alone():
  _run("shards")


def _shards():
  """Splits every array over the devices along its last axis that allows it."""
  mesh = jax.make_mesh((DEVICES,), ("fsdp",))

  def split(x):
    axes = [None] * len(x.shape)
    for axis in reversed(range(len(x.shape))):
      if x.shape[axis] % DEVICES == 0:
        axes[axis] = "fsdp"
        break
    return NamedSharding(mesh, PartitionSpec(*axes))

  for name in ("qwen2_windows", "qwen3_moe"):
    for scan_layers in (False, True):
      path = REFERENCES / name
      _, whole = load_pretrained(path, scan_layers=scan_layers)
      shardings = jax.tree.map(split, whole)
      _, params = load_pretrained(
        path, scan_layers=scan_layers, shardings=shardings
      )
      for ours, all_of_it, sharding in zip(
        *map(jax.tree.leaves, (params, whole, shardings)), strict=True
      ):
        assert ours.sharding == sharding
        assert ours.addressable_shards[0].data.size == ours.size // DEVICES
        np.testing.assert_array_equal(ours, all_of_it)
      replicated = NamedSharding(mesh, PartitionSpec())
      _, params = load_pretrained(
        path, scan_layers=scan_layers, shardings=replicated
      )
      jax.tree.map(np.testing.assert_array_equal, params, whole)


def test_a_tree_of_other_shardings_is_refused():
  mesh = jax.make_mesh((1,), ("fsdp",))
  tree = {"embedding": NamedSharding(mesh, PartitionSpec())}
  with pytest.raises(ValueError, match="shardings must be"):
    load_pretrained(REFERENCES / "qwen2", shardings=tree)


_LARGE = ModelConfig(
  vocab_size=8_000,
  width=512,
  layers=8,
  heads=8,
  kv_heads=4,
  head_dim=64,
  mlp_width=1536,
  tie_embeddings=True,
  scan_layers=False,
  dtype="float32",
)


def _zeros(config):
  """Parameters of no weight: memory that nobody has touched."""
  like = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
  return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)


@pytest.mark.skipif(
  not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc"
)
def test_a_model_is_in_memory_once(tmp_path):
  huggingface.save(tmp_path / "large", _LARGE, _zeros(_LARGE))
  for layers in ("unrolled", "scanned"):  # each with a heap of its own
    _run("memory", tmp_path / "large", layers)


def _peak() -> int:
  """Largest resident memory of this process since it was last reset."""
  status = Path("/proc/self/status").read_text()
  return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _memory(path, scan_layers):
  # What JAX and tracing take is no part of it.
  load_pretrained(REFERENCES / "llama_tied", scan_layers=scan_layers)
  config = dataclasses.replace(_LARGE, scan_layers=scan_layers)
  jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
  Path("/proc/self/clear_refs").write_text("5")  # the peak is now's
  before = _peak()
  _, params = load_pretrained(path, scan_layers=scan_layers)
  jax.block_until_ready(params)
  peak = _peak() - before
  sizes = [x.nbytes for x in jax.tree.leaves(params)]
  # The model, one array of it again, and the file's pages of that array.
  allowed = sum(sizes) + 2 * max(sizes) + 30 * MIB
  measured = f"a peak of {peak / MIB:.0f} MiB for {sum(sizes) / MIB:.0f}"
  assert allowed < 1.75 * sum(sizes)
  assert 0.9 * sum(sizes) < peak < allowed, measured


if __name__ == "__main__":
  if sys.argv[1] == "shards":
    _shards()
  else:
    _memory(Path(sys.argv[2]), scan_layers=sys.argv[3] == "scanned")
