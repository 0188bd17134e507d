"""Process rewards: judged steps of a text, laid on the tokens that end them."""

import bisect
from collections.abc import Callable, Sequence

import numpy as np

from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.errors import UserError

# (example, completion) -> (end, reward) of each step, in the order of the
# text. `end` counts the characters up to the step's end; beyond the text it
# means the completion's last token.
StepJudge = Callable[[object, str], Sequence[tuple[int, float]]]


def judged_steps(
  judge: StepJudge,
  tokenizer: Tokenizer,
  examples: Sequence[object],
  texts: Sequence[Sequence[str]],
  tokens: np.ndarray,
  lengths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Rewards of steps, and where steps end, both `[P, G, T]`.

  Args:
    judge: of the steps of one completion.
    tokenizer: of the completions.
    examples: P problems.
    texts: G completions of each.
    tokens: the same, `[P, G, T]`.
    lengths: in tokens, `[P, G]`.

  Returns:
    float32 rewards and a bool mask. Of two steps that end on the same token
    the later one counts.
  """
  rewards = np.zeros(tokens.shape, np.float32)
  mask = np.zeros(tokens.shape, bool)
  for p, g in np.ndindex(*lengths.shape):
    steps = _checked(judge(examples[p], texts[p][g]), texts[p][g])
    row, count = tokens[p, g], int(lengths[p, g])
    if not steps or not count:
      continue
    for end, reward in steps:
      # The first token by which the text has grown to the step's end.
      t = bisect.bisect_left(
        range(count - 1),
        end,
        key=lambda t, row=row: len(tokenizer.decode(row[: t + 1])),
      )
      rewards[p, g, t] = reward
      mask[p, g, t] = True
  return rewards, mask


def _checked(steps, text: str) -> Sequence[tuple[int, float]]:
  """Steps whose ends and rewards are finite numbers."""
  try:
    fine = all(np.isfinite(end) and np.isfinite(r) for end, r in steps)
  except (TypeError, ValueError):
    fine = False
  if not fine:
    raise UserError(
      f"judge_steps gave {steps!r} for the completion {text[:200]!r}; it must"
      " give pairs of an end, in characters, and a finite reward.",
      exit_code=1,
    )
  return steps
