"""The folder of a run: one process at a time, one configuration for good."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from ml_collections import ConfigDict

from experiments.keys import leaves
from grpo_jax import host
from grpo_jax.errors import UserError

# What a run in progress can take up at its next checkpoint. The rest decides
# the shapes it has saved, or what its results are compared with.
_MAY_CHANGE = {
  "evaluation.every_steps",
  "optimizer.b2",
  "optimizer.learning_rate",
  "optimizer.max_grad_norm",
  "optimizer.microbatches",
  "optimizer.minibatches",
  "optimizer.warmup_steps",
  "optimizer.weight_decay",
  "recipe.args",
  "recipe.name",
  "run.cache_dir",
  "run.checkpoint_every_steps",
  "run.logged_prompts",
  "run.max_skipped_in_a_row",
  "run.steps",
  "sampling.curriculum",
  "sampling.max_rounds",
}


@contextlib.contextmanager
def owned(
  workdir: Path, config: ConfigDict, *, allow_change: bool
) -> Iterator[None]:
  """Holds workdir for this process, if it is free and of this configuration.

  Args:
    workdir: of the run; made if need be.
    config: of the run.
    allow_change: accepts another configuration than the run's, where a run in
      progress can take it up.

  Raises:
    UserError: another process or configuration has it, or it cannot be
      written to.
  """
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(host.locked(workdir, wait=False))
      path = workdir / "config.json"
      if path.exists():
        _compare(
          workdir, json.loads(path.read_text()), _as_json(config), allow_change
        )
    except BlockingIOError as error:
      raise UserError(
        f"Another process is running in --workdir={workdir}. Wait for it, stop"
        " it, or name another folder."
      ) from error
    except OSError as error:
      raise UserError(
        f"--workdir={workdir} cannot be written to ({error.strerror}): name"
        " another folder, or make room in it."
      ) from error
    except json.JSONDecodeError as error:
      raise UserError(
        f"{path} is damaged ({error}). Delete it if the configuration that you"
        " give now is the one that the run had."
      ) from error
    yield


def record(workdir: Path, config: ConfigDict) -> None:
  """Writes config.json: workdir is this configuration's from now on."""
  path = workdir / "config.json"
  temporary = path.with_suffix(".tmp")
  temporary.write_text(json.dumps(_as_json(config), indent=2) + "\n")
  temporary.replace(path)


def recorded(workdir: Path) -> ConfigDict:
  """The configuration of the run in workdir.

  Raises:
    UserError: there is none, or it is damaged.
  """
  path = workdir / "config.json"
  try:
    return ConfigDict(json.loads(path.read_text()))
  except OSError as error:
    raise UserError(
      f"{workdir} is no folder of a run: {path} cannot be read"
      f" ({error.strerror})."
    ) from error
  except json.JSONDecodeError as error:
    raise UserError(f"{path} is damaged: {error}.") from error


def _as_json(config: ConfigDict) -> dict:
  return json.loads(config.to_json())


def _compare(workdir: Path, old: dict, new: dict, allow_change: bool) -> None:
  """Refuses another configuration than workdir's, with the difference."""
  old, new = leaves(ConfigDict(old)), leaves(ConfigDict(new))
  changed = {
    key: f"{key}: {old.get(key, 'absent')} -> {new.get(key, 'absent')}"
    for key in sorted(old.keys() | new.keys())
    if old.get(key) != new.get(key)
  }
  fixed = [text for key, text in changed.items() if key not in _MAY_CHANGE]
  if fixed and allow_change:
    raise UserError(
      f"--allow_config_change: the run in --workdir={workdir} cannot go on with"
      f" another value (was -> is now) of {'; '.join(fixed)}. Name another"
      " folder."
    )
  if changed and not allow_change:
    advice = (
      "Name another folder."
      if fixed
      else "Name another folder, or pass --allow_config_change to continue"
      " that run under the new one."
    )
    raise UserError(
      f"--workdir={workdir} holds a run of another configuration (was -> is"
      f" now): {'; '.join(changed.values())}. {advice}"
    )
