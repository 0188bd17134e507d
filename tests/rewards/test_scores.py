"""The reward functions that a configuration can name, at their edges."""

import pytest

from experiments.named import public_functions
from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.rewards import scores


def asks(example):
  return "Question\n"


def begins_thinking(example):
  return "Question\n<think>\n"


def test_each_gives_one_score_of_its_own_name():
  tokenizer = CharTokenizer("ab ")
  given = {
    "charset": scores.charset(None, "ab"),
    "language": scores.language(None, "ab", prompt=asks),
    "length": scores.length(None, "ab", tokenizer=tokenizer, target_tokens=1),
    "thinking_format": scores.thinking_format(None, "ab", prompt=asks),
  }
  assert given.keys() == public_functions(scores).keys()
  for name, score in given.items():
    assert list(score) == [name]


@pytest.mark.parametrize(
  "completion, prompt, expected",
  [
    ("<think>a</think>b", asks, 1),
    ("<think></think>b", asks, 1),
    ("a</think>b", asks, 0),
    ("a</think>b", begins_thinking, 1),
    ("<think>a</think>b", begins_thinking, 0),
    ("<think>a</think>", asks, 0),
    ("<think>a</think>b<think>c</think>d", asks, 0),
    ("x<think>a</think>b", asks, 0),
    ("<think>a", asks, 0),
    ("", asks, 0),
  ],
)
def test_thinking_format(completion, prompt, expected):
  given = scores.thinking_format(None, completion, prompt=prompt)
  assert given["thinking_format"] == expected


@pytest.mark.parametrize(
  "completion, target, expected",
  [
    ("", 0, 0),
    ("", 3, -3),
    ("abc", 3, 0),
    ("abcab", 3, -2),
    ("<think>a</think>", 3, 0),  # tokens, and not characters
  ],
)
def test_length(completion, target, expected):
  tokenizer = CharTokenizer("abc")
  given = scores.length(
    None, completion, tokenizer=tokenizer, target_tokens=target
  )
  assert given["length"] == expected


def test_a_length_is_not_negative():
  with pytest.raises(ValueError, match="target_tokens"):
    scores.length(None, "", tokenizer=CharTokenizer("a"), target_tokens=-1)


@pytest.mark.parametrize(
  "completion, script, expected",
  [
    ("So we add them", "Latin", 1),
    ("So we 相加 them", "Latin", 3 / 5),
    ("相加 是 two", "CJK", 3 / 4),
    ("so мы add", "Latin", 2 / 3),
    ("so мы add", "cyrillic", 1 / 3),
    ("cмы", "Latin", 0),  # of two scripts
    ("naïve café", "Latin", 1),
    (r"the \frac{мы}{2} \alpha", "Latin", 1 / 2),
    ("x + y = π", "Latin", None),
    ("47+85=132", "Latin", None),
    ("", "Latin", None),
    ("<think>add</think>мы", "Latin", 1),  # of the reasoning
    ("<think></think>мы", "Latin", None),
    ("<think>мы add", "Latin", 1 / 2),
  ],
)
def test_language(completion, script, expected):
  given = scores.language(None, completion, prompt=asks, script=script)
  assert given["language"] == pytest.approx(expected)


def test_the_language_of_thinking_that_the_prompt_began():
  given = scores.language(None, "да нет</think>the", prompt=begins_thinking)
  assert given["language"] == 0


@pytest.mark.parametrize(
  "completion, name, expected",
  [
    ("abc 1+1\n\t", "ascii", 1),
    ("abcé", "ascii", 3 / 4),
    ("abcé", "latin-1", 1),
    ("a相", "latin-1", 1 / 2),
    ("a相", "gb18030", 1),
    ("a\ufffd", "gb18030", 1 / 2),
    ("a\0\x07", "ascii", 1 / 3),
    ("a\ud800", "utf-8", 1 / 2),
    ("a\u200b", "utf-8", 1 / 2),  # cannot be seen
    ("", "ascii", None),
  ],
)
def test_charset(completion, name, expected):
  given = scores.charset(None, completion, name=name)["charset"]
  assert given == pytest.approx(expected)


def test_a_charset_that_does_not_exist():
  with pytest.raises(LookupError, match="asci"):
    scores.charset(None, "a", name="asci")
