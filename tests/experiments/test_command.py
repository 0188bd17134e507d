"""What a wrong call is told: one paragraph, exit code 2, no traceback."""

import errno
import fcntl
import json

import pytest

from experiments.configs import quickstart
from tests.experiments.conftest import QUICKSTART, TINY

_SHAPE = "width=8, layers=1, heads={}, kv_heads=2, head_dim=2, mlp_width=8"


def _refused(result, *words):
  code, output = result
  assert code == 2, output
  assert "Traceback" not in output
  assert "Error:" in output
  flat = " ".join(output.split())
  for word in words:
    assert word in flat, output


@pytest.mark.parametrize(
  "arguments, words",
  [
    ([], ["--config is missing", "quickstart.py"]),
    ([QUICKSTART], ["--workdir is missing"]),
    (["--config=nope.py"], ["nope.py", "does not exist"]),
    (["--config=experiments/configs/quickstart.py:tiny"], ["'tiny'", "smoke"]),
    ([QUICKSTART, "--config.recipe.nam=x"], ["'nam'", "Did you mean 'name'"]),
    ([QUICKSTART, "--config.run.steps=x"], ["run.steps", "'x'"]),
    ([QUICKSTART, "--wrkdir=x"], ["wrkdir", "workdir"]),
    ([QUICKSTART, "extra"], ["'extra'"]),
  ],
)
def test_wrong_flags(call, tmp_path, arguments, words):
  workdir = [] if "is missing" in words[0] else [f"--workdir={tmp_path}"]
  _refused(call(*arguments, *workdir), *words)


@pytest.mark.parametrize(
  "argument, words",
  [
    ("recipe.name=dappo", ["Unknown recipe 'dappo'", "'dapo'"]),
    ("recipe.name=no.such:thing", ["config.recipe.name", "no"]),
    ("recipe.args=eps_hihg=0.3", ["eps_hihg", "'eps_high'"]),
    ("recipe.args=0.3", ["key=value"]),
    ("recipe.args=overlong_buffer=999", ["overlong_buffer", "64"]),
    ("optimizer.minibatches=3", ["minibatches = 3", "1, 2, 4, 8"]),
    ("optimizer.microbatches=5", ["microbatches = 5", "1, 2, 4, 8"]),
    (
      "optimizer.completions_per_row=3",
      ["completions_per_row = 3", "1, 2, 4, 8"],
    ),
    ("optimizer.learning_rate=-1.0", ["config.optimizer", "learning_rate"]),
    ("sampling.temperature=0.0", ["config.sampling", "temperature"]),
    ("evaluation.args=top_p=0.0", ["config.evaluation", "top_p"]),
    ("evaluation.args=samples=0", ["config.evaluation", "between 1"]),
    ("evaluation.name=dappo", ["Unknown evaluation 'dappo'", "'dapo'"]),
    ("sampling.curriculum=low=0.5, high=0.1, skip=0.5", ["low and high"]),
    ("sampling.curriculum=low=0.1, high=0.9, skip=1.0", ["skip"]),
    ("sampling.curriculum=low=0.1", ["config.sampling.curriculum", "high"]),
    ("sampling.max_prompt_tokens=2", ["has 4 tokens, more than"]),
    ("data.manual_dir=x", ["data.manual_dir", "takes no files"]),
    ("model.shape=" + _SHAPE.format(3), ["model.heads (3)", "kv_heads (2)"]),
    ("task.test_size=5000", ["different questions"]),
    ("task.args=max_terms=1", ["config.task"]),
    ("task.args=train_size=9", ["train_size"]),
    ("reward.weights=format=1e999", ["reward", "format must be a finite"]),
    ("reward.weights=format='x'", ["reward", "format must be a finite"]),
    ("evaluation.args=samples=1001", ["config.evaluation", "maj@k"]),
    ("reward.weights=1.0", ["config.reward.weights", "key=value"]),
    ("reward.weights=", ["config.reward", "there must be one"]),
    ("reward.weights=correctness=1.0", ["['format']", "weight of 0"]),
    (
      "reward.weights=correctness=1.0, formt=0.1",
      ["config.reward", "'formt'", "'format'"],
    ),
    ("reward.functions=lenght(target_tokens=9)", ["'lenght'", "'length'"]),
    ("reward.functions=length()", ["'length'", "target_tokens"]),
    ("reward.functions=length(tokens=9)", ["'tokens'", "'target_tokens'"]),
    ("reward.functions=length", ["'length' is no name(key=value)"]),
    ("reward.functions=a()][charset()", ["brackets do not match"]),
    ("reward.functions=a()] + _[b()", ["brackets do not match"]),
    ("reward.functions=charset()", ["['charset']", "weight of 0"]),
    ("reward.functions=charset(name='asci')", ["'charset' raised", "asci"]),
    ("reward.functions=no.such:thing()", ["config.reward", "'no.such'"]),
    ("reward.functions=tests.toy_task:at_once()", ["'at_once'", "boom"]),
    ("reward.functions=tests.toy_task:number()", ["'number'", "a dict"]),
    ("reward.functions=tests.toy_task:make_task()", ["'make_task'"]),
    ("reward.functions=tests.toy_task:again()", ["'again'", "['format']"]),
    ("optimizer.minibatches=0", ["minibatches", "at least 1"]),
    ("recipe.args=length_budget=3", ["length_budget"]),
    ("recipe.args=eps_high='x'", ["config.recipe"]),
    ("recipe.name=grppo", ["'grpo'", "module:function"]),
    ("recipe.name=../my/file.py:f", ["cannot be imported", "PYTHONPATH"]),
    ("recipe.name=tests.toy_task:_example", ["_example", "length_budget"]),
    ("recipe.pieces=kl_cof()", ["'kl_cov'"]),
    ("recipe.pieces=kl_cov", ["'kl_cov' is no name(key=value)"]),
    ("recipe.pieces=kl_cov(fractoin=1)", ["'fraction'"]),
    ("recipe.pieces=kl_cov(coefficient='x')", ["config.recipe"]),
    ("recipe.pieces=entropy_bonus()", ["coefficient"]),
    ("recipe.pieces=__import__('os')", ["key=value"]),
    ("model.shape=" + _SHAPE.format(0), ["model.heads"]),
    ("model.shape=" + _SHAPE.format(2)[9:], ["config.model.shape", "width"]),
    ("model.shape=widht=3", ["'widht'", "'width'"]),
    ("model.remat=some", ["model.remat", "none, dots, full"]),
    ("model.param_dtype=float16", ["model.param_dtype", "bfloat16"]),
    ("model.lora=rank=0, alpha=1.0", ["config.model", "rank"]),
    ("model.lora=rank=2, alpha=1.0, targets=('q',)", ["'q'", "query"]),
    ("model.path=no/such/folder", ["no/such/folder"]),
    ("seed=5000000000", ["config.seed"]),
    ("task.train_size=0", ["train_size"]),
    ("warm_start.row_tokens=6", ["row_tokens"]),
  ],
)
def test_values_out_of_range(call, tmp_path, argument, words):
  task = ["--config.task.args=max_terms=2", "--config.task.train_size=8"]
  if argument.startswith("task.args"):
    task = task[1:]
  result = call(
    QUICKSTART, f"--workdir={tmp_path}", *task, f"--config.{argument}"
  )
  _refused(result, *words)


