"""Reward functions that a configuration can name: each gives one score.

Those of the configuration look at one completion; what compares the completions
of a group, as the length reward of Kimi k1.5 does, belongs to a recipe (see
`algorithms.shaping`). `prompt` and `tokenizer` are the task's, and are given to
any function that takes them.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Protocol

from grpo_jax.rewards.thinking import (
  Thinking,
  split_thinking,
  thinking_prefix,
)

_COMMAND = re.compile(r"\\[a-zA-Z]+")  # \frac is notation, and no English
_WORD = re.compile(r"[^\W\d_]+")
# Scripts that put no space between words: each character counts as one.
_UNSPACED = frozenset(("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER"))


class _Encoder(Protocol):
  """What is needed of a tokenizer."""

  def encode(self, text: str) -> Sequence[int]: ...


def thinking_format(
  example: object, completion: str, *, prompt: Callable[[object], str]
) -> dict[str, float]:
  """1 for exactly one `<think>...</think>` and an answer after it, else 0.

  The format reward of DeepSeek-R1 (arXiv:2501.12948). Tags that the prompt has
  begun count; text before them, an empty answer, or a second pair do not pass.
  """
  parts = _parts(example, completion, prompt)
  return {"thinking_format": float(parts.well_formed)}


def length(
  example: object, completion: str, *, tokenizer: _Encoder, target_tokens: int
) -> dict[str, float]:
  """-|n - n_target| tokens: the length term of L1-Exact (arXiv:2503.04697).

  The paper's weight of it is 0.0003 per token, and its target is written in the
  prompt and drawn anew for each problem; here it is one for all.

  Args:
    example: not looked at.
    completion: n is the tokens of its text, without the end token.
    tokenizer: the task's.
    target_tokens: n_target.

  Returns:
    `length`, in tokens, at most 0.
  """
  if target_tokens < 0:
    raise ValueError("target_tokens must not be negative.")
  return {
    "length": -float(abs(len(tokenizer.encode(completion)) - target_tokens))
  }


def language(
  example: object,
  completion: str,
  *,
  prompt: Callable[[object], str],
  script: str = "Latin",
) -> dict[str, float | None]:
  """The share of the reasoning's words that are in the target's script.

  The language consistency reward of DeepSeek-R1 (arXiv:2501.12948), "the
  proportion of target language words in the CoT". The paper does not tell how
  words are assigned to languages. Here it is by script, which tells English
  from Chinese or Russian, but not from French.

  Args:
    example: its prompt may have begun the thinking.
    completion: words are runs of letters outside of LaTeX commands; in scripts
      without spaces, each character. Single letters of the others are
      variables, and do not count.
    prompt: the task's.
    script: first word of the Unicode names of its letters: Latin, Cyrillic,
      CJK, Arabic ...

  Returns:
    `language`, between 0 and 1; None if there is no word.
  """
  reasoning = _parts(example, completion, prompt).reasoning
  wanted = script.upper()
  counts = {True: 0, False: 0}
  for run in _WORD.findall(_COMMAND.sub(" ", reasoning)):
    scripts = [_script(letter) for letter in run]
    for found in scripts:
      if found in _UNSPACED:
        counts[found == wanted] += 1
    spaced = [found for found in scripts if found not in _UNSPACED]
    if len(spaced) > 1:
      counts[set(spaced) == {wanted}] += 1
  total = sum(counts.values())
  return {"language": counts[True] / total if total else None}


def charset(
  example: object, completion: str, *, name: str = "ascii"
) -> dict[str, float | None]:
  """The share of characters that are text of a character set.

  Against gibberish, and against notation that the verifier cannot read.

  Args:
    example: not looked at.
    completion: control characters but for tabs and line ends, surrogates and
      the replacement character of broken UTF-8 are no text in any set.
    name: of a Python codec: ascii, latin-1, gb18030 (nearly everything) ...

  Returns:
    `charset`, between 0 and 1; None for an empty completion.
  """
  inside = sum(_is_text(character, name) for character in completion)
  return {"charset": inside / len(completion) if completion else None}


def _parts(example, completion, prompt) -> Thinking:
  return split_thinking(thinking_prefix(prompt(example)) + completion)


def _script(letter: str) -> str:
  return unicodedata.name(letter, "").partition(" ")[0]


@functools.lru_cache(maxsize=2**12)
def _is_text(character: str, codec: str) -> bool:
  if character in "\t\n\r":
    return True
  if character == "\ufffd" or unicodedata.category(character)[0] == "C":
    return False
  try:
    character.encode(codec)
  except UnicodeEncodeError:
    return False
  return True
