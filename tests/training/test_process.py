"""Judged steps find the tokens that end them."""

import numpy as np
import pytest

from experiments.tasks.chain_sum import judge_steps
from grpo_jax.data.example import Example
from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.errors import UserError
from grpo_jax.training.process import judged_steps


class Pairs:
  """A tokenizer whose token i is two characters, "00" to "99"."""

  def decode(self, ids):
    return "".join(f"{i:02d}" for i in ids)


def test_a_step_ends_on_the_token_that_holds_its_last_character():
  tokens = np.asarray([[[12, 34, 56, 0], [78, 90, 0, 0]]])
  lengths = np.asarray([[3, 2]])
  judged = {"123456": [(1, 0.5), (4, -1.0), (99, 1.0)], "7890": [(3, 2.0)]}
  rewards, mask = judged_steps(
    lambda example, text: judged[text],
    Pairs(),
    ["q"],
    [["123456", "7890"]],
    tokens,
    lengths,
  )
  np.testing.assert_array_equal(rewards, [[[0.5, -1, 1, 0], [0, 2, 0, 0]]])
  np.testing.assert_array_equal(mask, rewards != 0)


def test_no_steps_and_no_tokens():
  tokens = np.zeros((1, 2, 3), int)
  rewards, mask = judged_steps(
    lambda example, text: [(1, 1.0)] if text == "empty" else [],
    CharTokenizer("01"),
    ["q"],
    [["", "empty"]],
    tokens,
    np.asarray([[3, 0]]),
  )
  assert not rewards.any() and not mask.any()


@pytest.mark.parametrize(
  "steps", [[(1, np.nan)], [(np.nan, 1.0)], [("x", 1.0)], [(1, 1.0, 2.0)], 3]
)
def test_steps_that_are_no_numbers_are_named(steps):
  tokens = np.ones((1, 1, 2), int)
  with pytest.raises(UserError, match="judge_steps gave"):
    judged_steps(
      lambda example, text: steps,
      CharTokenizer("01"),
      ["q"],
      [["0"]],
      tokens,
      np.asarray([[2]]),
    )


def example():
  metadata = {
    "source_dataset": "chain_sum",
    "expression": "12 + 34 - 5",
    "num_terms": 3,
  }
  return Example("q", "41", {"answer": "41", "metadata": metadata})


def test_equations_of_a_sum_are_judged_one_by_one():
  text = "<think>12+34=46;46-5=42</think>42"
  (first, right), (second, wrong), (end, answer) = judge_steps(example(), text)
  assert text[:first].endswith("46") and text[:second].endswith("=42")
  assert (right, wrong, answer) == (1.0, 0.0, 0.0)
  assert end > len(text)


def test_a_true_equation_off_the_problem_earns_nothing():
  text = "<think>1+1=2;2+34=36;36-5=31</think>41"
  rewards = [reward for _, reward in judge_steps(example(), text)]
  assert rewards == [0.0, 0.0, 0.0, 1.0]


def test_columns_count_as_one_step():
  text = "<think>12+34:6:4=46;46-5=41</think>41"
  rewards = [reward for _, reward in judge_steps(example(), text)]
  assert rewards == [1.0, 1.0, 1.0]


def test_thinking_that_never_ends_has_no_answer():
  text = "<think>12+34=46"
  assert [reward for _, reward in judge_steps(example(), text)] == [1.0, 0.0]
