"""Damaged and ill-assorted files of a folder: each is named, with its array."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from grpo_jax.errors import UserError
from grpo_jax.models.pretrained import load_pretrained
from grpo_jax.models.safetensors_file import read_safetensors

REFERENCES = Path(__file__).parent / "references"
INDEX = "model.safetensors.index.json"


def _file(path):
  return {name: array.read() for name, array in read_safetensors(path).items()}


@pytest.fixture
def damaged(tmp_path):
  """A folder to be damaged, in one file."""
  return Path(shutil.copytree(REFERENCES / "qwen2", tmp_path / "qwen2"))


def _rewrite(file, change):
  """Changes the header of a safetensors file."""
  data = file.read_bytes()
  length = int.from_bytes(data[:8], "little")
  header = json.loads(data[8 : 8 + length])
  change(header)
  text = json.dumps(header).encode()
  file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


QUERY = "model.layers.1.self_attn.q_proj.weight"


def _rename(header):
  header["model.layers.1.extra"] = header.pop(QUERY)


def _retype(kind):
  return lambda header: header[QUERY].update(dtype=kind)


def _reshape(header):
  header[QUERY]["shape"] = [*header[QUERY]["shape"][:1], 16, 2]


def _shrink(header):
  header[QUERY]["shape"] = [16, 16]


def _overlap(header):
  twin = header["model.layers.1.self_attn.o_proj.weight"]
  header[QUERY]["data_offsets"] = twin["data_offsets"]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (_rename, f"{QUERY}' is missing"),
    (_reshape, f"{QUERY}' .* has the shape .*32, 16, 2.* makes it .*32, 32"),
    (_shrink, f"damaged: the array '{QUERY}' lies at"),
    (_overlap, "damaged: the array .* after the one before lies at"),
    (_retype("I32"), f"{QUERY}' .* is of type I32"),
    (_retype("F16"), f"damaged: the array '{QUERY}'"),
    (lambda header: header.pop("model.norm.weight"), "damaged: 128 bytes"),
    (lambda header: header.update({QUERY: 3}), "header cannot be read"),
  ],
)
def test_a_wrong_array_is_named_with_its_file(damaged, change, message):
  file = damaged / "model.safetensors"
  _rewrite(file, change)
  with pytest.raises(UserError, match=message) as caught:
    load_pretrained(damaged)
  assert str(file) in str(caught.value)


def _append(file, name, values):
  """Adds an array to a safetensors file."""
  end = sum(array.nbytes for array in _file(file).values())
  entry = {
    "dtype": "F32",
    "shape": values.shape,
    "data_offsets": [end, end + values.nbytes],
  }
  _rewrite(file, lambda header: header.update({name: entry}))
  file.write_bytes(file.read_bytes() + values.tobytes())


def test_a_surplus_array_is_refused_unless_it_follows_from_others(damaged):
  file = damaged / "model.safetensors"
  values = np.ones((4,), np.float32)
  _append(file, "model.layers.0.self_attn.rotary_emb.inv_freq", values)
  load_pretrained(damaged)
  _append(file, "model.layers.0.self_attn.o_proj.bias", values)
  with pytest.raises(UserError, match=r"o_proj\.bias' .* none of this model's"):
    load_pretrained(damaged)


def test_a_truncated_file_names_what_is_cut_off(damaged):
  file = damaged / "model.safetensors"
  whole = file.read_bytes()
  file.write_bytes(whole[:-10])
  with pytest.raises(UserError, match=r"cut off: the array '.*' ends at byte"):
    load_pretrained(damaged)
  for part in (whole[:500], whole[:5], b"", b"\xff" * 500):
    file.write_bytes(part)
    with pytest.raises(UserError, match=r"model\.safetensors is cut off"):
      load_pretrained(damaged)
  file.write_bytes(whole + b"1234")
  with pytest.raises(UserError, match="4 bytes at its end belong to no array"):
    load_pretrained(damaged)


def test_a_missing_shard_is_named(tmp_path):
  folder = Path(
    shutil.copytree(REFERENCES / "llama_untied_llama3", tmp_path / "llama")
  )
  shards = sorted(folder.glob("*.safetensors"))
  second = shards[1].read_bytes()
  shards[1].unlink()
  with pytest.raises(UserError, match=f"lacks {shards[1].name}"):
    load_pretrained(folder)
  shards[1].write_bytes(shards[0].read_bytes())  # a shard of something else
  with pytest.raises(UserError, match="not there according to"):
    load_pretrained(folder)
  shards[1].write_bytes(second)
  index = json.loads((folder / INDEX).read_text())
  index["weight_map"]["model.norm.bias"] = shards[1].name
  (folder / INDEX).write_text(json.dumps(index))
  with pytest.raises(UserError, match=r"model\.norm\.bias.*is missing"):
    load_pretrained(folder)
  (folder / INDEX).write_text('{"weight_map": 3}')
  with pytest.raises(UserError, match="maps no arrays"):
    load_pretrained(folder)
  (folder / INDEX).unlink()
  with pytest.raises(UserError, match=r"has no model\.safetensors"):
    load_pretrained(folder)


def test_a_repeated_embedding_must_be_the_same(damaged):
  file = damaged / "model.safetensors"
  original = file.read_bytes()
  embedding = np.array(_file(file)["model.embed_tokens.weight"])
  _append(file, "lm_head.weight", embedding)
  load_pretrained(damaged)
  embedding[-1, -1] += 1
  file.write_bytes(original)
  _append(file, "lm_head.weight", embedding)
  with pytest.raises(UserError, match=r"lm_head\.weight.*differs"):
    load_pretrained(damaged)
