"""One CPU device, a compilation cache, and shapes checked at every call."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from jaxtyping import install_import_hook

# Compiled code outlives the process: the second run of the tests is the
# faster one.
_CACHE = Path(
  os.environ.get("XDG_CACHE_HOME", Path(tempfile.gettempdir()) / "cache")
)
jax.config.update(
  "jax_compilation_cache_dir", str(_CACHE / "grpo_jax_tests_xla")
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Before any of these is imported. Stays installed for the whole session.
install_import_hook(
  [
    "grpo_jax.algorithms",
    "grpo_jax.models",
    "grpo_jax.sampling",
    "grpo_jax.training",
  ],
  "typeguard.typechecked",
)
