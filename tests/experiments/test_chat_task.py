"""Prompts with solved problems, and rewards of stated answers."""

import contextlib

import pytest

from experiments.tasks import chat
from grpo_jax.data.example import Example
from grpo_jax.data.tokenizer_files import load_tokenizer
from grpo_jax.errors import UserError
from tests.experiments.conftest import ROOT
from tests.worker_processes import worker_processes

PROBLEMS = {
  "products": {"max_terms": 2, "max_digits": 1},
  "basic_arithmetic": {"max_terms": 2, "max_digits": 1},
}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
  return chat.reasoning_gym(
    tokenizer=load_tokenizer(ROOT / "tests/data/references/qwen_style"),
    data_dir=str(tmp_path_factory.mktemp("data")),
    train_size=5,
    test_size=4,
    problems=PROBLEMS,
  )


def test_kinds_of_problems_share_the_splits(task):
  kinds = [task.label(example) for example in task.train]
  assert kinds == ["products"] * 3 + ["basic_arithmetic"] * 2
  assert len(task.test) == 4


def test_a_prompt_shows_solved_problems_of_its_kind(task):
  prompt = task.prompt(task.train[0])
  assert prompt.index(chat.SYSTEM) < prompt.index("Answer: ", 200)
  assert prompt.count("<|im_start|>assistant\nAnswer: ") == 2
  assert prompt.count("multiplication") == 3
  assert task.train[0].question in prompt
  assert prompt.rstrip().endswith("<|im_start|>assistant")


def test_only_a_stated_answer_counts(task):
  example = task.train[0]

  def score(completion):
    given = task.reward_fn(example, completion)
    return given["correctness"], given["format"]

  assert score(f"Answer: {example.answer}") == (1.0, 1.0)
  assert score("Answer: 1234567")[1] == 1.0
  assert score("Answer: 1234567")[0] < 1.0
  assert score(f"It is {example.answer}") == (0.0, 0.0)


def test_thinking_that_the_prompt_opened_holds_no_answer():
  reward = chat.stated_answer(lambda e, a: 1.0, lambda e: "user: x <think>")
  example = Example("x", "1", {})
  assert reward(example, "Answer: 1")["correctness"] == 0.0
  assert reward(example, "hm</think>Answer: 1")["correctness"] == 1.0


@pytest.mark.parametrize(
  ("fields", "message"),
  [({"train_size": 1}, "2 kinds"), ({"problems": {}}, "there must be one")],
)
def test_sizes_are_checked(task, tmp_path, fields, message):
  arguments = {"train_size": 4, "test_size": 4, "problems": PROBLEMS}
  with pytest.raises(ValueError, match=message):
    chat.reasoning_gym(
      tokenizer=task.tokenizer, data_dir=str(tmp_path), **arguments | fields
    )


@pytest.fixture
def maths(monkeypatch):
  """A task of mathematics, of problems that are given here."""

  def make(*answers, **arguments):
    pytest.importorskip("math_verify")
    examples = [Example(f"Problem {a}", a, {}) for a in answers]
    monkeypatch.setattr(chat, "load_math", lambda **_: (examples, examples))
    return chat.mathematics(
      tokenizer=load_tokenizer(ROOT / "tests/data/references/qwen_style"),
      data_dir="",
      train_size=len(examples),
      test_size=len(examples),
      train="math_train",
      test="math500",
      **arguments,
    )

  return make


def test_mathematics_is_verified_by_both_tiers(maths):
  task = maths(r"\frac{1}{2}", r"\cot x")
  with contextlib.closing(task):
    half, cotangent = task.train
    asked = [half, half, cotangent, half, cotangent]
    texts = ["Answer: 0.5", "Answer: 1/3", r"\boxed{\frac{1}{\tan x}}"]
    assert not worker_processes()
    outcomes = task.verify(asked[:2], texts[:2])
    assert not worker_processes()  # what is exact needs none
    assert outcomes == ["correct", "wrong"]
    outcomes = task.verify(asked, [*texts, "It is 0.5", r"\boxed{\tan x}"])
    assert outcomes == ["correct", "wrong", "correct", "no_answer", "wrong"]
    assert worker_processes()
  assert not worker_processes()
  assert task.label(half) == "math500"
  assert task.reward_fn(half, texts[0]) == {"format": 1.0}
  assert task.reward_fn(half, "It is 0.5") == {"format": 0.0}


def test_mathematics_looks_behind_the_thinking_that_a_prompt_closed(maths):
  task = maths("7", enable_thinking=False)
  assert task.verify(task.train, ["Answer: 7"]) == ["correct"]
  assert task.verify(task.train, ["<think>Answer: 7"]) == ["truncated"]


def test_limits_of_the_verifier_are_checked(maths):
  with pytest.raises(UserError, match="more than zero"):
    maths("7", verifier_workers=0)
