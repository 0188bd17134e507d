"""Adapters as a folder that the library PEFT loads."""

import json
from pathlib import Path

import numpy as np

from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.huggingface import LAYOUT
from grpo_jax.models.layout import StoredArray
from grpo_jax.models.lora import LoraOptions
from grpo_jax.models.new_folder import new_folder
from grpo_jax.models.safetensors_file import write_safetensors


def save_adapter(
  folder: Path,
  config: ModelConfig,
  adapters: dict,
  options: LoraOptions,
  *,
  base: str,
) -> None:
  """Writes adapter_config.json and adapter_model.safetensors, or neither.

  Args:
    folder: to be made.
    config: of the model.
    adapters: from `lora.init_lora`, trained.
    options: the same.
    base: name or folder of the model that they change.

  Raises:
    UserError: the folder is there already, or cannot be made.
  """
  if folder.exists():
    raise UserError(f"{folder} is there already; name another folder.")
  modules = [_module(name).rpartition(".")[2] for name in options.targets]
  settings = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": base,
    "r": options.rank,
    "lora_alpha": options.alpha,
    "lora_dropout": 0.0,
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "target_modules": modules,
  }
  text = json.dumps(settings, indent=2) + "\n"
  with new_folder(folder, what="The adapter") as unfinished:
    (unfinished / "adapter_config.json").write_text(text)
    write_safetensors(
      unfinished / "adapter_model.safetensors", _arrays(config, adapters)
    )


def _module(name: str) -> str:
  return LAYOUT.block[name].removesuffix(".weight")


def _arrays(config: ModelConfig, adapters: dict) -> dict[str, StoredArray]:
  """PEFT's A is r x inputs, and B outputs x r; ours are their transposes."""
  arrays = {}
  for layer in range(config.layers):
    stacked = config.scan_layers
    block = adapters["blocks" if stacked else f"blocks_{layer}"]
    for name, pair in block.items():
      a, b = (
        np.asarray(x[layer] if stacked else x, np.float32)
        for x in (pair["a"], pair["b"])
      )
      prefix = f"base_model.model.{_module(name).format(layer=layer)}"
      a, b = a.reshape(-1, a.shape[-1]).T, b.reshape(b.shape[0], -1).T
      arrays[f"{prefix}.lora_A.weight"] = _stored(a)
      arrays[f"{prefix}.lora_B.weight"] = _stored(b)
  return arrays


def _stored(array: np.ndarray) -> StoredArray:
  return StoredArray(Path(), array.shape, array.dtype, lambda: array)
