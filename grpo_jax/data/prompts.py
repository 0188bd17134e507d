"""An endless, seeded, index-addressable stream of training problems."""

from collections.abc import Sequence

import grain

from grpo_jax.data.example import Example


def check_seed(seed: int) -> None:
  """Raises ValueError for a seed that grain does not take."""
  if not 0 <= seed < 2**32:
    raise ValueError(f"the seed must lie between 0 and 2^32 - 1, not {seed}.")


def prompt_stream(examples: Sequence[Example], *, seed: int):
  """Shuffles the examples anew in each epoch, without end.

  Args:
    examples: the training problems.
    seed: of the shuffles.

  Returns:
    A `grain.MapDataset`: `stream[i]` is the i-th problem drawn, for any i, so
    the state of a run is one integer.

  Raises:
    ValueError: there is no example.
  """
  if not examples:
    raise ValueError("There are no training problems to draw from.")
  return grain.MapDataset.source(examples).seed(seed).shuffle().repeat()


def check_disjoint(train: Sequence[Example], test: Sequence[Example]) -> None:
  """Raises ValueError if a question is in both, or twice in test."""
  seen = {example.question for example in train}
  shared = [e.question for e in test if e.question in seen]
  if shared:
    raise ValueError(
      f"{len(shared)} held-out questions are also in the training split,"
      f" for example: {shared[0]!r}. Results on them would not be held-out."
    )
  if len({example.question for example in test}) < len(test):
    raise ValueError("The held-out split holds a question more than once.")
