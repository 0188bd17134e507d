"""Checkpoints of a run: device state and host state, saved as one."""

import contextlib
import logging
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from grpo_jax.errors import UserError
from grpo_jax.types import Rollouts, TrainState

_log = logging.getLogger(__name__)


class Checkpoints(contextlib.AbstractContextManager):
  """The newest few checkpoints of a run.

  A checkpoint appears under its final name only when it is complete, so a run
  may be killed at any moment.
  """

  def __init__(self, directory: Path, *, keep: int):
    """Opens a folder of checkpoints, and makes it if need be.

    Args:
      directory: of the checkpoints.
      keep: how many of the newest to keep.
    """
    self._directory = directory.absolute()
    self._damaged = self._directory.with_name(f"{directory.name}.damaged")
    self._keep = keep
    self._manager = self._open()

  def _open(self) -> ocp.CheckpointManager:
    # Not by Orbax, which does so later and in a thread: it would take a save
    # of the same step that has begun since.
    for unfinished in self._directory.glob("*.orbax-checkpoint-tmp*"):
      shutil.rmtree(unfinished, ignore_errors=True)
    return ocp.CheckpointManager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=self._keep,
        enable_async_checkpointing=False,
      ),
      item_handlers={
        "state": ocp.StandardCheckpointHandler(),
        "host": ocp.JsonCheckpointHandler(),
      },
    )

  def save(self, step: int, state: TrainState, host: dict[str, Any]) -> bool:
    """Saves a checkpoint; a failure costs that checkpoint, not the run.

    Args:
      step: its name; one that exists already is left as it is.
      state: device state.
      host: JSON data.

    Returns:
      Whether the checkpoint exists now.
    """
    if step in self._manager.all_steps():
      return True
    try:
      self._manager.save(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardSave(_as_dict(state)),
          host=ocp.args.JsonSave(host),
        ),
      )
    except Exception as error:  # a full disk shows in many ways down there
      _log.warning(
        "The checkpoint of step %d could not be saved in %s; the run goes on,"
        " and older checkpoints are as they were. Cause: %s",
        step,
        self._directory,
        _brief(error),
      )
      self._reopen()  # which frees what the attempt took
      return False
    return True

  def restore_latest(
    self, like: TrainState
  ) -> tuple[int, TrainState, dict[str, Any]] | None:
    """The newest checkpoint that can be read.

    A damaged one is moved aside, and the one before is tried.

    Args:
      like: a state of the same shapes.

    Returns:
      (step, state, host); None if there is no checkpoint.

    Raises:
      UserError: the newest checkpoint is of other shapes, or there are
        checkpoints and none can be read.
    """
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, _as_dict(like))
    step = None
    for step in self._newest_first():
      self._check_shapes(step, target)
      try:
        restored = self._manager.restore(
          step,
          args=ocp.args.Composite(
            state=ocp.args.StandardRestore(target),
            host=ocp.args.JsonRestore(),
          ),
        )
        return step, TrainState(**restored["state"]), restored["host"]
      except Exception as error:  # whatever a damaged file leads to
        aside = self._damaged / str(step)
        _log.warning(
          "The checkpoint of step %d cannot be read and was moved to %s; the"
          " one before it is tried. Cause: %s",
          step,
          aside,
          _brief(error),
        )
        shutil.rmtree(aside, ignore_errors=True)
        self._damaged.mkdir(exist_ok=True)
        shutil.move(self._directory / str(step), aside)
        self._reopen()
    if step is not None:
      raise UserError(
        f"None of the checkpoints in {self._directory} can be read; they are in"
        f" {self._damaged} now. Give the same command again to start afresh.",
        exit_code=1,
      )
    return None

  def _check_shapes(self, step: int, target: dict[str, Any]) -> None:
    """A whole checkpoint of another model is not a damaged one."""
    try:
      saved = self._manager.item_metadata(step)["state"].tree
    except Exception:  # damaged: the caller finds out
      return
    shapes = [
      sorted(
        (_path(path), tuple(leaf.shape))
        for path, leaf in jax.tree.leaves_with_path(tree)
      )
      for tree in (saved, target)
    ]
    if shapes[0] != shapes[1]:
      raise UserError(
        f"The checkpoint of step {step} in {self._directory} is of another"
        " model or optimizer: its arrays have other shapes than this"
        " configuration's. Nothing was changed; name another folder."
      )

  def _newest_first(self) -> Iterator[int]:
    while (step := self._manager.latest_step()) is not None:
      yield step

  def _reopen(self) -> None:
    # Either may fail on the disk that is full; the next save tells.
    with contextlib.suppress(Exception):
      self._manager.close()
    with contextlib.suppress(Exception):
      self._manager = self._open()

  def __exit__(self, *_) -> None:
    self._manager.close()


def _path(path) -> str:
  """Names along a path, however a saved tree spells its containers."""
  keys = (
    getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))
    for key in path
  )
  return "/".join(map(str, keys))


def _brief(error: Exception) -> str:
  """The beginning of an error that may name a path many times."""
  return textwrap.shorten(str(error) or repr(error), 160, placeholder=" ...")


def _as_dict(state: TrainState) -> dict[str, Any]:
  return {name: getattr(state, name) for name in state.__dataclass_fields__}


def rollouts_to_json(rollouts: Rollouts | None) -> dict[str, Any] | None:
  """Groups as JSON data; float32 values survive exactly."""
  if rollouts is None:
    return None
  return {
    name: {"dtype": str(value.dtype), "values": value.tolist()}
    for name, value in rollouts.items()
    if name != "memory"  # is the training state's
  }


def rollouts_from_json(data: dict[str, Any] | None) -> Rollouts | None:
  """The inverse of `rollouts_to_json`."""
  if data is None:
    return None
  return Rollouts(
    **{
      name: np.array(leaf["values"], leaf["dtype"])
      for name, leaf in data.items()
    }
  )
