"""GGUF files, written by the format's own package as llama.cpp does."""

import struct
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from grpo_jax.errors import UserError
from grpo_jax.models.pretrained import load_pretrained, read_config
from grpo_jax.models.rope import Llama3Scaling, YarnScaling
from grpo_jax.models.safetensors_file import read_safetensors

gguf = pytest.importorskip("gguf")

REFERENCES = Path(__file__).parent / "references"
ARCHITECTURES = {
  "llama_tied": "llama",
  "qwen2": "qwen2",
  "qwen3": "qwen3",
  "qwen3_moe": "qwen3moe",
}
NAMES = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  "lm_head": "output",
  "input_layernorm": "attn_norm",
  "post_attention_layernorm": "ffn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
  "mlp.gate": "ffn_gate_inp",
}


def _permuted(rows, heads):
  """As llama.cpp's converter does with q and k of Llama: 0 4 1 5 2 6 3 7."""
  size = rows.shape[0] // heads
  order = [half * size // 2 + i for i in range(size // 2) for half in (0, 1)]
  return rows.reshape(heads, size, -1)[:, order].reshape(rows.shape)


def _arrays(name, config):
  """The arrays of a reference, as a GGUF file has them."""
  found, experts = {}, {}
  for file in (REFERENCES / name).glob("*.safetensors"):
    for key, stored in read_safetensors(file).items():
      values = np.array(stored.read())
      base, _, kind = key.rpartition(".")
      layer, prefix = "", ""
      if base.startswith("model.layers."):
        layer, base = base.removeprefix("model.layers.").split(".", 1)
        prefix = f"blk.{layer}."
      if base.startswith("mlp.experts."):
        expert, part = base.removeprefix("mlp.experts.").split(".")
        whole = f"{prefix}{NAMES[f'mlp.{part}']}_exps.{kind}"
        experts.setdefault(whole, {})[int(expert)] = values
        continue
      heads = {
        "self_attn.q_proj": config.heads,
        "self_attn.k_proj": config.kv_heads,
      }.get(base)
      if ARCHITECTURES[name] == "llama" and heads:
        values = _permuted(values, heads)
      found[f"{prefix}{NAMES[base]}.{kind}"] = values
  for whole, parts in experts.items():
    found[whole] = np.stack([parts[i] for i in range(len(parts))])
  return found


def _write(path, name, *, change=None, kind="F32", **metadata):
  """A reference as a GGUF file; `metadata` as key=value, __ for a dot."""
  config = read_config(REFERENCES / name)
  writer = gguf.GGUFWriter(path, ARCHITECTURES[name])
  writer.add_block_count(config.layers)
  writer.add_context_length(config.max_positions)
  writer.add_embedding_length(config.width)
  writer.add_feed_forward_length(config.mlp_width)
  writer.add_head_count(config.heads)
  writer.add_head_count_kv(config.kv_heads)
  writer.add_key_length(config.head_dim)
  writer.add_value_length(config.head_dim)
  writer.add_layer_norm_rms_eps(config.norm_eps)
  metadata = {"rope__freq_base": config.rope_theta} | metadata
  writer.add_token_list(["a"] * config.vocab_size)
  if config.experts:
    writer.add_expert_count(config.experts)
    writer.add_expert_used_count(config.experts_per_token)
    writer.add_expert_feed_forward_length(config.mlp_width)
  for key, value in metadata.items():
    add = {
      str: writer.add_string,
      float: writer.add_float32,
      int: writer.add_uint32,
    }[type(value)]
    add(f"{ARCHITECTURES[name]}.{key.replace('__', '.')}", value)
  arrays = _arrays(name, config)
  if change is not None:
    change(arrays)
  quantisation = gguf.GGMLQuantizationType[kind]
  for key, values in arrays.items():
    if values.ndim > 1 and values.shape[-1] % 32 == 0:  # in blocks of 32
      data = gguf.quantize(values, quantisation)
      writer.add_tensor(key, data, raw_dtype=quantisation)
    else:
      writer.add_tensor(key, values)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_file_holds_what_the_folder_does(name, scan_layers, tmp_path):
  path = _write(tmp_path / "model.gguf", name)
  config, params = load_pretrained(path, scan_layers=scan_layers)
  expected = load_pretrained(REFERENCES / name, scan_layers=scan_layers)
  assert config == expected[0]
  jax.tree.map(np.testing.assert_array_equal, params, expected[1])


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_quantised_arrays_are_made_floats(kind, tmp_path):
  path = _write(tmp_path / "model.gguf", "llama_tied", kind=kind)
  _, params = load_pretrained(path, param_dtype="float32")
  _, expected = load_pretrained(REFERENCES / "llama_tied")
  quantisation = gguf.GGMLQuantizationType[kind]
  table = gguf.dequantize(
    gguf.quantize(np.array(expected["embedding"]), quantisation), quantisation
  )
  np.testing.assert_array_equal(params["embedding"], table)
  step = np.abs(expected["embedding"]).max() / 5  # of four bits
  query = expected["blocks_0"]["query"]
  assert 0 < np.abs(params["blocks_0"]["query"] - query).max() < step


def test_stretched_rotary_embeddings(tmp_path):
  scaling = {
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 4.0,
    "rope__scaling__original_context_length": 32,
    "rope__scaling__finetuned": 1,
  }
  path = _write(tmp_path / "yarn.gguf", "qwen3", **scaling)
  assert read_config(path).rope_scaling == YarnScaling(4.0, 32)
  llama3 = Llama3Scaling(8.0, 1.0, 4.0, 8192)
  base = {"rope__freq_base": 500_000.0}  # so that one is kept, one blended
  frequencies = 500_000.0 ** (-np.arange(4) / 4)
  factors = (frequencies / llama3(frequencies)[0]).astype(np.float32)
  assert factors[1] == 1 < factors[2] < factors[3] == 8

  def add(arrays):
    arrays["rope_freqs.weight"] = factors

  path = _write(tmp_path / "llama3.gguf", "llama_tied", change=add, **base)
  assert load_pretrained(path)[0].rope_scaling == llama3
  factors[1] *= 1.01
  path = _write(tmp_path / "other.gguf", "llama_tied", change=add, **base)
  with pytest.raises(UserError, match=r"rope_freqs\.weight.* is not the scal"):
    read_config(path)


@pytest.mark.parametrize(
  ("metadata", "message"),
  [
    ({"rope__scaling__type": "linear"}, "type 'linear' is not supported"),
    ({"attention__sliding_window": 8}, "attention.sliding_window = 8"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ({"rope__dimension_count": 4}, "rope.dimension_count is 4"),
  ],
)
def test_what_is_not_supported_is_refused(metadata, message, tmp_path):
  path = _write(tmp_path / "model.gguf", "llama_tied", **metadata)
  with pytest.raises(UserError, match=message):
    read_config(path)


def test_another_architecture_is_refused(tmp_path, monkeypatch):
  monkeypatch.setitem(ARCHITECTURES, "llama_tied", "gemma")
  path = _write(tmp_path / "model.gguf", "llama_tied")
  with pytest.raises(UserError, match="'gemma' are not supported, only llama"):
    read_config(path)


def _rename(arrays):
  arrays["blk.0.other.weight"] = arrays.pop("blk.0.attn_q.weight")


def _add(arrays):
  arrays["blk.0.attn_output.bias"] = np.ones(32, np.float32)


def _cut(arrays):
  arrays["blk.1.ffn_up.weight"] = arrays["blk.1.ffn_up.weight"][:-1]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (_rename, r"blk\.0\.attn_q\.weight' is missing"),
    (_add, r"blk\.0\.attn_output\.bias' .* none of this model's"),
    (_cut, r"blk\.1\.ffn_up\.weight' .* has the shape \(23, 32\)"),
  ],
)
def test_a_wrong_array_is_named_with_its_file(change, message, tmp_path):
  path = _write(tmp_path / "model.gguf", "llama_tied", change=change)
  with pytest.raises(UserError, match=message) as caught:
    load_pretrained(path)
  assert str(path) in str(caught.value)


