"""The `<think>` convention."""

import pytest

from grpo_jax.rewards.functions import answer_and_format
from grpo_jax.rewards.thinking import split_thinking, thinking_prefix


@pytest.mark.parametrize(
  "text, reasoning, answer, well_formed",
  [
    ("<think>1+1=2</think>2", "1+1=2", "2", True),
    ("<think></think>2", "", "2", True),
    (" <think>a</think>\n 2 \n", "a", "2", True),
    ("<think>a</think>", "a", "", False),
    ("<think>a</think>  ", "a", "", False),
    ("<think>never closed 2", "never closed 2", "", False),
    ("2", "2", "", False),
    ("a</think>2", "a", "2", False),
    ("x<think>a</think>2", "x<think>a", "2", False),
    ("<think>a</think>b</think>2", "a</think>b", "2", False),
    ("<think><think>a</think>2", "<think>a", "2", False),
    ("<think>a</think>2<think>", "a", "2<think>", False),
    ("", "", "", False),
  ],
)
def test_parts(text, reasoning, answer, well_formed):
  assert split_thinking(text) == (reasoning, answer, well_formed)


@pytest.mark.parametrize(
  "prompt, prefix",
  [
    ("Assistant: <think>\n", "<think>\n"),
    ("<think>", "<think>"),
    ("x<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
    ("<think>a</think>2 and <think> ", "<think> "),
    ("Use <think> and </think>.", ""),
    ("<think>\na</think>\n", ""),
    ("</think>\n", ""),
    ("<think></think></think>", ""),
    ("", ""),
  ],
)
def test_what_a_prompt_has_begun(prompt, prefix):
  assert thinking_prefix(prompt) == prefix


def test_thinking_that_the_prompt_opened_is_well_formed():
  begun = thinking_prefix("1+1=<think>\n")
  assert split_thinking(begun + "a</think>2") == ("\na", "2", True)
  assert split_thinking(begun + "<think>a</think>2").well_formed is False
  closed = thinking_prefix("1+1=<think>\n\n</think>\n\n")
  assert split_thinking(closed + "2") == ("", "2", True)
  assert split_thinking(closed + "a</think>2").well_formed is False


def test_a_reward_function_may_ask_for_the_prompt():
  def right(example, answer):
    return float(answer == "2")

  reward = answer_and_format(right, prompt=lambda example: example + "<think>")
  assert reward("1+1=", "a</think>2") == {"correctness": 1, "format": 1}
  assert reward("1+1=", "2") == {"correctness": 0, "format": 0}


def test_correctness_and_format_are_apart():
  reward = answer_and_format(lambda example, answer: float(answer == example))
  assert reward("2", "<think>x</think>2") == {"correctness": 1, "format": 1}
  assert reward("2", "x</think>2") == {"correctness": 1, "format": 0}
  assert reward("2", "<think>x</think>3") == {"correctness": 0, "format": 1}
  assert reward("2", "2") == {"correctness": 0, "format": 0}


def test_an_empty_answer_never_reaches_the_scorer():
  def scorer(example, answer):
    raise AssertionError("called")

  assert answer_and_format(scorer)("", "<think>x</think>")["correctness"] == 0
