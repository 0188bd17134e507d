"""A pool of processes for work that may hang, crash or eat all memory.

Each item has a hard time limit: whatever its worker does, in Python or in C
and with any signal blocked, it is killed and replaced, and the others go on.
The trainer's process is never forked and gets no signal handler, so the pool
works beside JAX's threads and from any thread. Linux and macOS; only Linux
enforces the memory limit.
"""

import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from grpo_jax.errors import UserError
from grpo_jax.rewards.nursery import Nursery, Worker

# A worker that dies may have been killed from outside, by hand or because
# another process needed memory: its item is tried once more.
_TRIES = 2


class Result(NamedTuple):
  """What became of an item.

  Attributes:
    status: `done`; `raised` an exception, such as MemoryError at the memory
      limit; `timed_out`; or `died`, with its process.
    value: what the function returned, if done.
    error: what happened, if not.
  """

  status: Literal["done", "raised", "timed_out", "died"]
  value: object = None
  error: str = ""


class Pool:
  """Runs one function on many items, in processes that outlive a call.

  What becomes of an item does not depend on the number of workers, unless it
  needs nearly all of its time: the limit is in wall-clock seconds.
  """

  def __init__(
    self,
    function: str,
    *,
    workers: int,
    limit_s: float,
    memory_mib: int,
    recycle_after: int,
  ):
    """Starts nothing: the first `map` starts the processes.

    Args:
      function: `module:function`, from and to what JSON can hold. A function
        `prepare` of the same module, if any, runs once before the first item.
        Neither may start threads.
      workers: processes at work at once.
      limit_s: wall-clock seconds for one item.
      memory_mib: address space of one worker; the interpreter with SymPy
        takes about 64.
      recycle_after: items after which a worker is replaced.
    """
    if workers < 1 or limit_s <= 0 or memory_mib < 1 or recycle_after < 1:
      raise UserError("A pool's workers and limits must be more than zero.")
    self._workers = workers
    self._limit_s = limit_s
    self._recycle_after = recycle_after
    self._start = (function, memory_mib)
    self._lock = threading.Lock()
    self._selector = selectors.DefaultSelector()
    self._idle: list[Worker] = []
    self._nursery: Nursery | None = None

  def __enter__(self) -> "Pool":
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def close(self) -> None:
    """Ends all processes. They end with the trainer in any case."""
    with self._lock:
      self._idle.clear()
      if self._nursery is not None:
        self._nursery.stop()

  def map(self, items: Sequence[tuple]) -> list[Result]:
    """The results of function(*item), in the order of the items.

    Calls from several threads take turns. After a KeyboardInterrupt, or any
    other exception in here, no process is left at work.

    Raises:
      UserError: the function cannot be imported.
    """
    with self._lock:
      results: list[Result | None] = [None] * len(items)
      waiting = deque((index, 1) for index in range(len(items)))
      busy: dict[Worker, int] = {}
      try:
        while waiting or busy:
          while waiting and len(busy) < self._workers:
            index, tries = waiting.popleft()
            worker = self._start_item(index, items[index], fresh=tries > 1)
            busy[worker] = tries
          for worker, result in self._finished(busy):
            tries = busy.pop(worker)
            if result.status == "died" and tries < _TRIES:
              waiting.appendleft((worker.index, tries + 1))
            else:
              results[worker.index] = result
      finally:
        for worker in busy:
          self._discard(worker)
    return results

  def _start_item(self, index: int, item: tuple, *, fresh: bool) -> Worker:
    """An idle worker, or a new one, that has the item."""
    while self._idle and not fresh:
      worker = self._idle.pop()
      if worker.hand_over(index, item, self._limit_s):
        break
      worker.kill()
    else:
      worker = self._fork()
      # If that dies at once, reading from it will tell.
      worker.hand_over(index, item, self._limit_s)
    self._selector.register(worker.connection, selectors.EVENT_READ, worker)
    return worker

  def _finished(self, busy) -> list[tuple[Worker, Result]]:
    """Waits until a worker is done with its item, or over its time."""
    first = min(worker.deadline for worker in busy)
    ready = self._selector.select(max(0.0, first - time.monotonic()))
    finished = {}
    for selected, _ in ready:
      worker = selected.data
      try:
        reply = worker.reply()
      except (OSError, EOFError, ValueError):
        finished[worker] = Result(
          "died", error="its process died, or sent too much"
        )
        self._discard(worker)
        continue
      if reply is not None:
        finished[worker] = self._accepted(worker, reply)
    now = time.monotonic()
    for worker in busy.keys() - finished.keys():
      if worker.deadline <= now:
        error = f"took over {self._limit_s} s"
        finished[worker] = Result("timed_out", error=error)
        self._discard(worker)
    return list(finished.items())

  def _accepted(self, worker: Worker, reply: dict) -> Result:
    if worker.served >= self._recycle_after or reply.get("spoilt"):
      self._discard(worker)
    else:
      self._selector.unregister(worker.connection)
      self._idle.append(worker)
    if "error" in reply:
      return Result("raised", error=reply["error"])
    return Result("done", value=reply.get("value"))

  def _discard(self, worker: Worker) -> None:
    if worker.connection.fileno() >= 0:
      self._selector.unregister(worker.connection)
    worker.kill()

  def _fork(self) -> Worker:
    try:
      if self._nursery is not None:
        return self._nursery.fork()
    except (OSError, EOFError):
      # The nursery was killed from outside, and its workers with it.
      self._nursery.stop()
    self._nursery = Nursery(*self._start)
    try:
      return self._nursery.fork()
    except (OSError, EOFError) as error:
      raise UserError(
        f"The pool's processes for {self._start[0]!r} end as soon as they are"
        " started; see the system's log.",
        exit_code=1,
      ) from error
