"""The `<think>...</think>answer` convention of R1 and Qwen3."""

import re
from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"


class Thinking(NamedTuple):
  """A completion taken apart.

  Attributes:
    reasoning: between the tags; everything if thinking never ended.
    answer: after the last closing tag, stripped; empty if there is none.
    well_formed: the completion is exactly one pair of tags, from its start,
      and a non-empty answer after it.
  """

  reasoning: str
  answer: str
  well_formed: bool


def thinking_prefix(prompt: str) -> str:
  """The part of the thinking that a prompt has already written.

  Templates of R1 end in `<think>`: the completion holds no opening tag.
  Qwen3's, with `enable_thinking` False, end in a pair of tags with nothing
  between: the completion is all answer. Others leave both to the model.

  Args:
    prompt: what the completion continues.

  Returns:
    The prompt's end from its `<think>` on, if only white space, or the closing
    tag and white space, comes after it; or else nothing.
  """
  begun = re.search(r"<think>\s*(</think>\s*)?\Z", prompt)
  return begun.group() if begun else ""


def split_thinking(text: str) -> Thinking:
  """Takes a completion apart into reasoning and answer.

  Args:
    text: `thinking_prefix(prompt)` and the completion.

  Returns:
    The parts. Text that never closes its thinking has no answer: the model
    was cut off, or answered inside its reasoning.
  """
  before, close, answer = text.rpartition(CLOSE)
  if not close:
    return Thinking(text.removeprefix(OPEN), "", False)
  reasoning = before.strip().removeprefix(OPEN)
  answer = answer.strip()
  once = text.count(OPEN) == 1 and text.count(CLOSE) == 1
  starts = text.lstrip().startswith(OPEN)
  return Thinking(reasoning, answer, once and starts and bool(answer))