def test_a_truncated_file_names_what_is_cut_off(tmp_path):
  path = _write(tmp_path / "model.gguf", "llama_tied")
  whole = path.read_bytes()
  path.write_bytes(whole[:-10])
  with pytest.raises(UserError, match=r"cut off: the array '.*' ends at byte"):
    load_pretrained(path)
  for length in (4, 10, 30, 200, 1000):
    path.write_bytes(whole[:length])
    with pytest.raises(UserError, match="header cannot be read"):
      load_pretrained(path)
  for start in (b"", b"GG", b"PK\x03\x04" + whole[4:]):
    path.write_bytes(start)
    with pytest.raises(UserError, match=r"no GGUF file|cannot be read"):
      load_pretrained(path)
  path.write_bytes(whole[:4] + struct.pack("<I", 1) + whole[8:])
  with pytest.raises(UserError, match="version 1"):
    load_pretrained(path)


def test_without_the_package_the_error_says_what_to_install(
  tmp_path, monkeypatch
):
  path = _write(tmp_path / "model.gguf", "llama_tied")
  monkeypatch.setitem(sys.modules, "gguf", None)
  assert read_config(path).heads == 4  # of the header alone
  with pytest.raises(UserError, match=r"pip install 'grpo_jax\[hf\]'"):
    load_pretrained(path)
