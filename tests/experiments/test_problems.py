"""The problems that a config names, and how held-out ones are sampled."""

import logging

import pytest

from experiments import build, conventions, options, problems
from experiments.configs import base, smollm2
from grpo_jax.data.example import Example
from grpo_jax.errors import UserError
from tests.published import Publisher, gsm8k_row
from tests.toy_task import make_task


@pytest.mark.parametrize(
  "name, told",
  [
    ("plain", (8, 1.0, 1.0, 0)),
    ("greedy", (1, 0.0, 1.0, 0)),
    ("dapo", (32, 1.0, 0.7, 0)),
    ("r1", (64, 0.6, 0.95, 0)),
    ("qwen3", (64, 0.6, 0.95, 20)),
  ],
)
def test_conventions_are_the_published_ones(name, told):
  c = getattr(conventions, name)()
  assert (c.samples, c.temperature, c.top_p, c.top_k) == told


@pytest.mark.parametrize("name, samples", [("plain", 8), ("dapo", 32)])
def test_a_name_alone_has_the_published_number_of_samples(name, samples):
  c = base.get_config()
  c.evaluation.name = name
  assert options.evaluation_convention(c).samples == samples


def test_greedy_samples_of_a_problem_would_all_be_one():
  with pytest.raises(ValueError, match="one sample"):
    conventions.greedy(samples=4)


@pytest.fixture
def config(tmp_path, monkeypatch, checkpoint):
  """GSM8K and MATH to train on, AIME and GSM8K held out, from a folder."""
  pytest.importorskip("math_verify")
  publisher = Publisher(tmp_path, monkeypatch)
  long = "Count the sheep of all the farms of the county, one by one. " * 20
  rows = [gsm8k_row(f"What is {i}?", i) for i in range(8)]
  publisher.publish("gsm8k", "train", [*rows, gsm8k_row(long, 1)])
  publisher.publish("gsm8k", "test", [gsm8k_row("what  is 3?", 3)])
  maths = [
    {"problem": f"Find ${i}$.", "answer": str(i), "level": 2} for i in range(4)
  ]
  publisher.publish("math_train", "train", maths)
  publisher.publish(
    "aime25", "test", [{"problem": "Find $x$.", "answer": "007"}]
  )
  c = smollm2.get_config("gsm8k")
  c.model.path = str(checkpoint)
  c.run.cache_dir = str(tmp_path / "cache")
  c.data.manual_dir = str(publisher.manual_dir)
  c.task.args = "train={'gsm8k': 1, 'math_train': 2}, test=['aime25', 'gsm8k']"
  c.sampling.max_prompt_tokens = 400
  c.evaluation.name, c.evaluation.args = "qwen3", "samples=2"
  return c


def test_sets_are_mixed_to_train_on_and_apart_held_out(config, caplog):
  with caplog.at_level(logging.INFO):
    parts = build.build(config)
  task = parts.task
  assert [task.set_of(e) for e in task.test] == ["aime25", "gsm8k"]
  # Of nine, one is held out and one too long.
  assert [task.set_of(e) for e in task.train].count("gsm8k") == 7
  assert parts.too_long == 1
  assert caplog.text.count("1 of 12 training problems are left out") == 1
  order = problems.prompt_order(task, seed=0)
  drawn = [task.set_of(task.train[order[i]]) for i in range(30)]
  assert drawn.count("gsm8k") == 10
  assert task.label(task.train[-1]) == "math_train level=2"
  sampled = parts.evaluation
  assert (sampled.temperature, sampled.top_p, sampled.top_k) == (0.6, 0.95, 20)
  assert parts.evaluation_samples == 2
  assert (parts.sampling.top_p, parts.sampling.top_k) == (1.0, 0)


def test_votes_are_for_answers_however_written(config):
  task = build.build(config).task
  example = task.test[0]
  keys = [
    task.answer_key(example, text)
    for text in ("Answer: 1,000", r"\boxed{1000}", "Answer: 7", "I give up.")
  ]
  assert keys[0] == keys[1] != keys[2] is not None and keys[3] is None
  # The vote knows nothing of the reference.
  other = Example(example.question, "1000", example.info)
  assert task.answer_key(other, "Answer: 7") == keys[2]


@pytest.mark.parametrize(
  "args, message",
  [
    ("train={'gsm8k': 0}, test='gsm8k'", r"config\.task: .*weight of gsm8k"),
    ("train=['gsm8k'], test='gsm8k'", "weights of sets"),
    ("train='gsm9k', test='gsm8k'", "no set 'gsm9k'"),
    ("train='gsm8k', test=['aime25', 'math_train']", "no split 'test'"),
  ],
)
def test_wrong_sets_are_told(config, args, message):
  config.task.args = args
  with pytest.raises(UserError, match=message):
    build.build(config)


def test_held_out_problems_that_are_too_long_are_an_error():
  task = make_task()
  with pytest.raises(ValueError, match="more than max_prompt_tokens = 3"):
    problems.without_long_prompts(task, 3)
  longer = [Example("11+22+33=", "66", {"first": 1}), *task.train]
  kept = problems.without_long_prompts(task._replace(train=longer), 5)
  assert kept.train == task.train and kept.test == task.test


def test_without_a_mixture_the_stream_is_one_shuffle():
  task = make_task()
  order = problems.prompt_order(task, seed=1)
  assert sorted(order[i] for i in range(12)) == list(range(12))
  with pytest.raises(ValueError, match="must tell the sets"):
    problems.prompt_order(task._replace(mixture={"a": 1}), seed=1)
