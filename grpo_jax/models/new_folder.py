"""Folders that appear when they are complete, or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grpo_jax.errors import UserError


@contextlib.contextmanager
def new_folder(folder: Path, *, what: str) -> Iterator[Path]:
  """Gives a folder to be filled, which then takes the name of `folder`.

  Args:
    folder: to be made; an empty one may be there.
    what: it will hold, for errors: "The model".

  Raises:
    UserError: it cannot be made, or what is written in it cannot.
  """
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(
      tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)
    )
    try:
      yield unfinished
      unfinished.chmod(0o755)  # mkdtemp's are private
      os.replace(unfinished, folder)
    except BaseException:
      shutil.rmtree(unfinished, ignore_errors=True)
      raise
  except OSError as error:
    raise UserError(
      f"{what} could not be saved as {folder}: {error.strerror}.", exit_code=1
    ) from error
