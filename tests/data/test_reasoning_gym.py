"""Problems are generated once, disjoint, and scored by their library."""

import inspect
import re

import pytest
from reasoning_gym.factory import DATASETS

from grpo_jax.data import reasoning_gym
from grpo_jax.data.example import Example
from grpo_jax.data.prompts import check_disjoint
from grpo_jax.data.reasoning_gym import (
  EVALUATES_ANSWERS,
  load_reasoning_gym,
  score_answer,
)


def _load(tmp_path, **changed):
  settings = dict(
    task="chain_sum",
    task_args=dict(min_terms=2, max_terms=2, min_digits=1, max_digits=1),
    train_size=300,
    test_size=40,
    seed=0,
    data_dir=str(tmp_path),
  )
  return load_reasoning_gym(**(settings | changed))


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
  return _load(tmp_path_factory.mktemp("data"))


def test_held_out_questions_are_not_trained_on(splits):
  train, test = splits
  assert (len(train), len(test)) == (300, 40)
  check_disjoint(train, test)
  assert len({e.question for e in train}) < 300  # of 160 possible ones


def test_overlap_and_repeats_are_found(splits):
  train, test = splits
  with pytest.raises(ValueError, match="1 held-out questions are also"):
    check_disjoint([*train, test[3]], test)
  with pytest.raises(ValueError, match="more than once"):
    check_disjoint(train, [*test, test[0]])


def test_data_is_prepared_once(splits, tmp_path, monkeypatch):
  first = _load(tmp_path)
  monkeypatch.setattr(reasoning_gym.ReasoningGym, "_entries", None)
  assert _load(tmp_path) == first == splits


def test_too_small_a_task_is_refused(tmp_path):
  with pytest.raises(ValueError, match="fewer than 201"):
    _load(tmp_path, test_size=201)
  with pytest.raises(ValueError, match="refuses chain_sum"):
    _load(tmp_path, task_args=dict(min_terms=0))
  with pytest.raises(ValueError, match="refuses no_such_task"):
    _load(tmp_path, task="no_such_task", task_args={})


def test_answers_are_scored_by_the_library(splits):
  example = splits[1][0]
  assert score_answer(example, example.answer) == 1.0
  assert score_answer(example, str(int(example.answer) + 1)) == 0.0
  assert score_answer(example, "no number") == 0.0


def test_no_scorer_evaluates_the_models_text(tmp_path):
  """The library's sources are searched: a new version may bring more."""
  found = {
    name
    for name, (dataset, _) in DATASETS.items()
    if re.search(
      r"\b(eval|exec|parse_expr|sympify)\(answer",
      inspect.getsource(inspect.getmodule(dataset)),
    )
  }
  assert found == EVALUATES_ANSWERS
  with pytest.raises(ValueError, match="evaluating the model's text"):
    _load(tmp_path, task="n_queens", task_args={})
  entry = {"metadata": {"source_dataset": "spiral_matrix"}, "answer": "1 2"}
  with pytest.raises(ValueError, match="spiral_matrix"):
    score_answer(Example("q", "1 2", entry), "[1, 2]")
