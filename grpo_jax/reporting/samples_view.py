"""Completions from the start and the end of training, side by side."""

from collections.abc import Mapping, Sequence

from grpo_jax.reporting.page import Html, element
from grpo_jax.reporting.results import number

_SHOWN_CHARACTERS = 4000


def pair_samples(
  first: Sequence[Mapping], last: Sequence[Mapping], *, count: int
) -> list[tuple[Mapping, Mapping]]:
  """Pairs early with late completions of the same prompts.

  Of each prompt the first completion counts, whatever its reward: what is
  shown is not picked. Where the two share no prompt, an early prompt is paired
  with the late one that is nearest to it in length, each at most once.

  Args:
    first: completions from the start of training.
    last: completions from its end.
    count: pairs at most.
  """
  early = {str(row.get("prompt", "")): row for row in reversed(first)}
  late = {str(row.get("prompt", "")): row for row in reversed(last)}
  shared = [p for p in reversed(early) if p in late]
  if shared:
    return [(early[p], late[p]) for p in shared[:count]]
  pairs = []
  for prompt in reversed(early):
    if late and len(pairs) < count:
      nearest = min(late, key=lambda other: abs(len(other) - len(prompt)))
      pairs.append((early[prompt], late.pop(nearest)))
  return pairs


def samples_section(pairs: Sequence[tuple[Mapping, Mapping]]) -> list[Html]:
  """One block per pair: the prompt, then the two completions."""
  blocks = []
  for early, late in pairs:
    prompts = [str(row.get("prompt", "")) for row in (early, late)]
    same = prompts[0] == prompts[1]
    if same:
      blocks.append(element("h3", prompts[0]))
    cards = [
      _card(row, None if same else prompt)
      for row, prompt in zip((early, late), prompts, strict=True)
    ]
    blocks.append(element("div", *cards, class_="pair"))
  return blocks


def _card(row: Mapping, prompt: str | None) -> Html:
  facts = [element("b", f"step {row['step']}")]
  rewards = row.get("rewards")
  for name in rewards if isinstance(rewards, Mapping) else ():
    reward = number(rewards, name)
    if reward is not None:
      facts.append(element("span", f"{name} {reward:g}"))
  if row.get("stop_reason"):
    facts.append(element("span", f"stopped by {row['stop_reason']}"))
  completion = str(row.get("completion", ""))
  left_out = len(completion) - _SHOWN_CHARACTERS
  if left_out > 0:
    completion = f"{completion[:_SHOWN_CHARACTERS]} ... {left_out} more"
  heading = [] if prompt is None else [element("h3", prompt)]
  return element(
    "div",
    element("div", *facts, class_="meta"),
    *heading,
    element("pre", completion),
    class_="card",
  )
