"""Folders in and out, bit by bit; and where a model may be."""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from grpo_jax.errors import UserError
from grpo_jax.models import huggingface
from grpo_jax.models.decoder import init_params
from grpo_jax.models.pretrained import load_pretrained, read_config
from grpo_jax.models.safetensors_file import read_safetensors

REFERENCES = Path(__file__).parent / "references"
INDEX = "model.safetensors.index.json"
MODELS = sorted(path.parent.name for path in REFERENCES.glob("*/outputs.npz"))


def _arrays(folder):
  """Every array of a folder, by name."""
  return {
    name: np.array(array.read())
    for file in folder.glob("*.safetensors")
    for name, array in read_safetensors(file).items()
  }


def _assert_same_bits(ours, theirs):
  assert ours.keys() == theirs.keys()
  for name in theirs:
    assert ours[name].dtype == theirs[name].dtype, name
    assert ours[name].shape == theirs[name].shape, name
    assert ours[name].tobytes() == theirs[name].tobytes(), name


def _as_bfloat16(source, folder):
  """A folder of the same model in bfloat16, written by the format's package."""
  safetensors = pytest.importorskip("safetensors.numpy")
  folder.mkdir()
  arrays = {
    name: array.astype(ml_dtypes.bfloat16)
    for name, array in _arrays(source).items()
  }
  safetensors.save_file(arrays, folder / "model.safetensors")
  data = json.loads((source / "config.json").read_text())
  (folder / "config.json").write_text(json.dumps(data | {"dtype": "bfloat16"}))
  return folder


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_what_was_loaded_is_saved_bit_by_bit(name, scan_layers, tmp_path):
  source = REFERENCES / name
  config, params = load_pretrained(source, scan_layers=scan_layers)
  assert config.param_dtype == "float32"
  like = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
  assert jax.tree.map(lambda x: (x.shape, x.dtype), params) == jax.tree.map(
    lambda x: (x.shape, x.dtype), like
  )
  huggingface.save(tmp_path / "saved", config, params)
  _assert_same_bits(_arrays(tmp_path / "saved"), _arrays(source))
  again, loaded = load_pretrained(tmp_path / "saved", scan_layers=scan_layers)
  assert again == config
  jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_bfloat16_stays_bit_by_bit(scan_layers, tmp_path):
  source = _as_bfloat16(REFERENCES / "qwen3_moe", tmp_path / "source")
  config, params = load_pretrained(source, scan_layers=scan_layers)
  assert config.dtype == config.param_dtype == "bfloat16"
  assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.bfloat16.dtype}
  huggingface.save(tmp_path / "saved", config, params)
  _assert_same_bits(_arrays(tmp_path / "saved"), _arrays(source))
  saved = json.loads((tmp_path / "saved/config.json").read_text())
  assert saved["torch_dtype"] == "bfloat16"


def test_weights_are_converted_to_what_is_asked_for(tmp_path):
  source = _as_bfloat16(REFERENCES / "llama_tied", tmp_path / "source")
  config, params = load_pretrained(
    source, param_dtype="float32", dtype="bfloat16", remat="full"
  )
  assert (config.param_dtype, config.dtype) == ("float32", "bfloat16")
  assert config.remat == "full"
  for leaf in jax.tree.leaves(params):
    assert leaf.dtype == jnp.float32
    np.testing.assert_array_equal(leaf, leaf.astype(jnp.bfloat16))


def test_the_files_are_as_the_format_has_them(tmp_path):
  safetensors = pytest.importorskip("safetensors")
  config, params = load_pretrained(REFERENCES / "qwen2")
  huggingface.save(tmp_path / "saved", config, params)
  file = tmp_path / "saved/model.safetensors"
  with safetensors.safe_open(file, framework="np") as opened:
    assert opened.metadata() == {"format": "pt"}  # transformers asks for it
    _assert_same_bits(
      {name: opened.get_tensor(name) for name in opened.keys()},
      _arrays(REFERENCES / "qwen2"),
    )
  assert file.stat().st_mode & 0o444 == 0o444
  assert (tmp_path / "saved").stat().st_mode & 0o555 == 0o555


