"""How a plot looks: the palette, the frame, and the three kinds of drawing.

Plots are Matplotlib `Figure` objects, never pyplot's global state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from grpo_jax.reporting.results import number

# Okabe and Ito's palette, which colour-blind readers tell apart.
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
VERMILION, ORANGE, GREY = "#D55E00", "#E69F00", "#9AA0A6"

STYLE = {
  "font.size": 9,
  "axes.titlesize": 10.5,
  "axes.titleweight": "bold",
  "axes.titlelocation": "left",
  "axes.spines.top": False,
  "axes.spines.right": False,
  "axes.edgecolor": GREY,
  "axes.labelcolor": "#444444",
  "axes.grid": True,
  "axes.grid.axis": "y",
  "axes.axisbelow": True,
  "axes.formatter.limits": (-3, 5),
  "grid.color": "#E3E5E8",
  "grid.linewidth": 0.7,
  "xtick.color": "#444444",
  "ytick.color": "#444444",
  "xtick.major.size": 0,
  "ytick.major.size": 0,
  "lines.linewidth": 1.7,
  "legend.frameon": False,
}


def new_axes():
  """The axes of a new figure, with room above for a title and a legend."""
  from matplotlib.figure import Figure

  return Figure(figsize=(4.4, 2.9)).add_axes((0.145, 0.16, 0.82, 0.62))


def save(axes, title: str, path: Path) -> None:
  """Titles a plot and writes it as a PNG file of 634 x 418 pixels.

  A legend between title and axes tells the series apart where there are two.
  """
  handles, labels = axes.get_legend_handles_labels()
  if len(labels) > 1:
    axes.legend(
      handles,
      labels,
      loc="lower left",
      bbox_to_anchor=(-0.17, 0.98),
      ncols=len(labels),
      handlelength=1.2,
      handletextpad=0.5,
      columnspacing=1.2,
    )
    axes.set_title(title, x=-0.155, pad=24)
  else:
    axes.set_position((0.145, 0.16, 0.82, 0.7))
    axes.set_title(title, x=-0.155, pad=8)
  axes.figure.savefig(path, dpi=144)


def label(axes, unit: str) -> None:
  """Labels the axes of a plot against the training step."""
  from matplotlib.ticker import MaxNLocator

  axes.set(xlabel="training step", ylabel=unit)
  locator = MaxNLocator(7, integer=True, steps=[1, 2, 5, 10])
  axes.xaxis.set_major_locator(locator)


def series(rows: Sequence[Mapping], key: str) -> tuple[np.ndarray, np.ndarray]:
  """Steps and values of the rows that have a finite number under a key."""
  pairs = [(row["step"], number(row, key)) for row in rows]
  pairs = [(step, value) for step, value in pairs if value is not None]
  steps, values = np.array(pairs, float).reshape(-1, 2).T
  return steps, values


def lines(
  axes,
  rows: Sequence[Mapping],
  *,
  unit: str,
  keys: Mapping[str, tuple[str, str]],
  scale: Literal["from_zero", "free", "log"] = "from_zero",
) -> bool:
  """Draws metrics against the step; a long run's get a moving mean.

  The mean is over a 25th of the steps (none below 75 steps), and what was
  measured stays behind it as a thin line.

  Args:
    axes: where to draw.
    rows: the rows of metrics.jsonl.
    unit: the label of the vertical axis.
    keys: metric to its label and colour.
    scale: of the vertical axis; "log" leaves out what is not positive.

  Returns:
    Whether there was anything to draw.
  """
  drawn = False
  for key, (name, colour) in keys.items():
    steps, values = series(rows, key)
    if scale == "log":
      steps, values = steps[values > 0], values[values > 0]
    if not len(steps):
      continue
    drawn = True
    window = np.ones(len(steps) // 25 | 1)
    if len(window) > 1:
      axes.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
      count = np.convolve(np.ones_like(values), window, "same")
      values = np.convolve(values, window, "same") / count
    marker = "o" if len(steps) < 10 else None
    axes.plot(
      steps, values, color=colour, label=name, marker=marker, markersize=3.5
    )
  if scale == "from_zero":
    axes.set_ylim(bottom=0)
  elif scale == "log" and drawn:
    axes.set_yscale("log")
    # Whole decades, so that at least two of them are labelled.
    exponents = np.log10(axes.dataLim.intervaly)
    low, high = np.floor(exponents[0]), np.floor(exponents[1]) + 1
    axes.set_ylim(10**low, 10**high)
    axes.minorticks_off()
  label(axes, unit)
  return drawn


def stack(
  axes,
  rows: Sequence[Mapping],
  *,
  unit: str,
  keys: Mapping[str, tuple[str, str]],
) -> bool:
  """Draws metrics as areas on top of each other; arguments as in `lines`.

  Only rows that have all of the metrics found anywhere count, and two of them
  are needed.
  """
  keys = {key: keys[key] for key in keys if len(series(rows, key)[0])}
  rows = [r for r in rows if all(number(r, k) is not None for k in keys)]
  if not keys or len(rows) < 2:
    return False
  names, colours = zip(*keys.values(), strict=True)
  values = [series(rows, key)[1] for key in keys]
  steps = [row["step"] for row in rows]
  axes.stackplot(steps, values, labels=names, colors=colours, alpha=0.85)
  axes.margins(x=0, y=0)
  label(axes, unit)
  return True
