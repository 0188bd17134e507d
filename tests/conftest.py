"""One CPU device, a compilation cache, and shapes checked at every call."""

import dataclasses
import os
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Compiling is most of the tests' time. LLVM's optimisation is half of that, and
# the newer code generator of fused loops half of what is left. A jaxlib that
# does not know one of these flags stops at once and names it.
os.environ["XLA_FLAGS"] = " ".join(
  [
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    os.environ.get("XLA_FLAGS", ""),
  ]
)
# Compiled code outlives the process: the second run of the tests is the
# faster one, and so is the second process that a test starts.
_CACHE = Path(
  os.environ.get("XDG_CACHE_HOME", Path(tempfile.gettempdir()) / "cache")
)
os.environ |= {
  "JAX_COMPILATION_CACHE_DIR": str(_CACHE / "grpo_jax_tests_xla"),
  "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

import jax  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

# Before any of these is imported. Stays installed for the whole session.
install_import_hook(
  [
    "grpo_jax.algorithms",
    "grpo_jax.models",
    "grpo_jax.sampling",
    "grpo_jax.test_time",
    "grpo_jax.training",
  ],
  "typeguard.typechecked",
)

from grpo_jax.models.config import ModelConfig  # noqa: E402
from grpo_jax.models.decoder import init_params  # noqa: E402


@pytest.fixture(scope="session")
def model() -> ModelConfig:
  """A decoder small enough to compile in a second."""
  return ModelConfig(
    vocab_size=20,
    width=16,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    mlp_width=24,
    tie_embeddings=True,
    scan_layers=False,
    dtype="float32",
  )


@pytest.fixture(scope="session")
def params(model):
  return init_params(model, jax.random.key(1))


@pytest.fixture
def variant(model):
  """A model that differs in some fields, with its parameters."""

  def make(**fields):
    config = dataclasses.replace(model, **fields)
    return config, init_params(config, jax.random.key(1))

  return make
