r"""Verdicts of both tiers, and what other verifiers got wrong."""

import itertools
import time
from collections import Counter

import pytest

from grpo_jax.data.example import Example
from grpo_jax.errors import UserError
from grpo_jax.rewards import symbolic
from grpo_jax.rewards.equivalence import canonical, compare
from grpo_jax.rewards.extraction import extract
from grpo_jax.rewards.pool import Result
from grpo_jax.rewards.screen import readable
from grpo_jax.rewards.verify import (
  Outcome,
  count_outcomes,
  parse_gold,
  reference_verifier,
  verify,
  verify_all,
)


@pytest.fixture(scope="module")
def pool():
  pytest.importorskip("math_verify")
  with symbolic.symbolic_pool(workers=2, limit_s=5.0) as pool:
    yield pool


def boxed(answer):
  return rf"<think>so</think>It is \boxed{{{answer}}}."


# (gold, completion, outcome): what some verifier in use gets wrong.
KNOWN_FAILURES = [
  # False positives.
  (r"\frac{1}{2004!}", boxed(r"\frac{1}{2006!}"), "unparsable"),
  (r"\frac{1}{2^{99}}", boxed(r"\frac{1}{2^{98}}"), "wrong"),
  ("3x-y+13=0", boxed("3x+4y+14=0"), "wrong"),
  ("5", "so we have x = 2+3 = 5", "no_answer"),
  ("5", r"\boxed{3} is wrong, so I think 5", "wrong"),
  ("5", boxed("5 or 6"), "wrong"),
  ("10", boxed("1,0"), "wrong"),
  # False negatives.
  (r"\dfrac{9}{7}", boxed(r"\frac97"), "correct"),
  ("5", r"\boxed{3}, \boxed{4}, \boxed{5}", "correct"),
  ("5", "The answer is 7. Wait.\nAnswer: 5", "correct"),
  ("10", boxed(r"10\%"), "correct"),
  (r"(2,\infty)", boxed("x > 2"), "correct"),
  ("23", boxed("023"), "correct"),
  ("1234", boxed("1 234"), "correct"),
  ("2516_8", boxed("2516_{8}"), "correct"),
  ("13", "Answer: 13.", "correct"),
  ("13", "**Answer:** 13", "correct"),
  ("13", "Answer: 013", "correct"),
  ("13", "Answer: 13 apples", "correct"),
  ("13", "Answer: 13\n" + "so " * 200, "correct"),
  (r"\frac12", r"Answer: \dfrac{1}{2}", "correct"),
  ("1/2", "Answer: 0.5", "correct"),
  ("5.4 \\text{ cents}", boxed("5.4"), "correct"),
  ("5", r"use \boxed to answer: \boxed{5}", "correct"),
  (r"\{1,2\}", boxed(r"\{2,1\}"), "correct"),
  # No answer, or none that counts.
  ("5", r"<think>\boxed{5}", "truncated"),
  ("5", r"<think>\boxed{5}</think>\boxed{6}", "wrong"),
  ("5", "5", "no_answer"),
  ("5", r"\boxed{5", "truncated"),
]


@pytest.mark.parametrize("gold, completion, outcome", KNOWN_FAILURES)
def test_known_failures_of_other_verifiers(gold, completion, outcome):
  assert verify(parse_gold(gold), completion).outcome == outcome


SYMBOLIC = [
  (r"\cot x", r"\frac{\cos x}{\sin x}", "correct"),
  (r"\cot x", r"\tan x", "wrong"),
  (r"\frac{x^2-1}{x-1}", "x+1", "correct"),
  (r"\frac{x^2-1}{x-1}", "x-1", "wrong"),
  ("2x+3", "y = 2x+3", "correct"),
  (r"\log_2 10", r"1+\log_2 5", "correct"),
  (r"\log 2", "0.69314718", "wrong"),
  (r"\sqrt[3]{2}", "2^{1/3}", "correct"),
  (r"\sqrt[3]{2}", "1.259921", "wrong"),
  (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}", "correct"),
  (r"\sqrt{x^2}", "x", "wrong"),
  (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}", "wrong"),  # i and -i for n = -1
  (r"\cos(x)", r"\cos x", "correct"),
  ("1/2x", r"\frac{3x}{2}", "wrong"),
  (
    r"\begin{pmatrix} \sin x \\ 1 \end{pmatrix}",
    r"\begin{pmatrix} \sin(x) \\ 1 \end{pmatrix}",
    "correct",
  ),
  (
    r"\begin{pmatrix} \sin x \\ 1 \end{pmatrix}",
    r"\begin{pmatrix} \sin(x) \\ 2 \end{pmatrix}",
    "wrong",
  ),
]


