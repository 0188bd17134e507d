"""Names of config keys: flat, checked, and suggested when mistyped."""

import difflib
import math
from collections.abc import Iterable
from typing import Any

from ml_collections import ConfigDict

from experiments.configs import base
from grpo_jax.errors import UserError


def leaves(config: ConfigDict) -> dict[str, Any]:
  """Dotted names and values: {"model.width": 64, ...}."""
  flat = {}
  for key, value in config.items():
    if isinstance(value, ConfigDict):
      flat |= {f"{key}.{name}": v for name, v in leaves(value).items()}
    else:
      flat[key] = value
  return flat


def check_keys(config: ConfigDict) -> None:
  """Raises UserError for keys that no code reads, and for missing ones."""
  known = set(leaves(base.get_config()))
  given = leaves(config)
  for key, value in sorted(given.items()):
    if key not in known:
      raise UserError(unknown_name("config key", key, known))
    if isinstance(value, float) and not math.isfinite(value):
      raise UserError(f"config.{key} must be a finite number, not {value}.")
  for key in sorted(known - given.keys()):
    raise UserError(f"The config has no {key}; start from base.get_config().")


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
  """A sentence that suggests the nearest known name."""
  near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.4)
  hint = f" Did you mean {near[0]!r}?" if near else ""
  return f"Unknown {what} {name!r}.{hint}"
