"""How hard questions are for a model, in bins (Snell et al., arXiv:2408.03314).

Difficulty belongs to the model: its own pass@1 (`oracle`, which knows the
answers), or a verifier's mean score of its own samples (`predicted`, which
does not). Estimate it from samples that are not scored afterwards, or the
bins' accuracies move towards the mean.
"""

import numpy as np
from jaxtyping import Float, Int, Shaped


def oracle_ease(
  right: Shaped[np.ndarray, "Q N"],
) -> Float[np.ndarray, " Q"]:
  """Pass@1 of each question: the share of right samples."""
  return np.mean(right, axis=1, dtype=np.float64)


def predicted_ease(
  scores: Float[np.ndarray, "Q N"],
) -> Float[np.ndarray, " Q"]:
  """A verifier's mean score of each question's samples, without answers."""
  return np.mean(scores, axis=1, dtype=np.float64)


def quantile_bins(
  ease: Float[np.ndarray, " Q"], *, bins: int
) -> Int[np.ndarray, " Q"]:
  """Bins of about the same number of questions; 0 holds the easiest.

  A question's bin is that of its rank. Questions that tie are all given the
  middle of their ranks, so they share a bin, and no order of the questions
  matters; bins are then uneven, and some may be empty.

  Args:
    ease: of each question; higher is easier.
    bins: Snell et al. use 5.

  Raises:
    ValueError: `bins` is below 1, or an ease is not a number.
  """
  if bins < 1:
    raise ValueError("Questions need at least 1 bin of difficulty.")
  if np.isnan(ease).any():
    raise ValueError("The ease of a question is NaN.")
  group, counts = np.unique(  # ascending, so the easiest first
    -ease, return_inverse=True, return_counts=True
  )[1:]
  middle = np.cumsum(counts) - counts / 2
  return (bins * middle / max(len(ease), 1)).astype(np.int64)[group]


def threshold_bins(
  ease: Float[np.ndarray, " Q"], *, thresholds: tuple[float, ...]
) -> Int[np.ndarray, " Q"]:
  """Bins between fixed values of ease; 0 holds the easiest.

  Unlike quantiles they mean the same for two models. Liu et al.
  (arXiv:2502.06703) cut pass@1 at 0.5 and 0.1.

  Args:
    ease: of each question; higher is easier.
    thresholds: descending; a question at one is in the easier bin.

  Raises:
    ValueError: the thresholds do not descend, or an ease is not a number.
  """
  if (np.diff(thresholds) >= 0).any():
    raise ValueError(f"Thresholds must descend: {thresholds}.")
  if np.isnan(ease).any():
    raise ValueError("The ease of a question is NaN.")
  return np.sum(ease[:, None] < np.array(thresholds), axis=1)
