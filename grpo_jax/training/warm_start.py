"""Supervised learning on written-out completions, before reinforcement.

The "cold start" of DeepSeek-R1 (arXiv:2501.12948). It is the same train step
under the recipe `supervised`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.algorithms.weights import token_mean
from grpo_jax.training.packing import packed_rows, place
from grpo_jax.types import TrainBatch


def supervised_batch(
  sequence: Callable[[int], tuple[list[int], list[int]]],
  start: int,
  *,
  rows: int,
  width: int,
  max_sequences: int,
  completion_width: int,
) -> tuple[TrainBatch, int]:
  """Packs as many sequences as fit the rows, every token weighted the same.

  Args:
    sequence: index -> (prompt, completion with its end token), token ids.
    start: the first index to take.
    rows: R.
    width: S, tokens of a row.
    max_sequences: N, completions that the batch has room for.
    completion_width: T, the longest completion taken; longer ones are left out.

  Returns:
    A batch whose leaves lead with a microbatch axis of one, and the first
    index that it did not take.
  """
  prompts, completions, places, used = [], [], [], [0] * rows
  index = start
  while len(places) < max_sequences:
    prompt, completion = sequence(index)
    length = len(prompt) + len(completion)
    if len(completion) <= completion_width and length <= width:
      at = place(length, used, width=width)
      if at is None:
        break
      prompts.append(prompt)
      completions.append(completion)
      places.append(at)
    index += 1
  laid, tokens, mask = packed_rows(
    prompts,
    completions,
    places,
    rows=rows,
    width=width,
    max_sequences=max_sequences,
    completion_width=completion_width,
  )
  batch = TrainBatch(
    rows=laid,
    tokens=tokens,
    loss_mask=mask,
    weight=token_mean(mask),
    advantage=np.ones(mask.shape, np.float32),
    old_logp=np.zeros(mask.shape, np.float32),
    ref_logp=np.zeros(mask.shape, np.float32),
  )
  return jax.tree.map(lambda x: jnp.asarray(x)[None], batch), index
