"""What the pool is given in its tests: everything that goes wrong."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path


def run(kind: str, argument=None):
  return _KINDS[kind](argument)


def _hang_in_c(_):
  return len(str(7 ** (10**8)))


def _hang_with_signals_blocked(_):
  signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
  time.sleep(3600)


def _allocate_without_end(_):
  hoard = []
  for _ in itertools.count():
    hoard.append(bytearray(2**24))


def _report_and_hang(path):
  Path(path).write_text(str(os.getpid()))
  _hang_in_c(None)


def _die_once(path):
  """Dies the first time, as if killed from outside."""
  if not Path(path).exists():
    Path(path).touch()
    os.kill(os.getpid(), signal.SIGKILL)
  return "alive"


def _die_once_and_stop_others(argument):
  """As when all workers are killed at once, and one has not noticed yet."""
  path, others = argument
  if not Path(path).exists():
    Path(path).touch()
    for pid in set(others) - {os.getpid()}:
      os.kill(pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
  return "alive"


def _raise(message):
  raise ValueError(message)


_KINDS = {
  "echo": lambda argument: argument,
  "pid": lambda seconds: time.sleep(seconds) or os.getpid(),
  "modules": lambda _: sorted(sys.modules),
  "sleep": time.sleep,
  "raise": _raise,
  "exit": sys.exit,
  "recurse": lambda _: _raise_recursion(),
  "unserialisable": lambda _: {1, 2},
  "die": lambda _: os.kill(os.getpid(), signal.SIGKILL),
  "die_once": _die_once,
  "die_once_and_stop_others": _die_once_and_stop_others,
  "hang_in_c": _hang_in_c,
  "hang_with_signals_blocked": _hang_with_signals_blocked,
  "allocate_without_end": _allocate_without_end,
  "report_and_hang": _report_and_hang,
  "huge": lambda _: "x" * 2**22,
}


def _raise_recursion():
  return _raise_recursion()
