"""The outcome of a run, before against after, as rows for a table.

A result is the dict of results.json: "before" and "after", each with "samples"
(per question), "pass@k" and "maj@k" with "_low" and "_high" (95 % interval over
questions), "mean_length" (tokens), "truncated_fraction", "by_difficulty", and
"sets", each with its "questions" and the same figures; "difference" with
"pass@1", "low", "high", and "sets" with these; "evaluation", how it sampled;
"seconds" by phase. Whatever is missing is left out.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Comparison(NamedTuple):
  """One quantity before and after training, formatted; "" where unknown."""

  name: str
  before: str
  after: str
  difference: str


def number(mapping: object, *keys: str) -> float | None:
  """The finite number at mapping[key][key]..., None where there is none."""
  for key in keys:
    mapping = mapping.get(key) if isinstance(mapping, Mapping) else None
  if isinstance(mapping, bool) or not isinstance(mapping, int | float):
    return None
  return float(mapping) if math.isfinite(mapping) else None


def read_json(path: Path) -> dict:
  """Reads a JSON object; {} where there is none, or a broken one."""
  try:
    value = json.loads(path.read_bytes())
  except (OSError, ValueError):
    return {}
  return value if isinstance(value, dict) else {}


def load_results(workdir: Path, rows: Sequence[Mapping]) -> dict:
  """Reads results.json; fills what it lacks from the evaluation rows.

  An interrupted run has no results.json: "before" is then its first and
  "after" its last evaluation, and "steps" its last training step.
  """
  evaluations = [row for row in rows if number(row, "eval/pass@1") is not None]
  results = {"steps": rows[-1]["step"]} if rows else {}
  if evaluations:
    results["before"] = _evaluation(evaluations[0])
  if len(evaluations) > 1:
    results["after"] = _evaluation(evaluations[-1])
  return results | read_json(workdir / "results.json")


def _evaluation(row: Mapping) -> dict:
  """The eval/* metrics of a row in the form of results.json."""
  metrics = {k.removeprefix("eval/"): v for k, v in row.items() if "eval/" in k}
  by_difficulty = {
    name.removeprefix("pass@1/"): {"pass@1": metrics.pop(name)}
    for name in list(metrics)
    if name.startswith("pass@1/")
  }
  sets = {}
  for key, value in row.items():
    of_set = re.fullmatch(r"eval_(.+)/([^/]+)", key)
    if of_set:
      sets.setdefault(of_set[1], {})[of_set[2]] = value
  named_sets = {"sets": sets} if sets else {}
  return metrics | {"by_difficulty": by_difficulty} | named_sets


def overall_rows(results: Mapping) -> list[Comparison]:
  """pass@k and maj@k with their 95 % intervals, mean length, truncated ones."""
  names = {name for side in _sides(results) for name in side}
  rows = [
    _compare(f"{kind}@{k}", results, f"{kind}@{k}")
    for kind in ("pass", "maj")
    for k in _sizes(kind, names)
    if (kind, k) != ("maj", 1)  # one vote is pass@1
  ]
  rows.append(_compare("mean tokens", results, "mean_length", digits=1))
  rows.append(_compare("truncated", results, "truncated_fraction"))
  return [row for row in rows if row.before or row.after]


def set_rows(results: Mapping) -> list[Comparison]:
  """Of each evaluation set avg@n, pass@k and maj@k of the largest k, truncated.

  Empty for fewer than two sets, of which the overall figures tell all.
  """
  sets = {}
  for side in _sides(results):
    found = side.get("sets")
    for name, figures in found.items() if isinstance(found, Mapping) else ():
      if isinstance(figures, Mapping):
        sets.setdefault(name, {}).update(figures)
  rows = []
  for name, figures in sets.items() if len(sets) > 1 else ():
    asked, samples = (number(figures, n) for n in ("questions", "samples"))
    title = name if asked is None else f"{name} ({asked:.0f})"
    average = "pass@1" if samples is None else f"avg@{samples:.0f}"
    shown = [(average, "pass@1")]
    for kind in ("pass", "maj"):
      shown += [
        (f"{kind}@{k}", f"{kind}@{k}")
        for k in _sizes(kind, figures)[-1:]
        if k > 1
      ]
    shown.append(("truncated", "truncated_fraction"))
    rows += [
      _compare(f"{title} {label}", results, "sets", name, key)
      for label, key in shown
    ]
  return [row for row in rows if row.before or row.after]


def _sizes(kind: str, names: Iterable[str]) -> list[int]:
  """The k of all names like pass@k."""
  found = (re.fullmatch(rf"{kind}@(\d+)", name) for name in names)
  return sorted(int(match[1]) for match in found if match)


def sampling_note(results: Mapping) -> str:
  """How completions of held-out questions were sampled; "" where unknown."""
  told = results.get("evaluation")
  if not isinstance(told, Mapping):
    return ""
  parts = [f"{name.replace('_', ' ')} {value}" for name, value in told.items()]
  return "Sampling: " + ", ".join(parts) + "."


def difficulty_rows(results: Mapping) -> list[Comparison]:
  """pass@1 per difficulty, named "label (questions)"."""
  rows = []
  for label in difficulties(results):
    keys = ("by_difficulty", label)
    asked = number(results, "before", *keys, "questions")
    name = label if asked is None else f"{label} ({asked:.0f})"
    rows.append(_compare(name, results, *keys, "pass@1"))
  return [row for row in rows if row.before or row.after]


def difficulties(results: Mapping) -> list[str]:
  """The difficulty labels, ordered by the numbers in them."""
  labels = {}
  for side in _sides(results):
    if isinstance(side.get("by_difficulty"), Mapping):
      labels |= side["by_difficulty"]
  return sorted(
    labels,
    key=lambda label: [
      (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
      for part in re.split(r"(\d+)", label)
    ],
  )


def with_interval(mapping: Mapping, *keys: str, digits: int = 3) -> str:
  """A number as "0.412 [0.36, 0.46]", its ends from <key>_low and <key>_high.

  Without the interval where an end is unknown; "" without the number.
  """
  value = number(mapping, *keys)
  if value is None:
    return ""
  low = number(mapping, *keys[:-1], f"{keys[-1]}_low")
  high = number(mapping, *keys[:-1], f"{keys[-1]}_high")
  ends = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
  return f"{value:.{digits}f}{ends}"


def difference(results: Mapping, *keys: str, digits: int = 3) -> str:
  """After minus before, signed, with its interval where there is one."""
  value = number(results, "difference", *keys)
  before = number(results, "before", *keys)
  after = number(results, "after", *keys)
  if value is None and before is not None and after is not None:
    value = after - before
  if value is None:
    return ""
  low, high = (
    number(results, "difference", *keys[:-1], end) for end in ("low", "high")
  )
  known = keys[-1] == "pass@1" and low is not None and high is not None
  ends = f" [{low:+.2f}, {high:+.2f}]" if known else ""
  return f"{value:+.{digits}f}{ends}"


def _sides(results: Mapping) -> list[Mapping]:
  sides = (results.get("before"), results.get("after"))
  return [side if isinstance(side, Mapping) else {} for side in sides]


def _compare(
  name: str, results: Mapping, *keys: str, digits: int = 3
) -> Comparison:
  before, after = _sides(results)
  return Comparison(
    name,
    with_interval(before, *keys, digits=digits),
    with_interval(after, *keys, digits=digits),
    difference(results, *keys, digits=digits),
  )
