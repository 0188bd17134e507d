"""Tables as text for a terminal, and the final results as one."""

from collections.abc import Mapping, Sequence

from grpo_jax.reporting import results as outcome


def results_table(results: Mapping) -> str:
  """Formats a run's outcome: before, after, and the paired difference.

  Args:
    results: the dict of results.json (see `reporting.results`); what it lacks
      is left out.

  Returns:
    Lines of at most 80 columns for the usual names, without a last newline;
    "" when there is nothing to show.
  """
  overall = outcome.overall_rows(results)
  parts = {
    "evaluation set (questions)": outcome.set_rows(results),
    "pass@1 per difficulty (questions)": outcome.difficulty_rows(results),
  }
  if not overall:
    return ""
  rows = [outcome.Comparison("", "before", "after", "difference"), *overall]
  for part in parts.values():
    rows += [row._replace(name=f"  {row.name}") for row in part]
  lines = iter(text_table(rows).split("\n"))
  shown = [next(lines) for _ in range(1 + len(overall))]
  for heading, part in parts.items():
    if part:
      shown += [heading, *(next(lines) for _ in part)]
  return "\n".join(shown)


def text_table(rows: Sequence[Sequence[str]]) -> str:
  """Rows of cells as lines whose columns are aligned."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return "\n".join(
    "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
  )
