"""The plots of a run; one without data is not drawn."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from grpo_jax.reporting import charts
from grpo_jax.reporting.charts import (
  BLUE,
  GREEN,
  GREY,
  ORANGE,
  SKY,
  VERMILION,
)
from grpo_jax.reporting.results import difficulties, number


class Plot(NamedTuple):
  """One plot: its file's name, its title, what it shows, how it is drawn.

  `draw(axes, rows)` returns False when there is nothing to draw.
  """

  name: str
  title: str
  caption: str
  draw: Callable[..., bool]


def draw_plots(
  rows: Sequence[Mapping], results: Mapping, directory: Path
) -> list[Plot]:
  """Writes <name>.png into a directory for each plot that has data.

  Args:
    rows: the rows of metrics.jsonl.
    results: as `reporting.results.load_results` returns them.
    directory: where the files go; it must exist.

  Returns:
    The plots that were drawn, in the order in which to show them.
  """
  # Imported here: it takes a second, which only the end of a run has to pay.
  import matplotlib

  drawn = []
  with matplotlib.rc_context(charts.STYLE):
    for plot in [*_quality_plots(results), *_health_plots(), *_speed_plots()]:
      axes = charts.new_axes()
      if plot.draw(axes, rows):
        charts.save(axes, plot.title, directory / f"{plot.name}.png")
        drawn.append(plot)
  return drawn


def _pass_at_k(axes, rows):
  names = {name for row in rows for name in row}
  names = [name for name in names if re.fullmatch(r"eval/pass@\d+", name)]
  names.sort(key=lambda name: int(name.partition("@")[2]))
  ends = ("eval/pass@1_low", "eval/pass@1_high")
  banded = [r for r in rows if None not in (number(r, end) for end in ends)]
  steps, low = charts.series(banded, ends[0])
  _, high = charts.series(banded, ends[1])
  axes.fill_between(steps, low, high, color=BLUE, alpha=0.15, linewidth=0)
  colours = (BLUE, SKY, GREEN, ORANGE, VERMILION)
  for i, name in enumerate(names):
    steps, values = charts.series(rows, name)
    axes.plot(
      steps,
      values,
      color=colours[i % len(colours)],
      label=name.removeprefix("eval/"),
      linestyle="--" if i else "-",
      linewidth=1.1 if i else 1.9,
      marker="o" if len(steps) < 50 else None,
      markersize=2.5 if i else 3.5,
    )
  axes.set_ylim(0, 1)
  charts.label(axes, "fraction of questions")
  return bool(names)


def _difficulty(axes, rows, *, results):
  labels = difficulties(results)
  drawn = False
  for side, shift, colour in (("before", -0.2, GREY), ("after", 0.2, BLUE)):
    keys = (side, "by_difficulty")
    heights = [number(results, *keys, label, "pass@1") for label in labels]
    bars = [(x, h) for x, h in enumerate(heights) if h is not None]
    if bars:
      x, height = zip(*bars, strict=True)
      x = [left + shift for left in x]
      axes.bar(x, height, width=0.38, color=colour, label=side)
      drawn = True
  # Not to be read as mathematics; and fonts cannot draw half a character.
  shown = [label.encode(errors="replace").decode() for label in labels]
  axes.set_xticks(range(len(labels)), shown, parse_math=False)
  if sum(map(len, labels)) > 45:
    axes.tick_params(axis="x", labelsize=6.5, rotation=20)
  axes.set(ylim=(0, 1), ylabel="pass@1")
  return drawn


def _groups(axes, rows):
  wrong, right = "groups/all_wrong", "groups/all_right"
  rows = [
    {**row, "mixed": 1 - row[wrong] - row[right]}
    for row in rows
    if number(row, wrong) is not None and number(row, right) is not None
  ]
  keys = {
    wrong: ("all wrong", VERMILION),
    "mixed": ("mixed", "#D5D8DC"),
    right: ("all right", GREEN),
  }
  return charts.stack(axes, rows, unit="fraction of groups", keys=keys)


def _line_plot(name, title, caption, **style):
  return Plot(name, title, caption, partial(charts.lines, **style))


def _quality_plots(results) -> list[Plot]:
  return [
    Plot(
      "pass_at_k",
      "Accuracy",
      "Held-out questions; band: pass@1's 95 % interval.",
      _pass_at_k,
    ),
    _line_plot(
      "reward",
      "Reward",
      "Mean over the completions sampled for training.",
      unit="reward units",
      scale="free",
      keys={
        "rewards/format/mean": ("format", ORANGE),
        "rewards/correctness/mean": ("correctness", GREEN),
        "reward": ("total", BLUE),
      },
    ),
    Plot(
      "difficulty",
      "Accuracy by difficulty",
      "pass@1 on held-out questions.",
      partial(_difficulty, results=results),
    ),
    _line_plot(
      "length",
      "Completion length",
      "Mean over the completions sampled for training.",
      unit="tokens",
      keys={
        "completions/mean_length_wrong": ("wrong", VERMILION),
        "completions/mean_length_right": ("right", GREEN),
        "completions/mean_length": ("all", BLUE),
      },
    ),
    _line_plot(
      "truncated",
      "Truncated completions",
      "Completions that the length limit cut off.",
      unit="fraction of completions",
      keys={
        "completions/clipped_ratio": ("training", BLUE),
        "eval/truncated_fraction": ("evaluation", ORANGE),
      },
    ),
    Plot(
      "groups",
      "Groups",
      "Only mixed groups carry a gradient.",
      _groups,
    ),
  ]


def _health_plots() -> list[Plot]:
  return [
    _line_plot(
      "entropy",
      "Entropy",
      "Of the policy, at the sampled tokens.",
      unit="nats per token",
      keys={"entropy": ("mean", BLUE)},
    ),
    _line_plot(
      "clip",
      "Clipped tokens",
      "Tokens whose importance ratio left the clip range.",
      unit="fraction of tokens",
      keys={
        "clip_ratio/low_mean": ("lower bound", BLUE),
        "clip_ratio/high_mean": ("upper bound", ORANGE),
      },
    ),
    _line_plot(
      "gradient",
      "Gradient norm",
      "Global norm, before it is clipped.",
      unit="norm",
      keys={"grad_norm": ("global", BLUE)},
    ),
    _line_plot(
      "critic",
      "Critic",
      "Variance of its target and of the reward that it explains.",
      unit="fraction of variance",
      scale="free",
      keys={
        "value/explained_variance_of_reward": ("reward", ORANGE),
        "value/explained_variance": ("target", BLUE),
      },
    ),
    _line_plot(
      "mismatch",
      "Sampler against trainer",
      "|difference| of the sampled tokens' log-probs.",
      unit="nats",
      scale="log",
      keys={
        "sampling/sampling_logp_difference/max": ("largest", ORANGE),
        "sampling/sampling_logp_difference/mean": ("mean", BLUE),
      },
    ),
  ]


def _speed_plots() -> list[Plot]:
  return [
    _line_plot(
      "throughput",
      "Throughput",
      "How fast completions are sampled and trained on.",
      unit="tokens per second",
      keys={"tokens_per_second": ("tokens", BLUE)},
    ),
    Plot(
      "time",
      "Time per step",
      "Where a training step's time goes.",
      partial(
        charts.stack,
        unit="seconds",
        keys={
          "time/sample_s": ("sample", BLUE),
          "time/reward_s": ("reward", ORANGE),
          "time/score_s": ("score", SKY),
          "time/train_s": ("train", GREEN),
          "time/other_s": ("other", GREY),
        },
      ),
    ),
  ]
