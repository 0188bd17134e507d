"""The second tier: Math-Verify, in worker processes only, and checked.

Math-Verify compares with SymPy what the exact tier does not cover, such as
trigonometry and rational functions. It is neither symmetric nor transitive,
compares rounded numbers, and its own time limits need the main thread; so
here it gets gold and answer in this order, `screen` keeps from it what would
take for ever, the pool keeps the time, and whatever it finds equal must also
be equal at a few points to twelve digits.

Its reader of LaTeX builds expressions from a grammar. The one of plain text
ends in `eval` (sympy.parse_expr) and is not used.
"""

import importlib.util
from functools import lru_cache

from grpo_jax.errors import UserError
from grpo_jax.rewards.pool import Pool


def symbolic_pool(
  *,
  workers: int,
  limit_s: float,
  memory_mib: int = 1024,
  recycle_after: int = 2000,
) -> Pool:
  """A pool for `verify`; its processes take a second to start, once.

  Args:
    workers: processes at work at once.
    limit_s: wall-clock seconds for one comparison.
    memory_mib: address space of a worker.
    recycle_after: comparisons after which a worker is replaced, for SymPy's
      caches only grow.

  Raises:
    UserError: Math-Verify is not installed.
  """
  if importlib.util.find_spec("math_verify") is None:
    raise UserError(
      "Symbolic verification needs Math-Verify: pip install 'grpo_jax[math]'."
    )
  return Pool(
    f"{__name__}:equal",
    workers=workers,
    limit_s=limit_s,
    memory_mib=memory_mib,
    recycle_after=recycle_after,
  )


def prepare() -> None:
  """Imports Math-Verify and fills its caches, before workers are forked."""
  equal(r"\frac{1}{x+1}", r"\frac{2}{2x+2}")
  equal(r"\sin x", r"\cos x")


def equal(gold: str, answer: str) -> bool | None:
  """Whether Math-Verify and a check by numbers find them equal.

  Runs in a worker.

  Args:
    gold: the right answer, as `screen.readable` gives it.
    answer: to compare, likewise.

  Returns:
    None if one of them cannot be read.
  """
  from math_verify import verify

  from grpo_jax.rewards.second_opinion import agree

  expected, given = _read(gold), _read(answer)
  if expected is None or given is None:
    return None
  same = verify(
    expected, given, strict=True, timeout_seconds=None, raise_on_error=True
  )
  return bool(same) and agree(expected, given)


@lru_cache(maxsize=4096)
def _read(text: str):
  """A SymPy object, or None; cached, for golds come again and again."""
  from math_verify import LatexExtractionConfig, parse
  from sympy import Basic, MatrixBase

  found = parse(
    f"$\\boxed{{{text}}}$",
    extraction_config=[LatexExtractionConfig(boxed_match_priority=0)],
    fallback_mode="no_fallback",
    extraction_mode="first_match",
    parsing_timeout=None,
  )
  read = [item for item in found if isinstance(item, (Basic, MatrixBase))]
  return read[0] if read else None
