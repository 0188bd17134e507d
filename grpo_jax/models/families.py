"""Published families of decoders as a table, and their config.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from grpo_jax.errors import UserError
from grpo_jax.models.config import DTYPES, ModelConfig
from grpo_jax.models.config_keys import ConfigKeys
from grpo_jax.models.published_rope import read_rope, write_rope


class Family(NamedTuple):
  """What one architecture of `transformers` computes.

  Attributes:
    architecture: the class that loads it.
    head_dim: of a config.json that names none; None for width / heads.
    qkv_bias: as in `ModelConfig`.
    qk_norm: as in `ModelConfig`.
    experts: whether each block is a mixture.
    windowed: the layers that a window applies to: none; the upper ones, from
      max_window_layers or as layer_types names them; or all.
  """

  architecture: str
  head_dim: int | None = None
  qkv_bias: bool = False
  qk_norm: bool = False
  experts: bool = False
  windowed: str = "none"


FAMILIES = {  # by model_type
  "llama": Family("LlamaForCausalLM"),
  "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True, windowed="upper"),
  "qwen3": Family(
    "Qwen3ForCausalLM", head_dim=128, qk_norm=True, windowed="upper"
  ),
  "qwen3_moe": Family(
    "Qwen3MoeForCausalLM", qk_norm=True, experts=True, windowed="all"
  ),
}

_FULL, _SLIDING = "full_attention", "sliding_attention"

# Fields of `ModelConfig` that say how it is run, not what it computes.
_RUNTIME = ("scan_layers", "dtype", "param_dtype", "remat", "attention")


def read_family_config(data: Mapping[str, Any], where: str) -> ModelConfig:
  """A `ModelConfig` that computes what a config.json describes.

  Both layouts are read: rope_theta with rope_scaling, and rope_parameters.

  Args:
    data: the JSON.
    where: its file, for errors.

  Returns:
    The model, its layers unrolled, in the data type that the file names, or in
    float32.

  Raises:
    UserError: an architecture, an option or a key that is not supported.
  """
  keys = ConfigKeys(data, where)
  family = _family(keys)
  layers = keys.take("num_hidden_layers", int)
  width = keys.take("hidden_size", int)
  heads = keys.take("num_attention_heads", int)
  positions = keys.take("max_position_embeddings", int, 0)
  theta, scaling = read_rope(keys, positions)
  stored = data.get("dtype") or data.get("torch_dtype")
  stored = stored if stored in DTYPES else "float32"
  fields = {
    "vocab_size": keys.take("vocab_size", int),
    "width": width,
    "layers": layers,
    "heads": heads,
    "kv_heads": keys.take("num_key_value_heads", int, heads),
    "head_dim": keys.take(
      "head_dim", int, family.head_dim or width // max(heads, 1)
    ),
    **_mlp(keys, family, data),
    "tie_embeddings": keys.take("tie_word_embeddings", bool, False),
    "scan_layers": False,
    "dtype": stored,
    "param_dtype": stored,
    "rope_theta": theta,
    "rope_scaling": scaling,
    "norm_eps": keys.take("rms_norm_eps", float, 1e-6),
    "qkv_bias": family.qkv_bias,
    "qk_norm": family.qk_norm,
    "windows": _windows(keys, family, layers),
    "max_positions": positions,
  }
  keys.refuse_the_rest()
  try:
    return ModelConfig(**fields)
  except ValueError as error:
    raise UserError(f"{where}: {error}") from error


def _family(keys: ConfigKeys) -> Family:
  model_type = keys.take("model_type", str)
  if model_type not in FAMILIES:
    raise UserError(
      f"{keys.where}: models of type {model_type!r} are not supported, only"
      f" {', '.join(FAMILIES)}."
    )
  family = FAMILIES[model_type]
  classes = keys.take("architectures", list, [family.architecture])
  if classes != [family.architecture]:
    raise UserError(
      f"{keys.where}: architectures is {classes}, but only"
      f" {family.architecture} of {model_type} is supported."
    )
  return family


def _mlp(keys: ConfigKeys, family: Family, data) -> dict[str, Any]:
  if not family.experts:
    return {"mlp_width": keys.take("intermediate_size", int)}
  keys.take("intermediate_size", int, 1)  # of layers without experts: none
  count = "num_local_experts" if "num_local_experts" in data else "num_experts"
  return {
    "mlp_width": keys.take("moe_intermediate_size", int),
    "experts": keys.take(count, int),
    "experts_per_token": keys.take("num_experts_per_tok", int),
    "normalise_experts": keys.take("norm_topk_prob", bool, False),
  }


def _windows(keys: ConfigKeys, family: Family, layers: int) -> tuple[int, ...]:
  if family.windowed == "none":
    return ()
  sliding = keys.take("use_sliding_window", bool, False)
  window = keys.take("sliding_window", int, None if sliding else 1)
  types = [_SLIDING if sliding else _FULL] * layers
  if family.windowed == "upper":
    first = keys.take("max_window_layers", int, 28)
    types = [_FULL if i < first else kind for i, kind in enumerate(types)]
    types = keys.take("layer_types", list, types)
  known = len(types) == layers and set(types) <= {_FULL, _SLIDING}
  if not known or window < 1 or (_SLIDING in types and not sliding):
    raise UserError(
      f"{keys.where}: layer_types {types} do not go with {layers} layers,"
      f" use_sliding_window {sliding} and sliding_window {window}."
    )
  if _SLIDING not in types:
    return ()
  return tuple(window if kind == _SLIDING else 0 for kind in types)


def write_family_config(
  config: ModelConfig, *, token_ids: Mapping[str, Any]
) -> dict[str, Any]:
  """The config.json of a model, in the layout that every release reads.

  Args:
    config: of the model.
    token_ids: bos_token_id, eos_token_id and pad_token_id, as far as known.

  Raises:
    ValueError: no published family computes this.
  """
  model_type = _nearest(config)
  family = FAMILIES[model_type]
  data = {
    "architectures": [family.architecture],
    "model_type": model_type,
    "vocab_size": config.vocab_size,
    "hidden_size": config.width,
    "num_hidden_layers": config.layers,
    "num_attention_heads": config.heads,
    "num_key_value_heads": config.kv_heads,
    "head_dim": config.head_dim,
    "intermediate_size": config.mlp_width,
    "hidden_act": "silu",
    "tie_word_embeddings": config.tie_embeddings,
    "rms_norm_eps": config.norm_eps,
    "torch_dtype": config.param_dtype,
    # Left out, they would be the family's own defaults.
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    **token_ids,
    **write_rope(config.rope_theta, config.rope_scaling),
  }
  if config.max_positions:
    data["max_position_embeddings"] = config.max_positions
  if family.experts:
    data |= {
      "moe_intermediate_size": config.mlp_width,
      "num_experts": config.experts,
      "num_experts_per_tok": config.experts_per_token,
      "norm_topk_prob": config.normalise_experts,
    }
  if config.windows:
    data |= {"use_sliding_window": True, "sliding_window": max(config.windows)}
  if config.windows and family.windowed == "upper":
    types = [_SLIDING if window else _FULL for window in config.windows]
    data |= {"max_window_layers": types.index(_SLIDING), "layer_types": types}
  _check_it_reads_back(data, config)
  return data


def _nearest(config: ModelConfig) -> str:
  """The model_type whose options come nearest to a model's."""
  if config.experts:
    return "qwen3_moe"
  if config.qk_norm:
    return "qwen3"
  return "qwen2" if config.qkv_bias else "llama"


def _check_it_reads_back(data: dict[str, Any], config: ModelConfig) -> None:
  try:
    again = read_family_config(data, "config.json")
  except UserError as error:
    raise ValueError(f"No published family has this. {error}") from error
  for field in dataclasses.fields(ModelConfig):
    wanted, written = (getattr(x, field.name) for x in (config, again))
    if field.name not in _RUNTIME and wanted != written:
      raise ValueError(
        f"No published family has model.{field.name} = {wanted!r} beside the"
        f" other options of this model; {data['model_type']} has {written!r}."
      )
