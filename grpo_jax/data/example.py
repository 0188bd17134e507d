"""One problem with its reference answer."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Example:
  """A problem.

  Attributes:
    question: its text; two examples are the same problem when these are equal.
    answer: the reference.
    info: what the verifier and the task know besides.
  """

  question: str
  answer: str
  info: dict[str, Any]
