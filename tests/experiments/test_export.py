"""What was trained leaves as folders that others load."""

import json

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from experiments import export
from grpo_jax.models.decoder import init_params
from grpo_jax.models.huggingface import LAYOUT
from grpo_jax.models.pretrained import load_pretrained
from grpo_jax.models.safetensors_file import read_safetensors
from tests.experiments.conftest import QUICKSTART, TINY

RUN = (
  QUICKSTART,
  *TINY,
  "--config.task.name=tests.toy_task:make_task",
  "--config.warm_start.max_steps=0",
  "--config.model.lora=rank=2, alpha=6.0, targets=('query', 'down')",
  "--config.model.remat=full",
  "--config.recipe.name=grpo",
  "--config.recipe.args=kl_coefficient=0.01",
  "--config.optimizer.completions_per_row=4",
  "--config.optimizer.learning_rate=1e-2",
  "--config.run.steps=2",
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  return tmp_path_factory.mktemp("run")


@pytest.fixture
def trained(call, workdir):
  """A run of adapters, made once."""
  if not (workdir / "results.json").exists():
    code, error = call(*RUN, f"--workdir={workdir}")
    assert code == 0, error
  return workdir


def test_checkpoints_hold_adapters_only(trained):
  with ocp.CheckpointManager(
    trained / "checkpoints", item_names=("state", "host")
  ) as manager:
    saved = manager.restore(
      2, args=ocp.args.Composite(state=ocp.args.StandardRestore())
    )["state"]["params"]
  assert saved.keys() == {"blocks_0"}
  assert saved["blocks_0"].keys() == {"query", "down"}


def test_merged_parameters_are_the_base_and_its_adapter(trained, tmp_path):
  for name, flags in (("merged", []), ("adapter", ["--adapter"])):
    arguments = [f"--workdir={trained}", f"--output={tmp_path / name}", *flags]
    assert export.main(arguments) == 0
  settings = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
  assert settings["target_modules"] == ["q_proj", "down_proj"]
  assert (settings["r"], settings["lora_alpha"]) == (2, 6.0)

  config, merged = load_pretrained(tmp_path / "merged")
  base = init_params(config, jax.random.key(0))
  np.testing.assert_array_equal(merged["embedding"], base["embedding"])
  adapter = read_safetensors(tmp_path / "adapter/adapter_model.safetensors")
  assert len(adapter) == 4
  for name, shape in (("query", (16, -1)), ("down", (24, -1))):
    module = LAYOUT.block[name].format(layer=0).removesuffix(".weight")
    a, b = (
      adapter[f"base_model.model.{module}.lora_{x}.weight"].read() for x in "AB"
    )
    assert np.abs(b).max() > 1e-4
    expected = base["blocks_0"][name].reshape(shape) + 3.0 * (b @ a).T
    np.testing.assert_allclose(
      merged["blocks_0"][name].reshape(shape), expected, rtol=1e-5, atol=1e-6
    )
  assert config.layers == 1


def test_what_cannot_be_exported_is_told(trained, tmp_path, capfd):
  def refused(workdir, output):
    code = export.main([f"--workdir={workdir}", f"--output={output}"])
    return code, capfd.readouterr().err

  code, error = refused(tmp_path / "none", tmp_path / "x")
  assert code == 2 and "no folder of a run" in error
  (tmp_path / "full").mkdir()
  (tmp_path / "full/file").write_text("")
  code, error = refused(trained, tmp_path / "full")
  assert code == 2 and "is there already" in error
