"""Scores by name: what is excluded of them, and how they are mixed."""

import logging
import math

import numpy as np
import pytest

from grpo_jax.errors import UserError
from grpo_jax.rewards import functions
from grpo_jax.rewards.functions import (
  REASONS,
  fill_excluded,
  mix,
  score_completions,
)
from grpo_jax.rewards.verify import Outcome

NAN = np.nan


@pytest.fixture(autouse=True)
def _nothing_told_yet():
  functions._log_first.cache_clear()


def score(function, texts, **settings):
  settings = {"names": (), **settings}
  return score_completions([("mine", function)], [1], [texts], **settings)


def test_scores_are_grids_mixed_by_weight():
  def reward(example, text):
    return {"a": float(example), "b": len(text)}

  def other(example, text):
    return {"c": text == "xy"}

  scored = score_completions(
    [("reward", reward), ("other", other)],
    [1, 2],
    [["x", "xy"], ["", "xyz"]],
    names={"b", "d"},
  )
  scores = scored.scores
  assert list(scores) == ["a", "b", "c", "d"]
  np.testing.assert_array_equal(scores["a"], [[1, 1], [2, 2]])
  np.testing.assert_array_equal(scores["b"], [[1, 2], [0, 3]])
  np.testing.assert_array_equal(scores["c"], [[0, 1], [0, 0]])
  assert np.isnan(scores["d"]).all()
  mixed = mix(scores, {"a": 2.0, "b": -1.0})
  np.testing.assert_array_equal(mixed, [[1, 0], [4, 1]])
  assert mixed.dtype == scores["a"].dtype == np.float32
  assert scored.outcomes is None
  assert not any(where.any() for where in scored.excluded.values())


RETURNED = [
  (None, "none"),
  ({"a": None}, "none"),
  ({}, "none"),
  ({"a": NAN}, "not_finite"),
  ({"a": math.inf}, "not_finite"),
  ({"a": -math.inf}, "not_finite"),
  ({"a": np.float32(NAN)}, "not_finite"),
  ({"a": 1e39}, "not_finite"),  # in float32
  ({"a": "1"}, "raised"),
  ({"a": [1.0]}, "raised"),
  ({"a": np.ones(2)}, "raised"),
  (1.0, "raised"),
]


@pytest.mark.parametrize("returned, reason", RETURNED)
def test_what_is_excluded_is_counted_and_no_zero(returned, reason):
  answers = {"good": {"a": 0.5}, "bad": returned}
  scored = score(lambda e, text: answers[text], ["good", "bad", "good"])
  np.testing.assert_array_equal(scored.scores["a"], [[0.5, NAN, 0.5]])
  assert scored.excluded.keys() == {("mine", reason) for reason in REASONS}
  for other in REASONS:
    found = scored.excluded["mine", other]
    np.testing.assert_array_equal(found, [[False, other == reason, False]])


def test_of_several_scores_only_the_missing_one_is_excluded():
  answers = {"x": {"a": 1, "b": 2}, "y": {"a": NAN, "b": None}, "z": {"b": 3}}
  scored = score(lambda e, text: answers[text], ["x", "y", "z"])
  np.testing.assert_array_equal(scored.scores["a"], [[1, NAN, NAN]])
  np.testing.assert_array_equal(scored.scores["b"], [[2, NAN, 3]])
  excluded = {k: v.tolist() for (_, k), v in scored.excluded.items()}
  assert excluded["none"] == [[False, True, True]]
  assert excluded["not_finite"] == [[False, True, False]]


def test_an_exception_is_told_once_and_ends_nothing(caplog):
  def reward(example, text):
    return {"a": 1 / len(text)}

  with caplog.at_level(logging.WARNING):
    scored = score(reward, ["", "x", ""])
    again = score(reward, ["", "x", ""])
  np.testing.assert_array_equal(scored.scores["a"], [[NAN, 1, NAN]])
  np.testing.assert_array_equal(again.scores["a"], scored.scores["a"])
  assert len(caplog.records) == 1
  assert "ZeroDivisionError" in caplog.text and "'mine'" in caplog.text


def test_stopping_the_run_is_no_failure_of_a_function():
  def reward(example, text):
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    score(reward, ["x"])


def test_functions_of_one_name_are_counted_together():
  pair = [("f", lambda e, t: {"a": None}), ("f", lambda e, t: {"b": 1.0})]
  scored = score_completions(pair, [1], [["x"]], names=())
  assert scored.excluded["f", "none"].all()


def test_two_functions_cannot_give_one_score():
  pair = [("f", lambda e, t: {"a": 1}), ("g", lambda e, t: {"a": 1})]
  with pytest.raises(UserError, match=r"'g' gives \['a'\]"):
    score_completions(pair, [1], [["x"]], names=())
  with pytest.raises(UserError, match="correctness"):
    score(
      lambda e, t: {"correctness": 1},
      ["x"],
      verify=lambda examples, texts: [Outcome.CORRECT],
    )


def test_the_verifier_gives_correctness_and_its_failures_do_not():
  def verify(examples, texts):
    assert examples == ["p"] * 3 + ["q"] * 4
    return [Outcome(text) for text in texts] + [Outcome.WRONG]

  rows = [
    ["correct", "wrong", "no_answer"],
    ["truncated", "unparsable", "timed_out", "crashed"],
  ]
  with pytest.raises(ValueError):  # one outcome too many
    score_completions([], ["p", "q"], rows, names=(), verify=verify)
  flat = rows[0] + rows[1]
  scored = score_completions(
    [],
    ["p"],
    [flat],
    names=(),
    verify=lambda examples, texts: [Outcome(text) for text in texts],
  )
  expected = [[1, 0, 0, 0, 0, NAN, NAN]]
  np.testing.assert_array_equal(scored.scores["correctness"], expected)
  assert scored.outcomes.tolist() == [flat]


def test_what_is_excluded_moves_no_advantage():
  """It is the mean of those that count in its group, or else in the batch."""
  scores = {
    "length": np.array([[-3, NAN, -1, -8], [NAN] * 4, [-5, -1, -3, NAN]]),
    "right": np.array([[1, 0, 0, 1]] * 3),
  }
  counted = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]], bool)
  filled = fill_excluded(scores, counted)
  expected = [[-3, -2, -1, -8], [-2] * 4, [-5, -1, -3, -2]]
  np.testing.assert_array_equal(filled["length"], expected)
  np.testing.assert_array_equal(filled["right"], scores["right"])
  mixed = mix(filled, {"right": 2.0, "length": 0.5})
  np.testing.assert_allclose(mixed[0], [0.5, -1, -0.5, -2])
  np.testing.assert_allclose(mixed[1], [1, -1, -1, 1])


@pytest.mark.parametrize("value", [0.1, 1 / 3, -7e-5, 1e30])
def test_a_group_that_ties_ties_with_what_is_excluded(value):
  score = np.full((1, 7), value, np.float32)
  score[0, 3] = NAN
  filled = fill_excluded({"a": score}, np.ones((1, 7), bool))["a"]
  assert np.ptp(filled) == 0
