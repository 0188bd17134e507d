"""What all TFDS builders share: their names, and quiet preparation."""

import contextlib
import hashlib
import io
from typing import Any

import tensorflow_datasets as tfds


def builder_arguments(
  builder: tfds.core.GeneratorBasedBuilder,
  *,
  name: str,
  settings: str,
  data_dir: str,
) -> dict[str, Any]:
  """Of TFDS' constructor: prepared data of other settings lie elsewhere.

  Args:
    builder: whose version counts too.
    name: of the data.
    settings: all that the data depend on besides.
    data_dir: folder that TFDS keeps prepared data in.
  """
  digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
  config = tfds.core.BuilderConfig(
    name=f"{name}_{digest}", version=builder.VERSION
  )
  return {
    "config": config,
    "file_format": "array_record",
    "data_dir": data_dir,
  }


def prepare(builder: tfds.core.GeneratorBasedBuilder) -> None:
  """Downloads and writes what is not there yet, without announcing itself."""
  tfds.disable_progress_bar()
  with contextlib.redirect_stdout(io.StringIO()):
    builder.download_and_prepare()
