"""The final results as text for a terminal."""

from collections.abc import Mapping

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
  by_difficulty = outcome.difficulty_rows(results)
  if not overall:
    return ""
  rows = [outcome.Comparison("", "before", "after", "difference"), *overall]
  if by_difficulty:
    heading = "pass@1 per difficulty (questions)"
    rows += [row._replace(name=f"  {row.name}") for row in by_difficulty]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
  if by_difficulty:
    lines.insert(1 + len(overall), heading)
  return "\n".join(lines)