def test_an_unwritable_workdir(call, tmp_path):
  (tmp_path / "file").write_text("")
  _refused(call(QUICKSTART, f"--workdir={tmp_path}/file/x"), "written to")


def test_a_folder_in_use_is_refused(call, tmp_path):
  with (tmp_path / ".lock").open("w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    _refused(call(QUICKSTART, f"--workdir={tmp_path}"), "Another process")


def test_a_full_disk_is_told_without_a_traceback(call, tmp_path, monkeypatch):
  def full(config):
    raise OSError(errno.ENOSPC, "No space left on device", "some/file")

  monkeypatch.setattr("experiments.build.build", full)
  code, output = call(QUICKSTART, f"--workdir={tmp_path}")
  assert code == 1
  assert "No space left on device: some/file" in " ".join(output.split())
  assert "Traceback" not in output


def test_another_configuration_is_refused_with_the_difference(call, tmp_path):
  (tmp_path / "config.json").write_text(
    json.dumps({"seed": 3, "old": {"key": 1}})
  )
  _refused(
    call(QUICKSTART, f"--workdir={tmp_path}"),
    "seed: 3 -> 0",
    "old.key: 1 -> absent",
    "Name another folder",
  )
  (tmp_path / "config.json").write_text("{")
  _refused(call(QUICKSTART, f"--workdir={tmp_path}"), "damaged")


def test_a_refused_configuration_does_not_claim_the_folder(call, tmp_path):
  wrong = "--config.optimizer.minibatches=3"
  _refused(call(QUICKSTART, wrong, f"--workdir={tmp_path}"), "minibatches")
  assert not (tmp_path / "config.json").exists()


def test_some_values_cannot_change_in_a_run(call, tmp_path):
  saved = quickstart.get_config("smoke")
  saved.sampling.group_size = 4
  saved.run.steps = 9
  (tmp_path / "config.json").write_text(saved.to_json())
  result = call(QUICKSTART, "--allow_config_change", f"--workdir={tmp_path}")
  _refused(result, "sampling.group_size: 4 -> 8", "cannot go on")
  assert "run.steps" not in result[1]


def test_a_key_that_nothing_reads_is_refused(call, tmp_path):
  config = tmp_path / "mine.py"
  config.write_text(
    "from experiments.configs import base\n\n\n"
    "def get_config():\n"
    "  c = base.get_config()\n"
    "  c.optimizer.learning_rat = 1e-3\n"
    "  return c\n"
  )
  _refused(
    call(f"--config={config}", f"--workdir={tmp_path}/run"),
    "'optimizer.learning_rat'",
    "'optimizer.learning_rate'",
  )


def test_a_prompt_that_does_not_fit(call, tmp_path):
  _refused(
    call(
      QUICKSTART,
      *TINY,
      f"--workdir={tmp_path}",
      "--config.sampling.max_prompt_tokens=4",
    ),
    "max_prompt_tokens = 4",
  )
