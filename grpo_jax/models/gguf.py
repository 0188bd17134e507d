"""Weights and configuration from a GGUF file, as llama.cpp writes it."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Sharding

from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.families import read_family_config
from grpo_jax.models.gguf_file import Gguf, GgufArray, check_end, read_gguf
from grpo_jax.models.layout import Layout, StoredArray, load_params
from grpo_jax.models.rope import Llama3Scaling

_ARCHITECTURES = {
  "llama": "llama",
  "qwen2": "qwen2",
  "qwen3": "qwen3",
  "qwen3moe": "qwen3_moe",
}
_LAYER = "blk.{layer}."
LAYOUT = Layout(
  top={
    "embedding": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "output": "output.weight",
  },
  block={
    "attention_norm": _LAYER + "attn_norm.weight",
    "query": _LAYER + "attn_q.weight",
    "query_bias": _LAYER + "attn_q.bias",
    "query_norm": _LAYER + "attn_q_norm.weight",
    "key": _LAYER + "attn_k.weight",
    "key_bias": _LAYER + "attn_k.bias",
    "key_norm": _LAYER + "attn_k_norm.weight",
    "value": _LAYER + "attn_v.weight",
    "value_bias": _LAYER + "attn_v.bias",
    "out": _LAYER + "attn_output.weight",
    "mlp_norm": _LAYER + "ffn_norm.weight",
    "router": _LAYER + "ffn_gate_inp.weight",
    "gate": _LAYER + "ffn_gate.weight",
    "up": _LAYER + "ffn_up.weight",
    "down": _LAYER + "ffn_down.weight",
  },
  experts={
    "gate": _LAYER + "ffn_gate_exps.weight[{expert}]",
    "up": _LAYER + "ffn_up_exps.weight[{expert}]",
    "down": _LAYER + "ffn_down_exps.weight[{expert}]",
  },
)
_PERMUTED = ("llama",)  # architectures whose q and k llama.cpp rearranges

# Entries of the metadata as a config.json calls them.
_KEYS = {
  "attention.head_count": "num_attention_heads",
  "attention.head_count_kv": "num_key_value_heads",
  "attention.key_length": "head_dim",
  "attention.layer_norm_rms_epsilon": "rms_norm_eps",
  "block_count": "num_hidden_layers",
  "context_length": "max_position_embeddings",
  "embedding_length": "hidden_size",
  "expert_count": "num_experts",
  "expert_feed_forward_length": "moe_intermediate_size",
  "expert_used_count": "num_experts_per_tok",
  "feed_forward_length": "intermediate_size",
  "rope.freq_base": "rope_theta",
  "vocab_size": "vocab_size",
}
_ROPE_KEYS = {
  "rope.scaling.factor": "factor",
  "rope.scaling.original_context_length": "original_max_position_embeddings",
  "rope.scaling.type": "rope_type",
}
_HEAD_SIZES = ("attention.value_length", "rope.dimension_count")
_IGNORED = ("rope.scaling.finetuned",)
_STRETCHED = "rope_freqs.weight"  # Llama 3's scaling, as factors only
_EXPERTS = "_exps.weight"


def read_config(path: Path) -> ModelConfig:
  """The model that a file's metadata describe, in float32.

  Raises:
    UserError: the file is damaged, or describes what is not supported.
  """
  file = read_gguf(path)
  architecture = _architecture(path, file)
  prefix = f"{architecture}."
  entries = {
    key.removeprefix(prefix): _decimal(value)
    for key, value in file.metadata.items()
    if key.startswith(prefix) and key.removeprefix(prefix) not in _IGNORED
  }
  sizes = {key: entries.pop(key) for key in _HEAD_SIZES if key in entries}
  rope = {new: entries.pop(k) for k, new in _ROPE_KEYS.items() if k in entries}
  data = {_KEYS.get(key, key): value for key, value in entries.items()}
  data["model_type"] = _ARCHITECTURES[architecture]
  data["tie_word_embeddings"] = LAYOUT.top["output"] not in file.arrays
  if LAYOUT.top["embedding"] in file.arrays:
    rows = file.arrays[LAYOUT.top["embedding"]].shape[0]
    data.setdefault("vocab_size", rows)
  if "expert_count" in entries:
    data["norm_topk_prob"] = True  # llama.cpp knows nothing else
  if rope.get("rope_type", "none") != "none":
    data["rope_scaling"] = rope
  # The family's own head_dim, if it has one, is not llama.cpp's.
  heads = data.get("num_attention_heads")
  if isinstance(heads, int) and heads and "hidden_size" in data:
    data.setdefault("head_dim", data["hidden_size"] // heads)
  config = read_family_config(data, str(path))
  for key, size in sizes.items():
    if size != config.head_dim:
      raise UserError(
        f"{path}: {key} is {size}, but only the size of a head is supported,"
        f" {config.head_dim}."
      )
  if _STRETCHED in file.arrays:
    return _stretched(config, path, file)
  return config


def _architecture(path: Path, file: Gguf) -> str:
  architecture = file.metadata.get("general.architecture")
  if architecture not in _ARCHITECTURES:
    raise UserError(
      f"{path}: models of type {architecture!r} are not supported, only"
      f" {', '.join(_ARCHITECTURES)}."
    )
  return architecture


def _decimal(value: Any) -> Any:
  """1e-05, which float32 makes 9.99999974e-06."""
  return float(str(np.float32(value))) if type(value) is float else value


def _stretched(config: ModelConfig, path: Path, file: Gguf) -> ModelConfig:
  """With the Llama 3 scaling that has the factors of a file."""
  stored = _stored(path, _STRETCHED, file.arrays[_STRETCHED]).read()
  scaling = Llama3Scaling(
    factor=float(stored[-1]),
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_positions=8192,
  )
  half = config.head_dim // 2
  frequencies = config.rope_theta ** (-np.arange(half) / half)
  factors = frequencies / scaling(frequencies)[0]
  if stored.shape != factors.shape or not np.allclose(stored, factors, 1e-4):
    raise UserError(
      f"The array {_STRETCHED!r} of {path} is not the scaling of Llama 3 with"
      " the constants of Meta's models. Load the original folder instead."
    )
  return dataclasses.replace(config, rope_scaling=scaling)


def load(
  path: Path,
  config: ModelConfig,
  *,
  shardings: Sharding | dict | None = None,
) -> dict:
  """The parameters of a file, made floats again one array at a time.

  Args:
    path: of the file.
    config: from `read_config`, with any way to run it.
    shardings: as in `layout.load_params`.

  Raises:
    UserError: the file is damaged, or an array is missing, surplus, of another
      shape or quantised in an unknown way; the package gguf is not installed.
  """
  file = read_gguf(path)
  stored = {}
  for name, array in file.arrays.items():
    if name.endswith(_EXPERTS):  # of a whole mixture
      for i in range(array.shape[0]):
        stored[f"{name}[{i}]"] = _stored(path, name, array, part=i)
    elif name != _STRETCHED:
      stored[name] = _stored(path, name, array)
  if _architecture(path, file) in _PERMUTED:
    for layer in range(config.layers):
      for key, heads in ("query", config.heads), ("key", config.kv_heads):
        name = LAYOUT.block[key].format(layer=layer)
        if name in stored:
          stored[name] = _in_order(stored[name], heads)
  return load_params(config, LAYOUT, stored, shardings=shardings)


def _stored(
  path: Path, name: str, array: GgufArray, *, part: int | None = None
) -> StoredArray:
  """An array, or one along its first axis, that is made floats when read."""
  try:
    import gguf
  except ImportError as error:
    raise UserError(
      "GGUF files need the package gguf: pip install 'grpo_jax[hf]'."
    ) from error
  try:
    kind = gguf.GGMLQuantizationType(array.kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
  except (ValueError, KeyError) as error:
    raise UserError(
      f"The array {name!r} of {path} is quantised in a way that the installed"
      f" package gguf does not know ({array.kind})."
    ) from error
  length = math.prod(array.shape) // elements * size
  check_end(path, name, array.offset + length)
  shape, offset = array.shape, array.offset
  if part is not None:
    length //= shape[0]
    shape, offset = shape[1:], offset + part * length

  def read():
    data = np.memmap(path, np.uint8, "r", offset, (length,))
    try:
      rows = data.reshape(*shape[:-1], -1)
      return gguf.dequantize(rows, kind).reshape(shape)
    except (NotImplementedError, ValueError) as error:
      raise UserError(
        f"The array {name!r} of {path} cannot be made floats: {error}."
      ) from error

  return StoredArray(path, shape, np.dtype(np.float32), read)


def _in_order(stored: StoredArray, heads: int) -> StoredArray:
  """Rows of each head from 0 4 1 5 2 6 3 7, llama.cpp's, to 0 1 2 3 4 5 6 7."""

  def read():
    rows = stored.read()
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)

  return stored._replace(read=read)
