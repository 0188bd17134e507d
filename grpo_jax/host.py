"""The process that drives the devices: memory, signals, versions."""

import contextlib
import ctypes
import fcntl
import importlib.metadata
import logging
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

_log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_REPORTED_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")


def keep_freed_memory() -> None:
  """Makes glibc keep freed memory instead of giving it back to the system.

  XLA's CPU backend allocates its buffers anew at every step. By default glibc
  maps and unmaps large ones each time, and the page faults take nearly half
  of a small model's training step (80 ms against 47 ms, measured on 2 cores).
  Does nothing under another C library.
  """
  if platform.libc_ver()[0] != "glibc":
    return
  libc = ctypes.CDLL(None)
  libc.mallopt(_M_MMAP_MAX, 0)
  libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
  libc.mallopt(_M_TOP_PAD, 2**26)


def return_freed_memory() -> None:
  """Gives what glibc has kept back to the system, once.

  For after compilation, whose memory nothing else would use again: half a
  gigabyte for a model of 135M parameters. Does nothing under another C library.
  """
  if platform.libc_ver()[0] == "glibc":
    ctypes.CDLL(None).malloc_trim(0)


def stop_on_signals() -> Callable[[], bool]:
  """Turns the first SIGINT or SIGTERM into a request to stop.

  Returns:
    A function that tells whether a stop was requested. A second SIGINT raises
    KeyboardInterrupt, as usual.
  """
  requested = threading.Event()

  def request(signum, frame):
    del frame
    requested.set()
    if signum == signal.SIGINT:
      signal.signal(signal.SIGINT, signal.default_int_handler)

  signal.signal(signal.SIGINT, request)
  signal.signal(signal.SIGTERM, request)
  return requested.is_set


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
  """Holds a folder, made if need be, for this process alone.

  The lock ends with the block, or with the process, however that ends.

  Args:
    folder: to hold.
    wait: for another process that holds it.

  Raises:
    BlockingIOError: another process holds it, and `wait` is false.
    OSError: the folder cannot be made or written to.
  """
  folder.mkdir(parents=True, exist_ok=True)
  with (folder / ".lock").open("w") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      if not wait:
        raise
      _log.info("Waiting for another process that uses %s.", folder)
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


def describe_device() -> str:
  """Backend, count and kind of the devices, for reports."""
  devices = jax.devices()
  kind = devices[0].device_kind
  return f"{len(devices)} x {kind} ({jax.default_backend()})"


def versions() -> dict[str, str]:
  """Of Python and of the packages that results depend on."""
  found = {"python": platform.python_version()}
  for package in _REPORTED_PACKAGES:
    found[package] = importlib.metadata.version(package)
  return found
