"""What the oracles of several files share."""

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from grpo_jax.types import TrainBatch

# Few shapes, so that few programs are compiled; G = 1 is one of them.
SHAPES = st.sampled_from([(3, 4, 5), (2, 1, 3)])
SEEDS = st.integers(0, 2**32 - 1)


def penalty_batch(loss_mask, *, old_logp=None, ref_logp=None) -> TrainBatch:
  """What a penalty reads of a batch; the rest is left out."""
  return TrainBatch(
    rows=None,
    tokens=None,
    loss_mask=jnp.asarray(loss_mask, bool),
    weight=None,
    advantage=None,
    old_logp=old_logp,
    ref_logp=ref_logp,
  )


def groups_oracle(formula, sample_mask, *arrays):
  """Applies a formula to what is kept of each group; the rest is 0."""
  out = np.zeros(sample_mask.shape)
  for p, keep in enumerate(sample_mask):
    if keep.any():
      out[p, keep] = formula(*(x[p, keep] for x in arrays))
  return out


def centred(r):
  return r - r.mean() if max(r) > min(r) else np.zeros(len(r))
