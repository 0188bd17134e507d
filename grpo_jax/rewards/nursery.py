"""The trainer's side of the processes in `worker`."""

import json
import os
import socket
import subprocess
import sys
import time
import weakref

from grpo_jax.errors import UserError
from grpo_jax.rewards import worker as protocol

_START_S = 120.0
_MAX_REPLY = 2**20


class Worker:
  """A process that is idle, or busy with one item.

  Attributes:
    connection: a socket to it.
    served: items it has answered.
    index: of its present item.
    deadline: of its present item, on the monotonic clock.
  """

  def __init__(self, nursery: "Nursery", pid: int, connection: socket.socket):
    self._nursery = nursery
    self._pid = pid
    self._received = b""
    self.connection = connection
    self.served = 0
    self.index = -1
    self.deadline = 0.0

  def hand_over(self, index: int, item: tuple, limit_s: float) -> bool:
    """Starts an item and its clock; false if the process is gone."""
    self.index, self.deadline = index, time.monotonic() + limit_s
    # A stopped process would let a large item wait for ever.
    self.connection.settimeout(limit_s)
    try:
      protocol.send(self.connection, item)
    except OSError:
      return False
    return True

  def reply(self) -> dict | None:
    """The reply if all of it has come, else None; call it when readable.

    Raises:
      OSError, EOFError, ValueError: the process died, or sent no reply.
    """
    piece = self.connection.recv(2**16)
    self._received += piece
    start = protocol.LENGTH.size
    end = start + int.from_bytes(self._received[:start], "big")
    if not piece or end > _MAX_REPLY:
      raise EOFError
    if len(self._received) < max(end, start):
      return None
    reply = json.loads(self._received[start:])
    self._received = b""
    self.served += 1
    return reply

  def kill(self) -> None:
    """Ends the process, whatever it is doing."""
    self.connection.close()
    self._nursery.kill(self._pid)


class Nursery:
  """The process that forks workers; restart it by making another."""

  def __init__(self, function: str, memory_mib: int):
    """Starts the process and returns while it imports."""
    self._function = function
    self._control, theirs = socket.socketpair()
    self._control.settimeout(_START_S)
    self._ready = False
    with theirs:
      descriptor = theirs.fileno()
      arguments = [function, str(descriptor), str(memory_mib)]
      process = subprocess.Popen(
        [sys.executable, "-P", "-m", protocol.__name__, *arguments],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        # Ctrl-C in a terminal, or a scheduler's SIGTERM to the whole group,
        # is for the trainer to handle.
        start_new_session=True,
      )
    # Also called when the trainer exits.
    self.stop = weakref.finalize(self, _stop, process, self._control)

  def fork(self) -> Worker:
    """A new worker.

    Raises:
      UserError: the function cannot be imported.
      OSError, EOFError: the process is gone.
    """
    try:
      if not self._ready:
        self._await_import()
      ours, theirs = socket.socketpair()
      with theirs:
        command = protocol.COMMAND.pack(protocol.FORK, 0)
        socket.send_fds(self._control, [command], [theirs.fileno()])
      answer = self._control.recv(protocol.COMMAND.size)
      if len(answer) < protocol.COMMAND.size:
        raise EOFError
    except BaseException:
      # An answer that is still to come would be taken for that of the next
      # command, so an interrupted exchange is the last one.
      self.stop()
      raise
    return Worker(self, protocol.COMMAND.unpack(answer)[1], ours)

  def _await_import(self) -> None:
    hello = protocol.receive(self._control)
    if hello is None:
      raise EOFError
    error = json.loads(hello).get("error")
    if error:
      raise UserError(
        f"The pool's processes cannot load {self._function!r}: {error}",
        exit_code=1,
      )
    self._ready = True

  def kill(self, pid: int) -> None:
    """Ends one of its workers."""
    try:
      self._control.sendall(protocol.COMMAND.pack(protocol.KILL, pid))
    except OSError:
      return  # The nursery is gone, and its workers with it.


def _stop(process: subprocess.Popen, control: socket.socket) -> None:
  """The closed connection ends the nursery, which ends its workers."""
  control.close()
  try:
    process.wait(timeout=10)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()
