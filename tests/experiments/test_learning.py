"""Every recipe trains the quickstart's task, and gets better at it."""

import json

import pytest

from tests import every_recipe

CONFIG = "--config=experiments/configs/recipes.py"
# Imitation of what was sampled, right or wrong, is not meant to improve.
NAMES = [name for name in every_recipe.NAMES if name != "supervised"]
# Rollout batches until it shows; a critic has to learn first.
STEPS = {"ppo": 40, "vapo": 24}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, call, tmp_path):
  code, error = call(f"{CONFIG}:{name}-smoke", f"--workdir={tmp_path}")
  assert code == 0, error
  rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
  assert len(rows) == 5
  assert all(json.loads(row)["update_skipped"] == 0 for row in rows[1:])


@pytest.mark.learning
@pytest.mark.parametrize("name", NAMES)
def test_it_improves_significantly(name, environment, run, tmp_path):
  """The 95 % interval of the paired difference lies above zero."""
  environment.pop("XLA_FLAGS")  # computing takes longer than compiling here
  code, output = run(
    f"{CONFIG}:{name}",
    f"--workdir={tmp_path}",
    f"--config.run.steps={STEPS.get(name, 12)}",
    "--config.evaluation.every_steps=0",
  )
  assert code == 0, output
  results = json.loads((tmp_path / "results.json").read_text())
  assert results["difference"]["low"] > 0


@pytest.mark.learning
def test_ppos_critic_explains_its_returns(environment, run, tmp_path):
  """As implementations measure it; the reward alone is harder to foresee."""
  environment.pop("XLA_FLAGS")
  code, output = run(f"{CONFIG}:ppo", f"--workdir={tmp_path}")
  assert code == 0, output
  rows = (tmp_path / "metrics.jsonl").read_text().splitlines()[-5:]
  for name, least in (("", 0.3), ("_of_reward", 0.1)):
    explained = [
      json.loads(row)[f"value/explained_variance{name}"] for row in rows
    ]
    assert sum(explained) / len(explained) > least, name
