"""Processes that a test started."""

import os
from pathlib import Path


def alive(pid: int) -> bool:
  """Whether a process runs; one that is dead and not yet reaped does not."""
  try:
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
  except FileNotFoundError:
    return False


def worker_processes(parent: int | None = None) -> set[int]:
  """The processes below this one, or another, that run a pool's workers."""
  found, parents = set(), {os.getpid() if parent is None else parent}
  while parents:
    children = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
      try:
        fields = path.read_text().rpartition(")")[2].split()
        command = (path.parent / "cmdline").read_text()
      except (FileNotFoundError, ProcessLookupError):
        continue
      if int(fields[1]) in parents and "rewards.worker" in command:
        children.add(int(path.parent.name))
    found, parents = found | children, children
  return {pid for pid in found if alive(pid)}
