"""An endless, seeded, index-addressable stream of training problems."""

from collections.abc import Callable, Mapping, Sequence

import grain

from grpo_jax.data.example import Example


def check_seed(seed: int) -> None:
  """Raises ValueError for a seed that grain does not take."""
  if not 0 <= seed < 2**32:
    raise ValueError(f"the seed must lie between 0 and 2^32 - 1, not {seed}.")


def question_key(question: str) -> str:
  """What makes two questions the same: not their case, nor white space."""
  return " ".join(question.casefold().split())


def prompt_stream(problems: Sequence, *, seed: int):
  """Shuffles the problems anew in each epoch, without end.

  Args:
    problems: to train on, or their indices.
    seed: of the shuffles.

  Returns:
    A `grain.MapDataset`: `stream[i]` is the i-th problem drawn, for any i, so
    the state of a run is one integer.

  Raises:
    ValueError: there is no problem.
  """
  if not problems:
    raise ValueError("There are no training problems to draw from.")
  return grain.MapDataset.source(problems).seed(seed).shuffle().repeat()


def mixed_prompt_stream(
  sets: Mapping[str, Sequence], weights: Mapping[str, float], *, seed: int
):
  """Draws from several sets in fixed proportions, each shuffled by itself.

  Any stretch of the stream has nearly its share of each set; a small set goes
  through more epochs than a large one.

  Args:
    sets: problems, or their indices, by name.
    weights: of the same names, in any unit; proportions are kept to 1 %.
    seed: of the shuffles.

  Returns:
    A stream as of `prompt_stream`.

  Raises:
    ValueError: names differ, a weight is not positive, or a set is empty.
  """
  if sets.keys() != weights.keys():
    raise ValueError(
      f"There are weights for {sorted(weights)}, and problems of"
      f" {sorted(sets)} to train on."
    )
  for name, weight in weights.items():
    if not 0 < weight < float("inf"):
      raise ValueError(f"The weight of {name} must be positive, not {weight}.")
    if not sets[name]:
      raise ValueError(f"There are no problems of {name} to train on.")
  streams = [
    prompt_stream(sets[name], seed=seed + place)
    for place, name in enumerate(weights)
  ]
  return grain.MapDataset.mix(streams, list(weights.values()))


def host_slice(positions: Sequence[int], *, host: int, hosts: int):
  """The part of a draw that one host reads: all parts in order are the whole.

  Args:
    positions: in the stream, the same on every host.
    host: index of this one.
    hosts: how many there are.

  Returns:
    A contiguous part; sizes differ by one at most.
  """
  start, end = (len(positions) * h // hosts for h in (host, host + 1))
  return positions[start:end]


def fitting(
  examples: Sequence[Example],
  tokens: Callable[[Example], int],
  *,
  max_prompt_tokens: int,
) -> list[Example]:
  """The training problems whose prompts are not too long.

  Args:
    examples: to train on.
    tokens: of an example's prompt.
    max_prompt_tokens: tokens that a prompt may have.

  Raises:
    ValueError: there is none.
  """
  lengths = [tokens(example) for example in examples]
  kept = [
    example
    for example, length in zip(examples, lengths, strict=True)
    if length <= max_prompt_tokens
  ]
  if not kept:
    raise ValueError(
      f"No training problem's prompt has at most max_prompt_tokens ="
      f" {max_prompt_tokens} tokens; they have {min(lengths)} to"
      f" {max(lengths)}."
    )
  return kept


def check_disjoint(train: Sequence[Example], test: Sequence[Example]) -> None:
  """Raises ValueError if a question is in both, or twice in test.

  Case and white space make no difference between the two.
  """
  seen = {question_key(example.question) for example in train}
  shared = [e.question for e in test if question_key(e.question) in seen]
  if shared:
    raise ValueError(
      f"{len(shared)} held-out questions are also in the training split,"
      f" for example: {shared[0]!r}. Results on them would not be held-out."
    )
  if len({example.question for example in test}) < len(test):
    raise ValueError("The held-out split holds a question more than once.")
