"""Folders of a model as Hugging Face lays them out: in and out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Sharding

from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.families import read_family_config, write_family_config
from grpo_jax.models.layout import (
  Layout,
  StoredArray,
  arrays_of,
  load_params,
)
from grpo_jax.models.new_folder import new_folder
from grpo_jax.models.safetensors_file import (
  read_safetensors,
  write_safetensors,
)

CONFIG = "config.json"
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"

_LAYER = "model.layers.{layer}."
_EXPERT = _LAYER + "mlp.experts.{expert}."
LAYOUT = Layout(
  top={
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "output": "lm_head.weight",
  },
  block={
    "attention_norm": _LAYER + "input_layernorm.weight",
    "query": _LAYER + "self_attn.q_proj.weight",
    "query_bias": _LAYER + "self_attn.q_proj.bias",
    "query_norm": _LAYER + "self_attn.q_norm.weight",
    "key": _LAYER + "self_attn.k_proj.weight",
    "key_bias": _LAYER + "self_attn.k_proj.bias",
    "key_norm": _LAYER + "self_attn.k_norm.weight",
    "value": _LAYER + "self_attn.v_proj.weight",
    "value_bias": _LAYER + "self_attn.v_proj.bias",
    "out": _LAYER + "self_attn.o_proj.weight",
    "mlp_norm": _LAYER + "post_attention_layernorm.weight",
    "router": _LAYER + "mlp.gate.weight",
    "gate": _LAYER + "mlp.gate_proj.weight",
    "up": _LAYER + "mlp.up_proj.weight",
    "down": _LAYER + "mlp.down_proj.weight",
  },
  experts={
    "gate": _EXPERT + "gate_proj.weight",
    "up": _EXPERT + "up_proj.weight",
    "down": _EXPERT + "down_proj.weight",
  },
)
# Of old files; they follow from config.json, and transformers skips them too.
_DERIVED = ".rotary_emb.inv_freq"
_COMPARED_ROWS = 4096


def read_config(folder: Path) -> ModelConfig:
  """The model that a folder's config.json describes.

  Raises:
    UserError: it is missing, damaged, or describes what is not supported.
  """
  path = folder / CONFIG
  return read_family_config(_json(path), str(path))


def _json(path: Path) -> dict[str, Any]:
  try:
    data = json.loads(path.read_text())
  except OSError as error:
    raise UserError(f"{path} cannot be read: {error.strerror}.") from error
  except ValueError as error:
    raise UserError(f"{path} is damaged: {error}. Fetch it again.") from error
  if not isinstance(data, dict):
    raise UserError(f"{path} is damaged: it holds no JSON object.")
  return data


def load(
  folder: Path,
  config: ModelConfig,
  *,
  shardings: Sharding | dict | None = None,
) -> dict:
  """The parameters of a folder, in the data type of the configuration.

  Args:
    folder: with one safetensors file, or several and their index.
    config: from `read_config`, with any way to run it.
    shardings: as in `layout.load_params`.

  Raises:
    UserError: a file is missing or damaged, or an array is missing, surplus
      or of another shape or type.
  """
  stored = _stored(folder)
  for name in [name for name in stored if name.endswith(_DERIVED)]:
    del stored[name]
  embedding, output = LAYOUT.top["embedding"], LAYOUT.top["output"]
  if config.tie_embeddings and output in stored and embedding in stored:
    _check_tied(stored[embedding], stored.pop(output))
  return load_params(config, LAYOUT, stored, shardings=shardings)


def _stored(folder: Path) -> dict[str, StoredArray]:
  if (folder / _SINGLE).exists():
    return read_safetensors(folder / _SINGLE)
  if not (folder / _INDEX).exists():
    raise UserError(
      f"{folder} has no {_SINGLE}, nor {_INDEX}. Weights in another format"
      " must be converted to safetensors first."
    )
  files = _json(folder / _INDEX).get("weight_map")
  if not isinstance(files, dict) or {type(f) for f in files.values()} != {str}:
    raise UserError(
      f"{folder / _INDEX} is damaged: it maps no arrays to files."
    )
  stored = {}
  for file in sorted(set(files.values())):
    if not (folder / file).exists():
      raise UserError(f"{folder} lacks {file}, which {_INDEX} names.")
    for name, array in read_safetensors(folder / file).items():
      if files.get(name) != file:
        raise UserError(
          f"The array {name!r} of {folder / file} is not there according to"
          f" {_INDEX}. The files are of different models."
        )
      stored[name] = array
  for name in files.keys() - stored.keys():
    raise UserError(
      f"The array {name!r} is missing from {folder / files[name]}."
    )
  return stored


def _check_tied(embedding: StoredArray, output: StoredArray) -> None:
  """Some files repeat the embedding; one that differs is another model."""
  same = embedding.shape == output.shape and embedding.dtype == output.dtype
  if same:
    a, b = (array.read().view(np.uint8) for array in (embedding, output))
    same = all(
      np.array_equal(a[i : i + _COMPARED_ROWS], b[i : i + _COMPARED_ROWS])
      for i in range(0, len(a), _COMPARED_ROWS)
    )
  if not same:
    raise UserError(
      f"The array {LAYOUT.top['output']!r} of {output.file} differs from the"
      " embedding, though tie_word_embeddings in config.json says that they"
      " are one."
    )


def save(
  folder: Path,
  config: ModelConfig,
  params: dict,
  *,
  token_ids: Mapping[str, Any] | None = None,
  shard_bytes: int = 5 * 10**9,
) -> None:
  """Writes a folder that `transformers` loads; it appears when complete.

  Arrays keep the data type of the parameters, bit by bit.

  Args:
    folder: to be made.
    config: of the model.
    params: of the model, all on devices of this process.
    token_ids: bos_token_id, eos_token_id and pad_token_id, as far as known.
    shard_bytes: arrays per file, unless a single array is larger.

  Raises:
    UserError: the folder is there already and not empty, or cannot be made.
    ValueError: no published family computes this, or the parameters are not
      those of the model.
  """
  data = write_family_config(config, token_ids=token_ids or {})
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise UserError(f"{folder} is there already; name another folder.")
  shards = _shards(dict(arrays_of(config, LAYOUT, params)), shard_bytes)
  with new_folder(folder, what="The model") as unfinished:
    _write(unfinished, data, shards)


def _shards(
  arrays: dict[str, StoredArray], shard_bytes: int
) -> list[dict[str, StoredArray]]:
  shards, filled = [{}], 0
  for name, array in arrays.items():
    size = _bytes(array)
    if shards[-1] and filled + size > shard_bytes:
      shards.append({})
      filled = 0
    shards[-1][name] = array
    filled += size
  return shards


def _bytes(array: StoredArray) -> int:
  return int(np.prod(array.shape)) * array.dtype.itemsize


def _write(folder: Path, data: dict, shards: list[dict]) -> None:
  (folder / CONFIG).write_text(json.dumps(data, indent=2) + "\n")
  if len(shards) == 1:
    write_safetensors(folder / _SINGLE, shards[0])
    return
  files = {}
  for i, shard in enumerate(shards, start=1):
    file = f"model-{i:05}-of-{len(shards):05}.safetensors"
    write_safetensors(folder / file, shard)
    files |= dict.fromkeys(shard, file)
  total = sum(_bytes(array) for shard in shards for array in shard.values())
  index = {"metadata": {"total_size": total}, "weight_map": files}
  (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n")
