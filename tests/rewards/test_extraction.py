r"""Where a completion says what its answer is."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.rewards.extraction import extract, last_number, unwrap


@pytest.mark.parametrize(
  "text, answer",
  [
    (r"\boxed{5}", "5"),
    (r"\boxed {5}", "5"),
    (r"\fbox{5}", "5"),
    (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\{1}", r"\{1"),
    (r"\boxed{\}1}", r"\}1"),
    (r"\boxed{3}, \boxed{4}, \boxed{5}", "5"),
    (r"\boxed{3} and then \boxed{4", "3"),
    (r"\boxed{a \boxed{3} b}", r"a \boxed{3} b"),
    (r"\boxed{\text{no, \boxed{3}}}", r"\text{no, \boxed{3}}"),
    (r"{ never closed \boxed{5}", "5"),
    (r"} never opened \boxed{5}", "5"),
    (r"\boxed{ open \boxed{5}", "5"),
    (r"\boxed{5} use \boxed to show it", "5"),
    (r"put it in \boxed{} so \boxed{5}", "5"),
    (r"\boxed{5}, in \boxed{}", "5"),
    (r"line\\\boxed{5}", "5"),
    (r"\\boxed{5}", "5"),
    (r"<think>\boxed{3}</think>\boxed{4}", "4"),
    (r"<think>a</think>\boxed{3}</think>\boxed{4}", "4"),
    (r"\boxed{3}<think>\boxed{4}", "3"),
    (r"Answer: 7 \boxed{4}", "4"),
    ("\\boxed{1\n2}", "1\n2"),
    (r"\boxed{٣}", "٣"),
  ],
)
def test_the_last_closed_box(text, answer):
  assert extract(text) == (answer, "boxed")


@pytest.mark.parametrize(
  "text, answer",
  [
    (
      "The final answer is $\\frac{1}{2}$. I hope it is correct.",
      r"\frac{1}{2}",
    ),
    ("Final Answer: The final answer is 3.5. Good.", "3.5"),
    ("the final answer is: **42**", "42"),
    ("The final answer is 4. No, the final answer is 5.", "5"),
    ("The final answer is $18", "$18"),
    ("Answer: 13", "13"),
    ("Answer: 13.", "13"),
    ("Answer: 3.5", "3.5"),
    ("**Answer:** 13", "13"),
    ("**Answer**: 13", "13"),
    ("**Answer: 13**", "13"),
    ("### Answer: $13$", "13"),
    ("ANSWER: \\[13\\]", "13"),
    ("The answer: \\(13\\).", "13"),
    ("Final answer: $$13$$", "13"),
    ("Answer:\n13", "13"),
    ("Answer: 12\n...\nAnswer: 13", "13"),
    ("Answer: 013", "013"),
    ("Answer: 13 apples", "13 apples"),
    ("Answer: 13" + "\n" + "padding " * 100, "13"),
    ("Answer: $5 and $6", "$5 and $6"),
    ("48/2 = <<48/2=24>>24\n#### 24", "24"),
    ("#### -1,234", "-1,234"),
    ("Answer: 5 a day\n#### 10", "10"),
    ("#### 10\nAnswer: 5", "5"),
    ("the final answer is 15 * 8 = 120 pints\n#### 120", "120"),
    ("Answer: 4\nNo: the final answer is 5.", "5"),
    ("#### $5.50", "$5.50"),
    ("use \\boxed to answer\nAnswer: 5", "5"),
    ("\\boxed{5\nAnswer: 6", "6"),
    ("<think>Answer: 5</think>Answer: 6", "6"),
  ],
)
def test_stated_answers(text, answer):
  assert extract(text) == (answer, "answer_line")


@pytest.mark.parametrize(
  "text, status",
  [
    ("", "none"),
    ("x = 2+3 = 5", "none"),
    ("The answer is 7. Wait, it is 5", "none"),
    ("the final 5", "none"),
    ("#### Step 1: add", "none"),
    ("My Answer: 5 is in the middle", "none"),
    ("Answer:", "none"),
    (r"\boxed 5", "none"),
    (r"\boxed{}", "none"),
    ("boxed{5}", "none"),
    (r"\boxed{5", "truncated"),
    (r"\boxed{\frac{1}{2}", "truncated"),
    (r"<think>so \boxed{5}", "truncated"),
    (r"<think>Answer: 5", "truncated"),
    (r"<think>\boxed{5}</think>", "none"),
    (r"<think>\boxed{5}</think> done <think>\boxed{5}", "truncated"),
  ],
)
def test_no_answer(text, status):
  assert extract(text) == ("", status)


@pytest.mark.parametrize(
  "text",
  [
    r"\boxed{" * 10_000,
    "{" * 10**6,
    "}" * 10**6,
    r"\boxed{" + "{" * 10**6,
    r"\boxed{" + "\\{" * 500_000,
    "*" * 10**6,
    "\n" * 10**6,
    "Answer: " * 100_000,
    "Answer:\n" * 100_000,
    "final answer is " * 60_000,
    "final answer is" + " " * 10**6,
    "final answer is " + "9" * 10**6,
    "#### " + "9," * 500_000,
    "</think>" * 100_000,
    "\\" * 10**6,
    "\0" * 10**6,
  ],
  ids=lambda text: repr(text[:20]),
)
def test_a_megabyte_takes_linear_time(text):
  start = time.process_time()
  extract(text)
  last_number(text)
  assert time.process_time() - start < 2.0


@given(
  st.text()
  | st.lists(
    st.sampled_from(
      [
        r"\boxed",
        "{",
        "}",
        "\\",
        "<think>",
        "</think>",
        "5",
        "$",
        "\n",
        " ",
        "Answer:",
        "final answer is",
        "#### ",
        "*",
        ".",
      ]
    )
  ).map("".join)
)
def test_extraction_never_raises(text):
  answer, status = extract(text)
  assert bool(answer) == (status in ("boxed", "answer_line"))
  assert answer in text
  assert unwrap(unwrap(answer)) == unwrap(answer)
  last_number(text)


@pytest.mark.parametrize(
  "text, number",
  [
    ("x = 2+3 = 5", "+5"),
    ("1,234.5 dollars.", "1234.5"),
    ("<think>7</think>it is 8", "8"),
    ("none", ""),
  ],
)
def test_the_loose_number(text, number):
  assert last_number(text) == number.replace("+", "")
