"""Which partial solutions of a tree are continued, and by how many children.

One tree has R rows, of which the finished ones stay where they are: they cost
nothing more, and are candidates in the end. The others, A of them, are shared
out among their best: every rule gives A children in all, so that a tree never
holds more than R candidates, each of them once.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Placement(NamedTuple):
  """Where the rows of the next step come from.

  Attributes:
    parents: the row that each row continues.
    child: its number among its parent's children.
  """

  parents: Int[np.ndarray, " R"]
  child: Int[np.ndarray, " R"]


def beam_children(
  scores: Float[np.ndarray, " R"],
  running: Bool[np.ndarray, " R"],
  *,
  branching: int,
) -> Int[np.ndarray, " R"]:
  """M children for each of the best A / M rows (arXiv:2408.03314).

  Args:
    scores: of the partial solutions; of equal ones the first is better.
    running: rows that have not finished.
    branching: M; 1 keeps every row, R a single one. The last of the kept rows
      gets what is left where M does not divide A.

  Raises:
    ValueError: M is below 1 or above R: there are fewer candidates than the
      beam is wide.
  """
  if not 1 <= branching <= len(scores):
    raise ValueError(
      f"A beam of {branching} children needs at least as many candidates, and"
      f" has {len(scores)}: raise the budget's samples or lower `branching`."
    )
  left = int(running.sum())
  children = np.zeros(len(scores), np.int64)
  for row in _best_first(scores, running):
    children[row] = min(branching, left)
    left -= children[row]
  return children


def rebase_children(
  scores: Float[np.ndarray, " R"],
  running: Bool[np.ndarray, " R"],
  *,
  temperature: float,
) -> Int[np.ndarray, " R"]:
  """A softmax(score / temperature) children per row: REBASE (arXiv:2408.00724).

  In whole numbers that sum to A, by largest remainder; the paper's code rounds
  up while walking down the scores, which gives the best rows more.

  Args:
    scores: of the partial solutions.
    running: rows that have not finished.
    temperature: of the softmax, in units of the scores; the paper has 0.2.

  Raises:
    ValueError: the temperature is not positive.
  """
  if temperature <= 0:
    raise ValueError("The temperature of REBASE must be positive.")
  children = np.zeros(len(scores), np.int64)
  rows = _best_first(scores, running)
  if not rows.size:
    return children
  shares = np.exp((scores[rows] - scores[rows].max()) / temperature)
  shares *= len(rows) / shares.sum()
  whole = np.floor(shares + 1e-9).astype(np.int64)  # 1 may be 0.99999...
  missing = len(rows) - whole.sum()
  largest = np.argsort(-np.round(shares - whole, 9), kind="stable")
  whole[largest[:missing]] += 1
  children[rows] = whole
  return children


def place(
  children: Int[np.ndarray, " R"], running: Bool[np.ndarray, " R"]
) -> Placement:
  """Puts children into rows; a row's first child stays in its place.

  Args:
    children: of each row; 0 for finished ones, and as many as there are
      running rows in all.
    running: rows that have not finished; the others keep their place.
  """
  parents, child = np.arange(len(children)), np.zeros(len(children), np.int64)
  free = iter(np.flatnonzero(running & (children == 0)))
  for row in np.flatnonzero(children > 1):
    for number in range(1, children[row]):
      at = next(free)
      parents[at], child[at] = row, number
  return Placement(parents, child)


def _best_first(scores: np.ndarray, running: np.ndarray) -> np.ndarray:
  rows = np.flatnonzero(running)
  return rows[np.argsort(-scores[rows], kind="stable")]
