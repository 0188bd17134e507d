"""Where a completion says what its answer is.

Never "the last number in the text": a policy rewarded for that learns to end
on a number. `last_number` exists for a metric that says so in its name.
"""

import re
from typing import Literal, NamedTuple

from grpo_jax.rewards.thinking import CLOSE, OPEN

Status = Literal["boxed", "answer_line", "none", "truncated"]


class Extraction(NamedTuple):
  """What a completion answers.

  Attributes:
    answer: as written, without its wrapping; empty if there is none.
    status: `boxed` or `answer_line` if there is one; `truncated` if the text
      ends within a box or within its thinking; else `none`.
  """

  answer: str
  status: Status


_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# A backslash and what it escapes is one token, so \{ and \} are no braces;
# but \\boxed{ is a box, from models that escape twice.
_BRACE = re.compile(
  rf"{_BOX.pattern}|\\[^\\]|\\\\(?!(?:boxed|fbox)\s*\{{)|[{{}}]", re.DOTALL
)
# Most boxes: nothing to match, and no other box after it.
_PLAIN_BOX = re.compile(_BOX.pattern + r"([^{}\\]+)\}")
_FINAL = re.compile(r"\bfinal answer is\b[ \t]*:?\s*", re.IGNORECASE)
_LINE = re.compile(
  r"^[ \t*_#>-]*(?:the[ \t]+)?(?:final[ \t]+)?answer[ \t*_]*:[ \t*_]*\n?(.+)",
  re.IGNORECASE | re.MULTILINE,
)
_HASHES = re.compile(
  r"^####[ \t]*([-+]?\$?[-+]?[0-9.][0-9,.]*%?)[ \t]*$", re.MULTILINE
)
# Ends at a full stop that ends a sentence, not at a decimal point.
_SENTENCE = re.compile(r"\$[^$\n]+\$|[^\n]*?(?=\.(?:\s|$)|\n|$)")
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(?:\.[0-9]+)?")


def extract(completion: str) -> Extraction:
  r"""The answer after the last `</think>`, by the first rule that applies.

  1. The last *closed* `\boxed{}` or `\fbox{}` that is not empty; of nested
     ones the outermost. `\boxed` without a brace is prose.
  2. What is stated last: `final answer is ...` to the end of the sentence, a
     line that starts with `Answer:` (or the line after it), or GSM8K's
     `#### number`.

  Thinking that is opened and not closed holds no answer. Time is linear in
  the completion's length; nothing raises.
  """
  visible, opened, _ = completion.rpartition(CLOSE)[2].partition(OPEN)
  answer, open_box = _last_box(visible)
  if answer:
    return Extraction(answer, "boxed")
  answer = _stated(visible)
  if answer:
    return Extraction(answer, "answer_line")
  return Extraction("", "truncated" if opened or open_box else "none")


def last_number(completion: str) -> str:
  """The last number after the thinking: a loose metric, never a reward.

  Returns:
    The number without thousands separators; empty if there is none.
  """
  visible = completion.rpartition(CLOSE)[2].partition(OPEN)[0]
  found = _NUMBER.findall(visible)
  return found[-1].replace(",", "") if found else ""


def unwrap(answer: str) -> str:
  """Takes off markdown, math delimiters and the punctuation of a sentence."""
  while True:
    before = answer
    answer = answer.strip().strip("*`").rstrip(".,;:").strip()
    for left, right in _DELIMITERS:
      inner = answer[len(left) : -len(right)]
      if (
        len(answer) > len(left) + len(right)
        and answer.startswith(left)
        and answer.endswith(right)
        and left not in inner
      ):
        answer = inner
    if answer == before:
      return answer


def _last_box(text: str) -> tuple[str, bool]:
  """Content of the last box that closes, and whether one stays open."""
  first = _BOX.search(text)
  if first is None:
    return "", False
  plain = _PLAIN_BOX.match(text, first.start())
  if plain and not _BOX.search(text, plain.end()) and plain[1].strip():
    return plain[1].strip(), False
  content, open_at = "", []
  for brace in _BRACE.finditer(text, first.start()):
    token = brace[0]
    if token == "}":
      start = open_at.pop() if open_at else None
      if start is not None:
        content = text[start : brace.start()].strip() or content
    elif token == "{":
      open_at.append(None)
    elif len(token) > 2:
      open_at.append(brace.end())
  return content, any(start is not None for start in open_at)


def _stated(text: str) -> str:
  """What the last `final answer is`, `Answer:` or `####` is followed by."""
  found = [*_FINAL.finditer(text), *_LINE.finditer(text)]
  found += _HASHES.finditer(text)
  last = max(found, key=lambda match: match.start(), default=None)
  if last is None:
    return ""
  if last.re is _FINAL:
    return unwrap(_SENTENCE.match(text, last.end())[0])
  return unwrap(last[1])
