"""Published models, from wherever they lie: one entry point."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from jax.sharding import Sharding

from grpo_jax.errors import UserError
from grpo_jax.models import gguf, huggingface
from grpo_jax.models.config import ModelConfig

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_WEIGHTS = ("*.safetensors", "*.json")
_TOKENIZER = ("*.json", "*.jinja")


class _Source(NamedTuple):
  """A model's place, and how its format is read."""

  place: Path
  read_config: Callable[[Path], ModelConfig]
  load: Callable[..., dict]


def read_config(
  path: str | Path,
  *,
  dtype: Literal["float32", "bfloat16"] | None = None,
  param_dtype: Literal["float32", "bfloat16"] | None = None,
  scan_layers: bool = False,
  remat: Literal["none", "dots", "full"] = "none",
  attention: Literal["auto", "xla", "cudnn"] = "auto",
) -> ModelConfig:
  """The configuration of a model, without its weights.

  Args:
    path: as in `load_pretrained`.
    dtype: as in `ModelConfig`; None for the one that the model was saved in.
    param_dtype: as in `ModelConfig`; None likewise.
    scan_layers: as in `ModelConfig`.
    remat: as in `ModelConfig`.
    attention: as in `ModelConfig`.

  Raises:
    UserError: there is no model, or none that is supported.
  """
  source = _source(path, files=(huggingface.CONFIG,))
  config = source.read_config(source.place)
  return dataclasses.replace(
    config,
    dtype=dtype or config.dtype,
    param_dtype=param_dtype or config.param_dtype,
    scan_layers=scan_layers,
    remat=remat,
    attention=attention,
  )


def load_pretrained(
  path: str | Path,
  *,
  dtype: Literal["float32", "bfloat16"] | None = None,
  param_dtype: Literal["float32", "bfloat16"] | None = None,
  scan_layers: bool = False,
  remat: Literal["none", "dots", "full"] = "none",
  attention: Literal["auto", "xla", "cudnn"] = "auto",
  shardings: Sharding | dict | None = None,
) -> tuple[ModelConfig, dict]:
  """A model with its weights.

  Args:
    path: a Hugging Face folder, a file that ends in .gguf, or, if there is
      neither, a name on the Hugging Face hub: owner/model.
    dtype: as in `ModelConfig`; None for the one that the model was saved in.
    param_dtype: as in `ModelConfig`, which the weights are converted to; None
      likewise.
    scan_layers: as in `ModelConfig`.
    remat: as in `ModelConfig`.
    attention: as in `ModelConfig`.
    shardings: of all parameters, or a tree like `init_params`'s with one for
      each; None for the first device.

  Returns:
    Its configuration, and parameters as `init_params` would give them.

  Raises:
    UserError: there is no model, it is not supported, or its files are
      damaged or do not fit together.
  """
  place = _source(path, files=_WEIGHTS).place
  config = read_config(
    place,
    dtype=dtype,
    param_dtype=param_dtype,
    scan_layers=scan_layers,
    remat=remat,
    attention=attention,
  )
  return config, load_params(place, config, shardings=shardings)


def load_params(
  path: str | Path,
  config: ModelConfig,
  *,
  shardings: Sharding | dict | None = None,
) -> dict:
  """The weights of a model whose configuration is known.

  Args:
    path: as in `load_pretrained`.
    config: from `read_config`.
    shardings: as in `load_pretrained`.

  Raises:
    UserError: as in `load_pretrained`.
  """
  source = _source(path, files=_WEIGHTS)
  return source.load(source.place, config, shardings=shardings)


def tokenizer_path(path: str | Path) -> Path:
  """The folder or GGUF file that holds a model's tokenizer.

  Args:
    path: as in `load_pretrained`; what a hub's name stands for is fetched.

  Raises:
    UserError: there is no such model.
  """
  return _source(path, files=_TOKENIZER).place


def _source(path: str | Path, *, files: tuple[str, ...]) -> _Source:
  place = Path(path).expanduser()
  if place.is_file() and place.suffix == ".gguf":
    return _Source(place, gguf.read_config, gguf.load)
  if not place.exists() and _HUB_NAME.fullmatch(str(path)):
    place = _download(str(path), files)
  if (place / huggingface.CONFIG).is_file():
    return _Source(place, huggingface.read_config, huggingface.load)
  if place.is_dir():
    found = ", ".join(str(file) for file in sorted(place.glob("*.gguf")))
    hint = f" Name the file itself: {found}." if found else ""
    raise UserError(f"{place} has no {huggingface.CONFIG}.{hint}")
  raise UserError(
    f"There is no model {str(path)!r}: it is neither a folder, nor a file that"
    " ends in .gguf, nor a name on the Hugging Face hub such as"
    " HuggingFaceTB/SmolLM2-135M-Instruct."
  )


def _download(name: str, files: tuple[str, ...]) -> Path:
  """A folder of the hub's cache with some files of a model."""
  try:
    import huggingface_hub
  except ImportError as error:
    raise UserError(
      f"There is no folder {name!r}, and to fetch the model of that name from"
      " the Hugging Face hub the package huggingface_hub is needed:"
      " pip install 'grpo_jax[hf]'."
    ) from error
  try:
    return Path(huggingface_hub.snapshot_download(name, allow_patterns=files))
  except Exception as error:  # of HTTP, of names, of the network, of the disk
    raise UserError(
      f"There is no folder {name!r}, and the model of that name could not be"
      " fetched from the Hugging Face hub. Without a connection, fetch it"
      f" elsewhere and name its folder. Cause: {error}",
      exit_code=1,
    ) from error
