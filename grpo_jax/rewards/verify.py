r"""Verdicts: is the answer of a completion the right one?

    gold = parse_gold(r"\frac{1}{2}")
    verify(gold, r"... so it is \boxed{0.5}.").outcome  # "correct"

The exact tier decides in this process, in microseconds. Only what it does not
cover goes to the processes of the second tier, if there are any.
"""

import enum
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from grpo_jax.errors import UserError
from grpo_jax.rewards.equivalence import Canonical, canonical, compare
from grpo_jax.rewards.extraction import Status, extract
from grpo_jax.rewards.pool import Pool, Result
from grpo_jax.rewards.screen import readable
from grpo_jax.rewards.thinking import thinking_prefix


class Outcome(enum.StrEnum):
  """What is found of a completion: exactly one of these.

  Only `correct` is worth a reward. `no_answer` states none, `truncated` ends
  within its box or its thinking, and neither tier reads an `unparsable` one;
  `timed_out` and `crashed` are failures of the second tier, not of the answer.
  """

  CORRECT = "correct"
  WRONG = "wrong"
  NO_ANSWER = "no_answer"
  TRUNCATED = "truncated"
  UNPARSABLE = "unparsable"
  TIMED_OUT = "timed_out"
  CRASHED = "crashed"


# (examples, completions) -> the outcome of each completion, in their order; a
# function of the batch alone. Failures to read or compare an answer are
# outcomes; only a reference without an answer is an error.
Verifier = Callable[[Sequence[object], Sequence[str]], Sequence[Outcome]]

_WITHOUT_ANSWER = {"none": Outcome.NO_ANSWER, "truncated": Outcome.TRUNCATED}


class Verdict(NamedTuple):
  """What a completion is worth, and how that was found.

  Attributes:
    outcome: of the comparison, or of the search for an answer.
    answer: as extracted; empty if there is none.
    status: how it was extracted.
    tier: which decided.
  """

  outcome: Outcome
  answer: str
  status: Status
  tier: Literal["exact", "symbolic", "none"]


class Gold(NamedTuple):
  """A right answer, read once for all completions."""

  answer: str
  meaning: Canonical


def parse_gold(text: str) -> Gold:
  r"""The right answer of a problem.

  Args:
    text: the answer itself, or a solution that ends in `\boxed{}` or, as
      GSM8K's do, in `#### number`.

  Raises:
    UserError: there is none.
  """
  found = extract(text).answer
  answer = found or ("" if "\\boxed" in text else text.strip())
  if not answer:
    raise UserError(f"No answer in the gold solution {text[-200:]!r}.")
  return Gold(answer, canonical(answer))


def verify(gold: Gold, completion: str, pool: Pool | None = None) -> Verdict:
  """The verdict on one completion; see `verify_all`."""
  return verify_all([gold], [completion], pool)[0]


def verify_all(
  golds: Sequence[Gold],
  completions: Sequence[str],
  pool: Pool | None = None,
) -> list[Verdict]:
  """The verdict on each completion, given the gold at the same place.

  Args:
    golds: right answers.
    completions: texts, with their thinking.
    pool: from `symbolic_pool`. Without one, what the exact tier does not
      decide is `unparsable`.

  Returns:
    Verdicts in the same order; the same whatever the pool's size.
  """
  verdicts: list[Verdict] = []
  undecided: dict[tuple[str, str], list[int]] = {}
  for gold, completion in zip(golds, completions, strict=True):
    answer, status = extract(completion)
    equal = compare(gold.meaning, canonical(answer)) if answer else None
    if not answer:
      verdict = Verdict(_WITHOUT_ANSWER[status], answer, status, "none")
    elif equal is None:
      verdict = Verdict(Outcome.UNPARSABLE, answer, status, "none")
      pair = _readable_pair(gold, answer) if pool else None
      if pair:
        undecided.setdefault(pair, []).append(len(verdicts))
    else:
      outcome = Outcome.CORRECT if equal else Outcome.WRONG
      verdict = Verdict(outcome, answer, status, "exact")
    verdicts.append(verdict)
  if undecided:
    results = pool.map(list(undecided))
    for places, result in zip(undecided.values(), results, strict=True):
      for place in places:
        verdicts[place] = verdicts[place]._replace(
          outcome=_outcome(result), tier="symbolic"
        )
  return verdicts


def reference_verifier(
  pool: Pool, *, prompt: Callable[[object], str] | None = None
) -> Verifier:
  """Both tiers against `example.answer`, for a task's `verify`.

  Args:
    pool: from `symbolic_pool`; closing it is the caller's.
    prompt: the task's, where a chat template may begin the thinking itself.
  """
  gold_of = functools.cache(parse_gold)  # references are read once each

  def verify_batch(examples, completions):
    texts = [
      (thinking_prefix(prompt(example)) if prompt else "") + completion
      for example, completion in zip(examples, completions, strict=True)
    ]
    golds = [gold_of(example.answer) for example in examples]
    return [verdict.outcome for verdict in verify_all(golds, texts, pool)]

  return verify_batch


def count_outcomes(verdicts: Iterable[Verdict]) -> dict[str, int]:
  """How many there are of each outcome, those of 0 included."""
  counted = Counter(verdict.outcome for verdict in verdicts)
  return {str(outcome): counted[outcome] for outcome in Outcome}


def _readable_pair(gold: Gold, answer: str) -> tuple[str, str] | None:
  pair = readable(gold.answer), readable(answer)
  return pair if all(pair) else None


def _outcome(result: Result) -> Outcome:
  if result.status == "timed_out":
    return Outcome.TIMED_OUT
  if result.status != "done":
    return Outcome.CRASHED
  if result.value is None:
    return Outcome.UNPARSABLE
  return Outcome.CORRECT if result.value is True else Outcome.WRONG
