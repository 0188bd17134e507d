"""Writes a run's report: one HTML page with everything in it."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_jax.reporting import results as outcome
from grpo_jax.reporting.page import Html, document, element, table
from grpo_jax.reporting.plots import Plot, draw_plots
from grpo_jax.reporting.results import number
from grpo_jax.reporting.samples_view import pair_samples, samples_section
from grpo_jax.reporting.sinks import read_edge_samples, read_metrics


def write_report(workdir: str | os.PathLike) -> Path:
  """Writes <workdir>/report/index.html and its plots as PNG files.

  The page loads nothing and holds its plots, so that it can be sent alone. It
  is made of metrics.jsonl, samples.jsonl.gz, results.json and config.json;
  whatever is missing or broken is left out, as after an interrupted run.

  Args:
    workdir: the run's directory.

  Returns:
    The path of index.html.

  Raises:
    OSError: the report cannot be written.
  """
  workdir = Path(workdir)
  rows = read_metrics(workdir / "metrics.jsonl")
  results = outcome.load_results(workdir, rows)
  config = outcome.read_json(workdir / "config.json")
  pairs = pair_samples(
    *read_edge_samples(workdir / "samples.jsonl.gz"), count=3
  )
  directory = workdir / "report"
  directory.mkdir(parents=True, exist_ok=True)
  plots = draw_plots(rows, results, directory)

  title = f"{results.get('recipe', 'run')} · {workdir.resolve().name}"
  body = [
    *_header(title, results, rows, (workdir / "results.json").exists()),
    *_cards(results, rows),
    *_plots(plots, directory, rows),
    *_tables(results),
    *_samples(pairs),
    *_config(config),
    _footer(results),
  ]
  path = directory / "index.html"
  # A sampled token may hold half a character, which UTF-8 cannot.
  path.write_text(document(title, *body), encoding="utf-8", errors="replace")
  return path


def _header(title, results, rows, finished: bool) -> list[Html]:
  facts = []
  if number(results, "steps") is not None:
    facts.append(f"{results['steps']:.0f} steps")
  if "seed" in results:
    facts.append(f"seed {results['seed']}")
  if results.get("device"):
    facts.append(str(results["device"]))
  parts = [element("h1", title), element("p", " · ".join(facts))]
  if not rows:
    note = "There are no metrics: the run ended before its first evaluation."
    parts.append(element("p", note, class_="note"))
  elif not finished:
    note = (
      f"This run has no final results. What is shown ends at step "
      f"{rows[-1]['step']}; before and after are its first and last evaluation."
    )
    parts.append(element("p", note, class_="note"))
  return parts


def _cards(results: Mapping, rows: Sequence[Mapping]) -> list[Html]:
  gain, _, ends = outcome.difference(results, "pass@1").partition(" ")
  gain_range = ends.strip("[]").replace(", ", " to ")
  seconds, phases = _wall_time(results, rows)
  cards = [
    ("pass@1", _change(results, "pass@1", 3), _ranges(results)),
    ("gain in pass@1", gain, ends and f"95 %: {gain_range}, paired"),
    ("mean length", _change(results, "mean_length", 1), "tokens"),
    (
      "truncated",
      _change(results, "truncated_fraction", 3),
      "fraction of completions",
    ),
    ("wall time", seconds, phases),
  ]
  shown = [
    element(
      "div",
      element("div", label, class_="label"),
      element("div", value, class_="value"),
      element("div", detail, class_="detail"),
      class_="card lead" if label == "gain in pass@1" else "card",
    )
    for label, value, detail in cards
    if value
  ]
  return [element("div", *shown, class_="cards")] if shown else []


def _ranges(results: Mapping) -> str:
  """The 95 % intervals of pass@1: "95 %: 0.29-0.37 → 0.61-0.69"."""
  ranges = []
  for side in ("before", "after"):
    low = number(results, side, "pass@1_low")
    high = number(results, side, "pass@1_high")
    if low is not None and high is not None:
      ranges.append(f"{low:.2f}\u2013{high:.2f}")
  return "95 %: " + " → ".join(ranges) if ranges else ""


def _change(results: Mapping, key: str, digits: int) -> str:
  values = (number(results, side, key) for side in ("before", "after"))
  return " → ".join(f"{v:.{digits}f}" for v in values if v is not None)


def _wall_time(results: Mapping, rows) -> tuple[str, str]:
  """The run's time and its three longest phases, formatted."""
  total = number(results, "seconds", "total")
  if total is None:
    steps = [number(row, "time/step_s") for row in rows]
    total = sum(step for step in steps if step is not None)
    return (_duration(total), "training steps") if total else ("", "")
  phases = {
    name: number(results["seconds"], name) for name in results["seconds"]
  }
  phases = {k: v for k, v in phases.items() if v is not None and k != "total"}
  longest = sorted(phases, key=phases.get, reverse=True)[:3]
  return _duration(total), ", ".join(
    f"{name.replace('_', ' ')} {_duration(phases[name])}" for name in longest
  )


def _duration(seconds: float) -> str:
  if seconds < 60:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _plots(plots: Sequence[Plot], directory: Path, rows) -> list[Html]:
  figures = []
  for plot in plots:
    png = (directory / f"{plot.name}.png").read_bytes()
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    image = Html(f'<img src="{source}" alt="{plot.title}">')
    figures.append(
      element("figure", image, element("figcaption", plot.caption))
    )
  if not figures:
    return []
  note = (
    "A strong line over a faint one is the mean over a 25th of the run's steps."
  )
  return [
    element("h2", "Training"),
    *([element("p", note)] if len(rows) >= 75 else []),
    element("div", *figures, class_="plots"),
  ]


def _tables(results: Mapping) -> list[Html]:
  tables = []
  for name, rows in (
    ("all questions", outcome.overall_rows(results)),
    ("set (questions)", outcome.set_rows(results)),
    ("pass@1 (questions)", outcome.difficulty_rows(results)),
  ):
    if rows:
      tables.append(table([name, "before", "after", "difference"], rows))
  if not tables:
    return []
  note = (
    "Held-out questions. 95 % intervals over questions in brackets."
    f" {outcome.sampling_note(results)}"
  ).strip()
  return [
    element("h2", "Results"),
    element("p", note),
    element("div", *tables, class_="tables"),
  ]


def _samples(pairs) -> list[Html]:
  if not pairs:
    return []
  heading = element("h2", "Completions, from the start and the end of training")
  note = "The first completion of each prompt, not picked by its reward."
  return [heading, element("p", note), *samples_section(pairs)]


def _config(config: Mapping) -> list[Html]:
  if not config:
    return []
  text = json.dumps(config, indent=2, ensure_ascii=False)
  summary = element("summary", "Configuration")
  return [element("details", summary, element("pre", text))]


def _footer(results: Mapping) -> Html:
  versions = results.get("versions")
  facts = [str(results["device"])] if results.get("device") else []
  if isinstance(versions, Mapping):
    facts += [f"{name} {version}" for name, version in versions.items()]
  return element("footer", " · ".join(["grpo_jax", *facts]))
