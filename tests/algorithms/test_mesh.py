"""Every recipe on eight devices is what it is on one.

The devices are pretended by XLA, which has to know before it starts: the slow
test runs this file again in a process that has them.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests import every_recipe

DEVICES = 8


if jax.device_count() < DEVICES:

  @pytest.mark.slow
  def test_in_a_process_with_eight_devices():
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    command = [sys.executable, "-m", "pytest", "-q", __file__]
    subprocess.run(
      [*command, "--import-mode=importlib", "-k", "sharded"],
      env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
      check=True,
      timeout=600,
    )

else:

  @pytest.mark.parametrize("name", every_recipe.NAMES)
  def test_sharded_by_prompt(name, random_batch, loss_and_grad):
    recipe = every_recipe.make(name, 6)
    mesh = Mesh(np.asarray(jax.devices()[:DEVICES]), ("data",))
    batch = random_batch(13, P=DEVICES, G=5)
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    run = jax.jit(lambda *batch: loss_and_grad(recipe, *batch)[:2])
    loss, grad = run(*jax.device_put(batch, sharding))
    assert len(grad.sharding.device_set) == DEVICES
    expected_loss, expected_grad = run(*batch)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, expected_grad, rtol=1e-5, atol=1e-6)
    assert jnp.abs(grad).max() > 0