def test_large_models_are_saved_in_shards(tmp_path):
  config, params = load_pretrained(REFERENCES / "qwen3_moe")
  huggingface.save(tmp_path / "saved", config, params, shard_bytes=6000)
  files = sorted(tmp_path.glob("saved/*.safetensors"))
  assert len(files) > 2
  assert files[0].name == f"model-00001-of-{len(files):05}.safetensors"
  sizes = [sum(x.nbytes for x in _file(path).values()) for path in files]
  assert max(sizes) <= 6000
  index = json.loads((tmp_path / "saved" / INDEX).read_text())
  assert index["metadata"]["total_size"] == sum(sizes)
  for path in files:
    assert {n for n, f in index["weight_map"].items() if f == path.name} == set(
      _file(path)
    )
  _assert_same_bits(
    _arrays(tmp_path / "saved"), _arrays(REFERENCES / "qwen3_moe")
  )
  _, loaded = load_pretrained(tmp_path / "saved")
  jax.tree.map(np.testing.assert_array_equal, loaded, params)


def _file(path):
  return {name: array.read() for name, array in read_safetensors(path).items()}


def test_an_unfinished_folder_never_has_the_name(tmp_path, monkeypatch):
  config, params = load_pretrained(REFERENCES / "qwen2")

  def full(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(huggingface, "write_safetensors", full)
  with pytest.raises(UserError, match="No space left"):
    huggingface.save(tmp_path / "saved", config, params)
  assert list(tmp_path.iterdir()) == []
  monkeypatch.undo()
  (tmp_path / "saved").mkdir()  # an empty one is as good as none
  huggingface.save(tmp_path / "saved", config, params)
  with pytest.raises(UserError, match="there already"):
    huggingface.save(tmp_path / "saved", config, params)


def test_token_ids_are_written_down(tmp_path):
  config, params = load_pretrained(REFERENCES / "llama_tied")
  huggingface.save(
    tmp_path / "saved", config, params, token_ids={"eos_token_id": [2, 3]}
  )
  saved = json.loads((tmp_path / "saved/config.json").read_text())
  # Absent, transformers would make them 1 and 2.
  assert saved["eos_token_id"] == [2, 3]
  assert saved["bos_token_id"] is None


def test_parameters_of_another_model_are_not_saved(tmp_path):
  config, params = load_pretrained(REFERENCES / "qwen2")
  other, _ = load_pretrained(REFERENCES / "qwen3")
  with pytest.raises(ValueError, match="not those of this model"):
    huggingface.save(tmp_path / "saved", other, params)
  wider = dataclasses.replace(config, vocab_size=65)
  with pytest.raises(ValueError, match="embedding is float32"):
    huggingface.save(tmp_path / "saved", wider, params)
  half = dataclasses.replace(config, param_dtype="bfloat16")
  with pytest.raises(ValueError, match="float32"):
    huggingface.save(tmp_path / "saved", half, params)
  assert not (tmp_path / "saved").exists()


def test_the_ways_to_name_no_model(tmp_path):
  with pytest.raises(UserError, match="neither a folder, nor a file"):
    read_config(tmp_path / "absent")
  (tmp_path / "weights.gguf").write_bytes(b"GGUF")
  with pytest.raises(UserError, match=r"Name the file itself: .*weights\.gguf"):
    read_config(tmp_path)
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(UserError, match=r"config\.json is damaged"):
    read_config(tmp_path)


def test_a_hub_name_without_a_connection_says_what_to_do(monkeypatch):
  hub = pytest.importorskip("huggingface_hub")
  asked = []

  def offline(name, allow_patterns):
    asked.append((name, allow_patterns))
    raise OSError("no route")

  monkeypatch.setattr(hub, "snapshot_download", offline)
  with pytest.raises(UserError, match="fetch it elsewhere and name its folder"):
    load_pretrained("nobody/nothing")
  monkeypatch.setitem(sys.modules, "huggingface_hub", None)
  with pytest.raises(UserError, match=r"pip install 'grpo_jax\[hf\]'"):
    load_pretrained("nobody/nothing")
  assert asked == [("nobody/nothing", ("*.safetensors", "*.json"))]


def test_a_hub_name_is_fetched_and_its_configuration_alone_if_need_be(
  monkeypatch,
):
  hub = pytest.importorskip("huggingface_hub")
  asked = []

  def fetch(name, allow_patterns):
    del name
    asked.append(allow_patterns)
    return str(REFERENCES / "qwen3")

  monkeypatch.setattr(hub, "snapshot_download", fetch)
  assert read_config("owner/model").qk_norm
  assert asked == [("config.json",)]
  assert load_pretrained("owner/model")[0].qk_norm
