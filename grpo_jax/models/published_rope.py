"""Rotary embeddings as a config.json describes them, both ways."""

import math
from typing import Any

from grpo_jax.errors import UserError
from grpo_jax.models.config_keys import ConfigKeys
from grpo_jax.models.rope import Llama3Scaling, YarnScaling

Scaling = Llama3Scaling | YarnScaling | None


def read_rope(keys: ConfigKeys, positions: int) -> tuple[float, Scaling]:
  """Base of the wavelengths, and how they are stretched.

  Args:
    keys: of a config.json; rope_theta, rope_scaling and rope_parameters are
      taken.
    positions: max_position_embeddings, the original context where none is
      named; 0 if unknown.

  Raises:
    UserError: a type or an option that is not supported.
  """
  older = keys.take("rope_scaling", dict, {})
  newer = keys.take("rope_parameters", dict, {})
  rope = ConfigKeys({**newer, **older}, f"{keys.where}, rotary embeddings")
  theta = keys.take("rope_theta", float, 10_000.0)
  theta = rope.take("rope_theta", float, theta)
  kind = rope.take("type", str, "default")
  kind = rope.take("rope_type", str, kind)
  if kind not in _READERS:
    raise UserError(
      f"{rope.where}: type {kind!r} is not supported, only"
      f" {', '.join(_READERS)}."
    )
  scaling = _READERS[kind](rope, positions or None)
  rope.refuse_the_rest()
  return theta, scaling


def _default(rope: ConfigKeys, positions: int | None) -> None:
  del positions
  # Written by some, and without effect.
  rope.take("original_max_position_embeddings", int, 0)


def _llama3(rope: ConfigKeys, positions: int | None) -> Llama3Scaling:
  return Llama3Scaling(
    factor=rope.take("factor", float),
    low_freq_factor=rope.take("low_freq_factor", float),
    high_freq_factor=rope.take("high_freq_factor", float),
    original_positions=rope.take(
      "original_max_position_embeddings", int, positions
    ),
  )


def _yarn(rope: ConfigKeys, positions: int | None) -> YarnScaling:
  factor = rope.take("factor", float)
  scales = [rope.take(k, float, 0.0) for k in ("mscale", "mscale_all_dim")]
  attention = rope.take("attention_factor", float, 0.0) or None
  if attention is None and all(scales):  # as DeepSeek writes it
    grown = [1 + 0.1 * scale * math.log(max(factor, 1)) for scale in scales]
    attention = grown[0] / grown[1]
  return YarnScaling(
    factor=factor,
    original_positions=rope.take(
      "original_max_position_embeddings", int, positions
    ),
    beta_fast=rope.take("beta_fast", float, 32.0),
    beta_slow=rope.take("beta_slow", float, 1.0),
    attention_factor=attention,
    truncate=rope.take("truncate", bool, True),
  )


# Each takes the entries that it understands.
_READERS = {"default": _default, "llama3": _llama3, "yarn": _yarn}


def write_rope(theta: float, scaling: Scaling) -> dict[str, Any]:
  """The entries of a config.json; the inverse of `read_rope`."""
  if scaling is None:
    return {"rope_theta": theta, "rope_scaling": None}
  rope = {
    "factor": scaling.factor,
    "original_max_position_embeddings": scaling.original_positions,
  }
  if isinstance(scaling, Llama3Scaling):
    rope |= {
      "rope_type": "llama3",
      "low_freq_factor": scaling.low_freq_factor,
      "high_freq_factor": scaling.high_freq_factor,
    }
  else:
    rope |= {
      "rope_type": "yarn",
      "beta_fast": scaling.beta_fast,
      "beta_slow": scaling.beta_slow,
      "truncate": scaling.truncate,
    }
    if scaling.attention_factor is not None:
      rope["attention_factor"] = scaling.attention_factor
  return {"rope_theta": theta, "rope_scaling": rope}
