"""The `<think>...</think>answer` convention of R1 and Qwen3."""

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


def split_thinking(text: str) -> Thinking:
  """Takes a completion apart into reasoning and answer.

  Args:
    text: the completion, with a template's own opening tag, if any.

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
