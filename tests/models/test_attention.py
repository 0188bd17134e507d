"""Which kernel runs where."""

import jax.numpy as jnp
import pytest

from grpo_jax.models.attention import choose_kernel

HALF = jnp.dtype("bfloat16")
FUSED = {"backend": "gpu", "dtype": HALF, "head_dim": 64, "queries": 8}


@pytest.mark.parametrize(
  ("changed", "kernel"),
  [
    ({}, "cudnn"),
    ({"backend": "cpu"}, "xla"),
    ({"backend": "tpu"}, "xla"),
    ({"dtype": jnp.dtype("float32")}, "xla"),
    ({"head_dim": 256}, "xla"),
    ({"head_dim": 60}, "xla"),
    ({"queries": 1}, "xla"),
  ],
)
def test_auto_fuses_where_the_kernel_takes_it(changed, kernel):
  assert choose_kernel("auto", **FUSED | changed) == kernel


@pytest.mark.parametrize("kernel", ["xla", "cudnn"])
def test_a_kernel_that_is_named_is_used(kernel):
  assert choose_kernel(kernel, **FUSED | {"backend": "cpu"}) == kernel
