"""Trains, evaluates and reports: the one command.

  python -m experiments.run --config=experiments/configs/quickstart.py \
    --workdir=runs/quickstart

The same command continues a run that was stopped. Any value of the config can
be set, as in `--config.recipe.name=grpo` or `--config.run.steps=100`.
"""

import contextlib
import errno
import logging
import re
import sys
import textwrap
import time
from pathlib import Path

from absl import app, flags
from ml_collections import ConfigDict, config_flags

from grpo_jax.errors import UserError

_CONFIG = config_flags.DEFINE_config_file(
  "config", None, "File with get_config(), or file:argument."
)
_WORKDIR = flags.DEFINE_string(
  "workdir", None, "Folder for everything that the run writes."
)
_NEW_CONFIG = flags.DEFINE_bool(
  "allow_config_change",
  False,
  "Continue a run in workdir under a configuration that differs from its own.",
)
_LIST_RECIPES = flags.DEFINE_bool(
  "list_recipes", False, "Print the algorithms and what they are made of."
)

# The disk or its rights, not the program, are at fault.
_PLACE_ERRORS = (
  errno.ENOSPC,
  errno.EDQUOT,
  errno.EROFS,
  errno.EACCES,
  errno.ENOTDIR,
)

_log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
  """Runs the command.

  Args:
    argv: of the process.

  Returns:
    The exit code: 0 for a run that ended or was stopped and saved, 1 for one
    that cannot go on, 2 for a wrong call.
  """
  logging.basicConfig(format="%(message)s", level=logging.INFO)
  # Their remarks on every save and build are not for the reader of a run, and
  # the errors they log are raised as well.
  for name in ("absl", "orbax", "matplotlib", "grain"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
  try:
    rest = _parse_flags(argv)
    if _LIST_RECIPES.value:
      return _list_recipes()
    return _run(*_check_flags(rest))
  except UserError as error:
    _print_error(str(error))
    return error.exit_code
  except OSError as error:
    if error.errno not in _PLACE_ERRORS:
      raise
    _print_error(
      f"{error.strerror}: {error.filename or 'a file'}. What the last"
      " checkpoint holds is kept; mend this and give the same command again."
    )
    return 1
  except KeyboardInterrupt:
    print("Stopped at once, without saving.", file=sys.stderr)
    return 130


def _print_error(message: str) -> None:
  # Flags and paths stay whole, so that they can be copied.
  paragraph = textwrap.fill(
    f"Error: {message}", 80, break_long_words=False, break_on_hyphens=False
  )
  print(paragraph, file=sys.stderr)


def _parse_flags(argv: list[str]) -> list[str]:
  app.define_help_flags()
  try:
    return flags.FLAGS(argv)
  except (
    flags.Error,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
  ) as error:
    raise UserError(_flag_error(str(error))) from error
  except OSError as error:
    raise UserError(f"--config: {error}.") from error


def _check_flags(rest: list[str]) -> tuple[ConfigDict, Path]:
  if rest[1:]:
    raise UserError(f"Unknown argument {rest[1]!r}; flags start with --.")
  if _CONFIG.value is None:
    raise UserError(
      "--config is missing; try --config=experiments/configs/quickstart.py."
    )
  if not _WORKDIR.value:
    raise UserError(
      "--workdir is missing: name a folder for everything that the run"
      " writes, such as --workdir=runs/quickstart."
    )
  if not isinstance(_CONFIG.value, ConfigDict):
    raise UserError(
      f"The config file {flags.FLAGS['config'].config_filename!r} does not"
      " exist."
    )
  return _CONFIG.value, Path(_WORKDIR.value)


def _flag_error(message: str) -> str:
  """What absl and ml_collections say, as a sentence."""
  unknown = re.search(
    r"'(\w+)\\?'.*?Did you mean \"(\w+)\"", message, re.DOTALL
  )
  if unknown:
    key, near = unknown.groups()
    return f"Unknown config key {key!r}. Did you mean {near!r}?"
  # A config file's own exception arrives as the text of its traceback.
  before, traceback, _ = message.partition("Error whilst parsing config file")
  if traceback:
    return f"{before.strip()} {message.strip().splitlines()[-1]}"
  return " ".join(message.split())


def _list_recipes() -> int:
  from experiments.recipe_table import COLUMNS, recipe_rows
  from grpo_jax.reporting.tables import text_table

  for name, paper, *rest in recipe_rows():
    print(f"{name}  {paper}")
    parts = zip(COLUMNS[2:], rest, strict=True)
    print(text_table([("", *part) for part in parts if part[1] != "-"]))
  return 0


def _run(config: ConfigDict, folder: Path) -> int:
  start = time.perf_counter()
  from grpo_jax import host  # JAX is imported after the flags were found good

  host.keep_freed_memory()
  from experiments import build, keys, workdir

  keys.check_keys(config)
  with workdir.owned(folder, config, allow_change=_NEW_CONFIG.value):
    stop_requested = host.stop_on_signals()
    parts = build.build(config)
    with contextlib.closing(parts.task):
      workdir.record(folder, config)  # only a configuration that can run
      setup = build.prepare(config, parts, stop_requested=stop_requested)
      if setup is None:
        _log.info("Stopped during the warm start; the same command continues.")
        return 0

      from grpo_jax.training.loop import train

      outcome = train(
        setup,
        folder,
        stop_requested=stop_requested,
        spent_s=time.perf_counter() - start,
      )
    return _finish(config, folder, outcome)


def _finish(config: ConfigDict, folder: Path, outcome) -> int:
  from experiments.results import write_results

  if outcome.after is not None:
    write_results(config, folder, outcome)
  if not outcome.saved:
    raise UserError(
      f"Step {outcome.step} could not be saved in {folder}/checkpoints (see"
      " the warning above). Make room and give the same command again: it"
      " continues from the newest checkpoint that is there.",
      exit_code=1,
    )
  if outcome.after is None:
    _log.info(
      "Stopped and saved at step %d of %d; the same command continues.",
      outcome.step,
      config.run.steps,
    )
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv))
