"""The processes of the pool: a nursery, and the workers that it forks.

    python -m grpo_jax.rewards.worker module:function FD MEMORY_MIB

The nursery imports the function once, has one thread and never sees an item,
so that forking it is safe, takes milliseconds, and it always answers. It is
the parent of its workers: only it knows that a process id is still theirs.
Whenever the trainer or the nursery ends, however that happens, the workers
are killed. This module imports neither jax nor numpy.
"""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable

FORK, KILL = b"F", b"K"
# A command and a process id; a length.
COMMAND, LENGTH = struct.Struct("!cq"), struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_S = 5.0
_MAX_ERROR = 500


def receive(connection: socket.socket) -> bytes | None:
  """One message with its length before it; None at the end of the stream."""
  header = _read(connection, LENGTH.size)
  return header and _read(connection, LENGTH.unpack(header)[0])


def send(connection: socket.socket, message: object) -> None:
  """One message as JSON: nothing a worker sends can run code here."""
  data = json.dumps(message).encode()
  connection.sendall(LENGTH.pack(len(data)) + data)


def _read(connection: socket.socket, size: int) -> bytes | None:
  data = b""
  while len(data) < size:
    piece = connection.recv(size - len(data))
    if not piece:
      return None
    data += piece
  return data


def load(name: str) -> Callable:
  """The function of `module:function`, after its module's `prepare()`."""
  module_name, _, function_name = name.partition(":")
  module = importlib.import_module(module_name)
  function = getattr(module, function_name)
  getattr(module, "prepare", lambda: None)()
  return function


def nurse(control: socket.socket, function: Callable, memory_mib: int) -> None:
  """Forks and kills workers on command, until the trainer is gone."""
  trainer, children = os.getppid(), set()
  # Loaded before the fork: a worker allocates nothing to set its limits.
  libc = ctypes.CDLL(None) if sys.platform == "linux" else None
  while os.getppid() == trainer:
    if not select.select([control], [], [], _PARENT_CHECK_S)[0]:
      continue
    message, handed, *_ = socket.recv_fds(control, COMMAND.size, 1)
    if not message:
      break
    command, pid = COMMAND.unpack(message)
    if command == KILL:
      _kill(pid, children)
      continue
    pid = os.fork()
    if pid == 0:
      control.close()
      _confine(libc, memory_mib)
      _work(socket.socket(fileno=handed[0]), function)
    os.close(handed[0])
    children.add(pid)
    control.sendall(COMMAND.pack(FORK, pid))
  for pid in list(children):
    _kill(pid, children)


def _kill(pid: int, children: set[int]) -> None:
  if pid in children:
    children.discard(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _confine(libc: ctypes.CDLL | None, memory_mib: int) -> None:
  nursery = os.getppid()
  if libc is not None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  if os.getppid() != nursery:
    os._exit(1)
  memory = memory_mib * 2**20
  resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(connection: socket.socket, function: Callable) -> None:
  """Answers items until the connection closes; never returns."""
  with contextlib.suppress(OSError):
    while (item := receive(connection)) is not None:
      try:
        reply = {"value": function(*json.loads(item))}
        json.dumps(reply)
      except MemoryError:
        reply = {"error": "out of memory", "spoilt": True}
      except BaseException as error:
        reply = {"error": f"{type(error).__name__}: {error}"[:_MAX_ERROR]}
      send(connection, reply)
  os._exit(0)


def main(name: str, descriptor: str, memory_mib: str) -> None:
  control = socket.socket(fileno=int(descriptor))
  try:
    function = load(name)
  except BaseException as error:
    send(control, {"error": f"{type(error).__name__}: {error}"})
    return
  send(control, {"value": "ready"})
  nurse(control, function, int(memory_mib))


if __name__ == "__main__":
  main(*sys.argv[1:])
