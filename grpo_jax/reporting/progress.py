"""Shows how far a phase is: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TextIO

_PACE_UPDATES = 10  # the pace is that of this many last updates


class Progress(contextlib.AbstractContextManager):
  """Reports the steps of one phase of a run.

  A terminal gets a live bar, and below it a line of figures. Any other stream
  gets one line per update:

      step 12/60  reward 0.512  pass@1 0.43  2.1 s/step  eta 1:40

  Args:
    title: what one step is called, such as "step" or "warm start".
    total: steps of the phase.
    stream: where to write; standard error where None.
    start: steps that were done before (a resumed run).
  """

  def __init__(
    self,
    title: str,
    total: int,
    stream: TextIO | None = None,
    *,
    start: int = 0,
  ):
    self._title, self._total = title, total
    self._stream = sys.stderr if stream is None else stream
    self._marks = deque([(monotonic(), start)], maxlen=_PACE_UPDATES + 1)
    self._bar = None
    self._exit = contextlib.ExitStack()

  def __enter__(self):
    self._marks[0] = (monotonic(), self._marks[0][1])
    if _is_terminal(self._stream):
      self._bar = _Bar(self._title, self._total, self._stream)
      self._exit.enter_context(self._bar.live(completed=self._marks[0][1]))
    return self

  def __exit__(self, *_):
    self._exit.close()
    self._bar = None

  def update(self, step: int, figures: Mapping[str, str]) -> None:
    """Reports that `step` steps are done.

    Args:
      step: steps done, those of `start` included.
      figures: what to show, name to formatted value.
    """
    self._marks.append((monotonic(), step))
    shown = [f"{name} {value}" for name, value in figures.items()]
    pace = self._pace()
    if self._bar:
      self._bar.update(step, "  ".join(shown), "  ".join(pace))
    else:
      count = f"{self._title} {step}/{self._total}"
      self._print("  ".join([count, *shown, *pace]))

  def note(self, text: str) -> None:
    """Prints a line; on a terminal, above the bar."""
    if self._bar:
      self._bar.note(text)
    else:
      self._print(text)

  def _print(self, line: str) -> None:
    print(line, file=self._stream, flush=True)

  def _pace(self) -> list[str]:
    """Time per step and time to go; nothing before a step was made."""
    (then, first), (now, last) = self._marks[0], self._marks[-1]
    if last <= first:
      return []
    step_s = (now - then) / (last - first)
    return [
      f"{_seconds(step_s)}/step",
      f"eta {_clock(step_s * (self._total - last))}",
    ]


class _Bar:
  """The live bar: progress on one line, figures on the next."""

  def __init__(self, title: str, total: int, stream: TextIO):
    # rich takes 70 ms to import, which only a terminal needs to pay.
    from rich import console, progress, text

    self._console = console.Console(file=stream, highlight=False)
    self._figures = text.Text(no_wrap=True, overflow="ellipsis", style="dim")
    self._progress = progress.Progress(
      progress.TextColumn("{task.description}", markup=False),
      progress.BarColumn(bar_width=30),
      progress.MofNCompleteColumn(),
      progress.TimeElapsedColumn(),
      progress.TextColumn("{task.fields[pace]}", markup=False),
      console=self._console,
    )
    self._task = self._progress.add_task(title, total=total, pace="")

  @contextlib.contextmanager
  def live(self, completed: int) -> Iterator[None]:
    from rich.console import Group
    from rich.file_proxy import FileProxy
    from rich.live import Live

    self._progress.update(self._task, completed=completed)
    live = Live(
      Group(self._progress, self._figures),
      console=self._console,
      # Twice a second: drawing competes with the training process's Python.
      refresh_per_second=2,
      redirect_stdout=_is_terminal(sys.stdout),
      redirect_stderr=_is_terminal(sys.stderr),
    )
    # Log handlers hold the stream itself, which rich does not redirect.
    handlers = [(h, h.stream) for h in _terminal_handlers()]
    with live:
      for handler, stream in handlers:
        handler.setStream(FileProxy(self._console, stream))
      try:
        yield
      finally:
        for handler, stream in handlers:
          handler.setStream(stream)

  def update(self, step: int, figures: str, pace: str) -> None:
    self._figures.plain = figures
    self._progress.update(self._task, completed=step, pace=pace)

  def note(self, text: str) -> None:
    self._console.print(text, markup=False, soft_wrap=True)


def _is_terminal(stream) -> bool:
  """Whether a live bar can be drawn; not in Emacs, nor on a closed stream."""
  if os.environ.get("TERM") == "dumb":
    return False
  try:
    return stream.isatty()
  except (AttributeError, ValueError):
    return False


def _terminal_handlers() -> list[logging.StreamHandler]:
  """The log handlers that write to a terminal at present."""
  loggers = [logging.root, *logging.Logger.manager.loggerDict.values()]
  handlers = [h for x in loggers for h in getattr(x, "handlers", ())]
  # absl's handler hides the one that writes.
  handlers = [getattr(h, "python_handler", h) for h in handlers]
  return [
    handler
    for handler in dict.fromkeys(handlers)
    if isinstance(handler, logging.StreamHandler)
    and _is_terminal(handler.stream)
  ]


def _seconds(seconds: float) -> str:
  if seconds < 0.1:
    return f"{1000 * seconds:.0f} ms"
  return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _clock(seconds: float) -> str:
  """60 s as 1:00, an hour as 1:00:00."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours}:{minutes:02}:{seconds:02}"
  return f"{minutes}:{seconds:02}"
