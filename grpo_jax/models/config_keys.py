"""The entries of a config.json, each of which must be understood."""

from collections.abc import Mapping
from typing import Any

from grpo_jax.errors import UserError

# Options that are not implemented, and the values that switch them off.
_OFF = {
  "attention_bias": (False,),
  "attention_dropout": (0,),
  "decoder_sparse_step": (1,),
  "hidden_act": ("silu",),
  "is_encoder_decoder": (False,),
  "mlp_bias": (False,),
  "mlp_only_layers": ([],),
  "partial_rotary_factor": (1,),
  "pretraining_tp": (1,),
  "rope_interleaved": (False,),
}

# What changes no logit. A key that is in no table here may, and is refused.
_IGNORED = {
  "_name_or_path",
  "bos_token_id",
  "dtype",
  "eos_token_id",
  "initializer_range",
  "is_llama_config",
  "output_router_logits",
  "pad_token_id",
  "router_aux_loss_coef",
  "torch_dtype",
  "transformers.js_config",
  "transformers_version",
  "unsloth_fixed",
  "unsloth_version",
  "use_cache",
}


class ConfigKeys:
  """What has not been read yet; null is as good as absent."""

  def __init__(self, data: Mapping[str, Any], where: str):
    self._left = {k: v for k, v in data.items() if v is not None}
    self.where = where

  def take(self, key: str, kind: type, default: Any = None) -> Any:
    """Reads an entry, once.

    Raises:
      UserError: it is absent and has no default, or is of another type.
    """
    value = self._left.pop(key, default)
    if value is None:
      raise UserError(f"{self.where} lacks {key!r}.")
    if kind is float and type(value) is int:
      value = float(value)
    if type(value) is not kind:
      raise UserError(
        f"{self.where}: {key} is {value!r}, which is not of type"
        f" {kind.__name__}."
      )
    return value

  def refuse_the_rest(self) -> None:
    """Whatever nobody has read is not implemented, unless it is harmless.

    Raises:
      UserError: there is such an entry.
    """
    for key, value in self._left.items():
      if key not in _IGNORED and value not in _OFF.get(key, ()):
        raise UserError(
          f"{self.where}: {key} = {value!r} is not supported. If it changes"
          " nothing that the model computes, remove it from the file."
        )
