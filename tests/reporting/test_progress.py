"""Progress: exact plain lines, and what a terminal's screen ends up showing."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest

from grpo_jax.reporting import progress
from grpo_jax.reporting.progress import Progress

ON_A_TERMINAL = """
import logging, sys
from grpo_jax.reporting.progress import Progress
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)
with Progress("step", 3, start=1) as bar:
  bar.update(2, {"reward": "0.51", "pass@1": "[0.43]"})
  bar.note("a note with [brackets]")
  logging.warning("a warning")
  print("a print")
  bar.update(3, {"reward": "0.62"})
assert handler.stream is sys.__stderr__
logging.warning("after the bar")
"""


@pytest.fixture
def clock(monkeypatch):
  now = [100.0]
  monkeypatch.setattr(progress, "monotonic", lambda: now[0])
  return now


def screen_after(output: str) -> list[str]:
  """The lines that a terminal shows after this output."""
  lines, row, column = [""], 0, 0
  for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|.", output, re.DOTALL):
    if token == "\n":
      row, column = row + 1, column
      lines += [""] * (row + 1 - len(lines))
    elif token == "\r":
      column = 0
    elif token.endswith("A") and token[0] == "\x1b":
      row -= int(token[2:-1])
    elif token == "\x1b[2K":
      lines[row] = ""
    elif token[0] != "\x1b":
      line = lines[row].ljust(column)
      lines[row] = line[:column] + token + line[column + 1 :]
      column += 1
  return [line.rstrip() for line in lines]


def test_plain_lines(clock):
  stream = io.StringIO()
  with Progress("step", 60, stream) as bar:
    clock[0] += 4.2
    bar.update(2, {"reward": "0.512", "pass@1": "0.43"})
    bar.note("evaluating")
    clock[0] += 2.1
    bar.update(3, {})
  assert stream.getvalue() == (
    "step 2/60  reward 0.512  pass@1 0.43  2.1 s/step  eta 2:02\n"
    "evaluating\n"
    "step 3/60  2.1 s/step  eta 2:00\n"
  )


def test_the_pace_counts_only_this_process_and_its_last_updates(clock):
  stream = io.StringIO()
  with Progress("step", 8012, stream, start=12) as bar:
    clock[0] += 1000.0  # compiles
    bar.update(13, {})
    for step in range(14, 24):
      clock[0] += 0.5
      bar.update(step, {})
  lines = stream.getvalue().splitlines()
  assert lines[0] == "step 13/8012  1000 s/step  eta 2221:56:40"
  assert lines[-1] == "step 23/8012  0.5 s/step  eta 1:06:34"


def test_an_update_without_a_step_has_no_pace(clock):
  stream = io.StringIO()
  with Progress("warm start", 600, stream) as bar:
    bar.update(0, {"loss": "3.91"})
    clock[0] += 1
    bar.update(25, {"loss": "2.50"})
  assert stream.getvalue() == (
    "warm start 0/600  loss 3.91\n"
    "warm start 25/600  loss 2.50  40 ms/step  eta 0:23\n"
  )


def run_on_terminal(environment) -> str:
  ours, theirs = pty.openpty()
  child = subprocess.Popen(
    [sys.executable, "-c", ON_A_TERMINAL],
    stdout=theirs,
    stderr=theirs,
    stdin=subprocess.DEVNULL,
    env=os.environ | {"COLUMNS": "80", "LINES": "24"} | environment,
  )
  os.close(theirs)
  output = b""
  try:
    while chunk := os.read(ours, 4096):
      output += chunk
  except OSError:  # Linux: the other end is closed
    pass
  os.close(ours)
  assert child.wait() == 0, output.decode()
  return output.decode()


def test_a_terminal_shows_a_bar_that_logging_does_not_break():
  output = run_on_terminal({"TERM": "xterm-256color"})
  assert "\x1b[?25h" in output  # the cursor is back
  note, warning, printed, bar, figures, after, end = screen_after(output)
  assert note == "a note with [brackets]"
  assert warning == "a warning"
  assert printed == "a print"
  assert re.fullmatch(r"step \S+ 3/3 0:00:0\d \S+ m?s/step  eta 0:00", bar)
  assert figures == "reward 0.62"
  assert (after, end) == ("after the bar", "")


def test_a_dumb_terminal_gets_plain_lines():
  output = run_on_terminal({"TERM": "dumb"})
  assert "\x1b" not in output
  assert output.startswith("step 2/3  reward 0.51  pass@1 [0.43]  ")
