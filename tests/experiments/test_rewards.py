"""Rewards of the configuration in runs of the real command."""

import json

import pytest

from experiments.configs import base
from experiments.named import public_functions
from experiments.rewards import reward_functions, reward_weights
from grpo_jax.errors import UserError
from grpo_jax.reporting.sinks import read_metrics, read_samples
from grpo_jax.rewards import functions, scores
from tests import toy_task
from tests.experiments.conftest import QUICKSTART, ROOT, TINY
from tests.worker_processes import worker_processes

ONE_STEP = (QUICKSTART, *TINY, "--config.run.steps=1")


@pytest.fixture(autouse=True)
def _nothing_told_yet():
  functions._log_first.cache_clear()


def test_a_users_reward_that_fails_at_times(call, tmp_path, caplog):
  code, error = call(
    *ONE_STEP,
    "--config.task.name=tests.toy_task:make_task",
    "--config.recipe.name=grpo",
    "--config.warm_start.max_steps=0",
    "--config.reward.functions=charset(), tests.toy_task:mood(raises_on=3)",
    "--config.reward.weights="
    "correctness=1.0, format=0.1, charset=0.0, mood=0.01",
    f"--workdir={tmp_path}",
  )
  assert code == 0, error
  assert caplog.text.count("ValueError: no 3") == 1
  assert "excluded/mood/raised" in caplog.text
  before, after = read_metrics(tmp_path / "metrics.jsonl")
  for reason in ("raised", "not_finite", "none"):
    assert 0 < after[f"excluded/mood/{reason}"] < 0.5
    assert before[f"eval/excluded/mood/{reason}"] >= 0
    assert after[f"excluded/task/{reason}"] == 0
  assert after["excluded/completions"] == 0
  assert after["rewards/charset/mean"] == 1
  assert after["rewards/mood/mean"] > 1
  summary = json.loads((tmp_path / "results.json").read_text())["after"]
  assert "excluded/mood/raised" in summary
  rows = read_samples(tmp_path / "samples.jsonl.gz")
  told = {row["rewards"]["mood"] for row in rows if row["step"] == 1}
  assert None in told and len(told) > 1


def test_a_verifier_in_a_run(call, tmp_path, monkeypatch):
  pytest.importorskip("math_verify")
  task = "--config.task.name=tests.toy_task:make_verified_task"
  seen = []
  original = toy_task.verify_all

  def watched(*arguments):
    verdicts = original(*arguments)
    seen.append(len(worker_processes()))
    return verdicts

  monkeypatch.setattr("tests.toy_task.verify_all", watched)
  arguments = (
    *ONE_STEP,
    task,
    "--config.recipe.name=grpo",
    "--config.reward.weights=correctness=1.0",
  )
  code, error = call(*arguments, f"--workdir={tmp_path}")
  assert code == 0, error
  assert max(seen) == 2 and not worker_processes()  # a nursery and one worker
  before, after = read_metrics(tmp_path / "metrics.jsonl")
  right, wrong = after["verifier/correct"], after["verifier/wrong"]
  assert min(right, wrong) > 0 and right + wrong == pytest.approx(1)
  assert after["rewards/correctness/mean"] == pytest.approx(right)
  assert before["eval/verifier/correct"] == pytest.approx(before["eval/pass@1"])
  outcomes = {r["outcome"] for r in read_samples(tmp_path / "samples.jsonl.gz")}
  assert outcomes == {"correct", "wrong"}


def test_no_process_is_left_by_a_run_that_fails(call, tmp_path, monkeypatch):
  pytest.importorskip("math_verify")

  def fail(*_):
    assert (
      worker_processes()
    )  # the evaluation before the training has started them
    raise RuntimeError("no room for metrics")

  monkeypatch.setattr("grpo_jax.training.loop.evaluation_metrics", fail)
  with pytest.raises(RuntimeError, match="no room"):
    call(
      *ONE_STEP,
      "--config.task.name=tests.toy_task:make_verified_task",
      "--config.reward.weights=correctness=1.0",
      f"--workdir={tmp_path}",
    )
  assert not worker_processes()


def _functions(task, functions="", **weights):
  config = base.get_config()
  config.reward.functions = functions
  return reward_functions(config, task, weights)


def test_functions_are_bound_with_what_they_take():
  task = toy_task.make_task()
  named = "length(target_tokens=2), thinking_format()"
  found = _functions(
    task, named, correctness=1.0, format=1.0, length=0.1, thinking_format=0.0
  )
  assert [name for name, _ in found] == ["task", "length", "thinking_format"]
  given = [function(task.train[0], "<think>1</think>") for _, function in found]
  assert given[1:] == [{"length": -1.0}, {"thinking_format": 0.0}]


def test_a_weight_that_is_given_twice_is_refused():
  c = base.get_config()
  c.reward.weights = "correctness=1.0, format=0.1, correctness=0.5"
  with pytest.raises(UserError, match="given twice"):
    reward_weights(c)


def test_a_task_without_correctness_is_refused():
  task = toy_task.make_task()._replace(reward_fn=lambda e, c: {"format": 1.0})
  with pytest.raises(ValueError, match="correctness"):
    _functions(task, format=1.0)


def test_what_does_not_apply_at_first_may_apply_later():
  task = toy_task.make_task()
  task = task._replace(train=task.train[:1])
  quiet = task._replace(reward_fn=lambda example, completion: None)
  assert _functions(quiet, correctness=1.0, anything=2.0)
  with pytest.raises(ValueError, match="anything"):
    _functions(task, correctness=1.0, format=0.0, anything=2.0)
  assert _functions(task, correctness=1.0, format=0.0, anything=0.0)


@pytest.mark.parametrize("outcomes", [["right", "wrong"], ["wrong"]])
def test_a_verifier_must_give_outcomes(outcomes):
  task = toy_task.make_task()._replace(
    reward_fn=None, verify=lambda examples, completions: outcomes
  )
  with pytest.raises(ValueError, match="Outcome for each"):
    _functions(task, correctness=1.0)


def test_the_readme_tells_every_function():
  readme = (ROOT / "README.md").read_text()
  for name in public_functions(scores):
    assert f"| `{name}` |" in readme, name