def test_the_symbolic_tier(pool):
  golds = [parse_gold(gold) for gold, _, _ in SYMBOLIC]
  answers = [boxed(answer) for _, answer, _ in SYMBOLIC]
  verdicts = verify_all(golds, answers, pool)
  assert [v.outcome for v in verdicts] == [outcome for *_, outcome in SYMBOLIC]
  assert {v.tier for v in verdicts} == {"symbolic"}
  without = verify_all(golds, answers)
  assert count_outcomes(without)["unparsable"] == len(SYMBOLIC)
  assert {v.tier for v in without} == {"none"}


def test_rounding_is_checked_by_a_second_opinion():
  """What Math-Verify finds equal by rounding is not."""
  math_verify = pytest.importorskip("math_verify")
  pair = r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"
  read = [symbolic._read(text) for text in pair]
  assert math_verify.verify(*read, timeout_seconds=None)
  assert symbolic.equal(*pair) is False


HEAVY = [
  "9^{9^9}",
  "99999999!",
  "2003^{2002^{2001}}",
  "10**10**8",
  "((9^99)^99)^99",
  "9^{9999 \\cdot 9999}",
  r"9^{\binom{99}{50}}",
  r"\sum_{n=1}^{1000000000} n",
  r"\prod_{n=1}^{10^9} n",
  r"\int_0^1 x^x dx",
  "x^{123456789}",
  "9" * 31 + "x!",
  "9" * 10**6,
  "{" * 10_000,
  "\\{" * 10_000,
  "5\0",
  "__import__('os').system('true')",
  "().__class__",
  r"\input{x}",
  "\u0663",
  "n!",
  "2^{3!}",
  "",
]


@pytest.mark.parametrize("text", HEAVY, ids=lambda t: repr(t[:20]))
def test_what_would_take_for_ever_is_refused(text):
  start = time.process_time()
  assert readable(text) is None
  verdict = verify(parse_gold("5"), boxed(text))
  assert verdict.outcome != "correct"
  assert time.process_time() - start < 0.2


def test_what_is_refused_never_reaches_the_pool():
  class NoPool:
    def map(self, items):
      raise AssertionError(items)

  texts = [boxed(text) for text in [*HEAVY, "5", "6", "x+1"]]
  verdicts = verify_all([parse_gold("5")] * len(texts), texts, NoPool())
  assert [v.outcome for v in verdicts[-3:]] == ["correct", "wrong", "wrong"]


def test_failures_of_the_pool_are_outcomes_of_their_own():
  class Failing:
    def map(self, items):
      assert len(items) == 5
      return [results[answer] for _, answer in items]

  results = {
    r"\sin a": Result("timed_out"),
    r"\sin b": Result("died"),
    r"\sin c": Result("raised"),
    r"\sin d": Result("done", None),
    r"\sin e": Result("done", True),
  }
  texts = [boxed(answer) for answer in results] * 2 + ["nothing"]
  verdicts = verify_all([parse_gold("x")] * 11, texts, Failing())
  assert count_outcomes(verdicts) == {
    "correct": 2,
    "wrong": 0,
    "no_answer": 1,
    "truncated": 0,
    "unparsable": 2,
    "timed_out": 2,
    "crashed": 4,
  }
  assert verdicts[0].outcome is Outcome.TIMED_OUT
  assert verdicts[:5] == verdicts[5:10]


def test_one_comparison_for_many_equal_completions(pool):
  golds = [parse_gold(r"\cot x")] * 500
  verdicts = verify_all(golds, [boxed(r"\frac{1}{\tan x}")] * 500, pool)
  assert Counter(v.outcome for v in verdicts) == {"correct": 500}


