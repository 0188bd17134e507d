r"""Writes what a run has trained as a folder that other programs load.

  python -m experiments.export --workdir=runs/smollm2 --output=exports/smollm2

The newest checkpoint becomes a Hugging Face folder, with the tokenizer of the
model that the run began with; adapters are merged into it. `--adapter` writes
adapters alone, as PEFT has them.
"""

import argparse
import sys
from pathlib import Path

from grpo_jax.errors import UserError


def export(folder: Path, output: Path, *, adapter: bool) -> int:
  """Writes the newest checkpoint of a run.

  Args:
    folder: of the run.
    output: to be made.
    adapter: whether only the adapters are written.

  Returns:
    The checkpoint's step.

  Raises:
    UserError: there is no run or checkpoint, another process has the run, it
      trained no adapters, or the output cannot be made.
  """
  from experiments import build, model, workdir
  from grpo_jax.models.peft import save_adapter
  from grpo_jax.training.loop import checkpoints_of, initial_state
  from grpo_jax.training.setup import policy_params

  config = workdir.recorded(folder)
  with workdir.owned(folder, config, allow_change=False):
    parts = build.build(config)
    if adapter and parts.lora is None:
      raise UserError(
        f"The run in {folder} trained all parameters: leave --adapter out."
      )
    setup = build.prepare(config, parts, stop_requested=lambda: False)
    with checkpoints_of(folder) as checkpoints:
      restored = checkpoints.restore_latest(initial_state(setup))
    if restored is None:
      raise UserError(f"{folder} has no checkpoint that can be read.")
    step, state, _ = restored
    if adapter:
      base = model.checkpoint_path(config) or str(folder)
      save_adapter(output, parts.model, state.params, parts.lora, base=base)
    else:
      params = policy_params(setup, state.params)
      model.save(output, config, parts.model, params, parts.task.tokenizer)
  return step


def main(arguments: list[str]) -> int:
  """Exports, or says what is wrong; gives the exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m experiments.export", description=__doc__.splitlines()[0]
  )
  parser.add_argument("--workdir", type=Path, required=True)
  parser.add_argument("--output", type=Path, required=True)
  parser.add_argument("--adapter", action="store_true")
  given = parser.parse_args(arguments)
  try:
    step = export(given.workdir, given.output, adapter=given.adapter)
  except UserError as error:
    print(f"Error: {error}", file=sys.stderr)
    return error.exit_code
  print(f"Step {step} of {given.workdir} is in {given.output}.")
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
