r"""A tiny model learns to do its sums, on a laptop.

  python -m experiments.run --config=experiments/configs/quickstart.py \
    --workdir=runs/quickstart

Hardware: 2 CPU cores, 3 minutes, 1.3 GB. Expected: pass@1 on 256 held-out
problems from 0.35 - 0.41 to 0.80 - 0.86 (three seeds). `quickstart.py:smoke` is
the same run cut down to the minute that a test of the installation may take; it
learns nothing to speak of.
"""

from ml_collections import ConfigDict

from experiments.configs import base


def get_config(size: str = "full") -> ConfigDict:
  """The base config, or its `smoke` version."""
  c = base.get_config()
  if size == "smoke":
    c.task.train_size = 512
    c.task.test_size = 32
    c.warm_start.max_steps = 60
    c.warm_start.probe_every_steps = 30
    c.sampling.prompts_per_step = 8
    c.sampling.group_size = 8
    c.sampling.max_rounds = 2
    c.optimizer.minibatches = 2
    c.evaluation.args = "samples=4"
    c.evaluation.every_steps = 2
    c.run.steps = 4
    c.run.checkpoint_every_steps = 2
  elif size != "full":
    raise ValueError(f"quickstart.py has `full` and `smoke`, not {size!r}.")
  return c