def test_a_verifier_of_references():
  """For a task: whole completions, thinking that the prompt began included."""

  class Failing:
    def map(self, items):
      return [Result("timed_out") for _ in items]

  calls = []

  def prompt(example):
    calls.append(example)
    return f"{example.question}<think>"

  examples = [Example("x", "1/2", {}), Example("y", r"\cot x", {})]
  texts = [r"\boxed{0.5}", r"so</think>\boxed{0.5}"]
  texts += [boxed(r"\frac{1}{\tan x}"), "so</think>"]
  verify_batch = reference_verifier(Failing(), prompt=prompt)
  asked = [examples[0], examples[0], examples[1], examples[1]]
  outcomes = verify_batch(asked, texts)
  assert outcomes == ["truncated", "correct", "timed_out", "no_answer"]
  assert calls == asked
  unprompted = reference_verifier(Failing())
  assert unprompted(examples[:1], [r"\boxed{0.5}"]) == ["correct"]


def test_golds():
  assert parse_gold("42").answer == "42"
  assert parse_gold("48/2=24\n#### 1,024").answer == "1,024"
  assert parse_gold(r"So $\boxed{\frac12}$.").answer == r"\frac12"
  for text in ("", " ", r"\boxed{}", r"\boxed{5"):
    with pytest.raises(UserError, match="gold"):
      parse_gold(text)


def test_without_math_verify_the_error_says_what_to_install(monkeypatch):
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  with pytest.raises(UserError, match=r"grpo_jax\[math\]"):
    symbolic.symbolic_pool(workers=1, limit_s=1.0)


def rewritings(gold: int):
  """Spellings that graders have to accept."""
  yield f"\\boxed{{{gold}.0}}"
  yield f"\\boxed{{{gold:,}}}"
  yield f"\\boxed{{{gold} \\text{{ apples}}}}"
  yield f"Answer: ${gold:,}.00"
  yield f"<think>...</think> The final answer is **{gold}**. Good."


def near_misses(n: int):
  """Twenty answers that are not n."""
  yield from (n + 1, n - 1, n + 10, n - 10, n + 100, 10 * n + 1, 10 * n + 7)
  yield from (-n - 1, f"{n}.5", f"{n}.01", f"{n}1", f"{n} or {n + 1}")
  yield from (f"({n}, {n})", f"{n}_7", f"{n} + x", f"{n + 1}/{n + 2}")
  yield from (f"{n}/7 + 1/1000", f"{n}\\pi + 1", f"{n}i + 1", f"{n}, {n}")


def test_gsm8k_extracts_and_verifies(data):
  train, test = data("gsm8k/train.jsonl"), data("gsm8k/test.jsonl")
  assert len(train) + len(test) == 8792
  for row in train + test:
    found = extract(row["answer"])
    expected = row["answer"].rpartition("####")[2].strip()
    assert found == (expected, "answer_line")
    gold = parse_gold(row["answer"])
    assert verify(gold, row["answer"]).outcome == "correct"
  for row in test:
    gold = parse_gold(row["answer"])
    number = int(gold.answer.replace(",", ""))
    for text in rewritings(number):
      assert verify(gold, text).outcome == "correct", text
    misses = list(near_misses(number))
    assert len(misses) == 20
    for miss in misses:
      assert verify(gold, boxed(miss)).outcome == "wrong", miss


# All pairs of different spellings in MATH-500 that are equal, checked by hand:
# the same numbers, with units or a label on one side.
EQUAL_IN_MATH500 = {
  ("-2,1", "1,-2"),
  (r"10,\!080", "10080"),
  ("120", r"120^\circ"),
  ("15", r"15\mbox{ cm}^2"),
  (r"2 \sqrt{5}", r"2\sqrt{5}"),
  ("30", r"30^\circ"),
  ("36", r"36^\circ"),
  ("36", r"\$36"),
  ("5", "x=5"),
  ("90", r"90^\circ"),
  (r"\frac14", r"\frac{1}{4}"),
}


def test_math500_is_decided_and_told_apart(data):
  answers = [row["answer"] for row in data("math500/test.jsonl")]
  meanings = [canonical(answer) for answer in answers]
  assert len(answers) == 500
  assert sum(meaning.decided for meaning in meanings) >= 0.99 * 500
  for answer in answers:
    assert verify(parse_gold(answer), boxed(answer)).outcome == "correct"
  both = list(zip(answers, meanings, strict=True))
  equal = set()
  for (a, x), (b, y) in itertools.product(both, repeat=2):
    assert compare(x, y) is compare(y, x)
    if compare(x, y) and a < b:
      equal.add((a, b))
  assert equal == EQUAL_IN_MATH500
