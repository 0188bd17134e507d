"""A file that grows by whole records and outlives a full disk."""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

_log = logging.getLogger(__name__)


class AppendFile:
  """Appends records to a file and raises nothing when that fails.

  Every failed write (`OSError`) loses its record and nothing else: the next
  append cuts off what was written of it, and tries again. The first failure is
  logged as a warning.

  The file is opened for each append. A run's step takes longer by orders of
  magnitude, and no broken handle is left to recover.

  Args:
    path: the file, of which this object is the only writer.
    start: path to the records that the file begins with; it may read them from
      what an earlier process left at that path.
  """

  def __init__(self, path: Path, start: Callable[[Path], Iterable[bytes]]):
    self._path, self._start = path, start
    self._size = None  # bytes of whole records; None until start is written
    self._lost = 0
    self._warned = False
    self.append(b"")

  def append(self, record: bytes) -> None:
    """Appends one record; on return the operating system has it."""
    try:
      if self._size is None:
        self._size = _rewrite(self._path, self._start(self._path))
      with open(self._path, "ab") as file:
        self._size = min(self._size, file.tell())
        file.truncate(self._size)
        file.write(record)
      self._size += len(record)
    except OSError as error:
      self._lost += bool(record)
      if not self._warned:
        self._warned = True
        _log.warning(
          "%s: %s. The run goes on, but this row is lost, and so is every"
          " later one that cannot be written.",
          self._path,
          error.strerror,
        )

  def report_lost(self) -> None:
    """Logs how many records are missing from the file, if any."""
    if self._lost:
      _log.warning("%s: writes lost: %d", self._path, self._lost)


def _rewrite(path: Path, records: Iterable[bytes]) -> int:
  """Replaces a file by records in one step; returns its size in bytes."""
  temporary = path.with_name(path.name + ".tmp")
  try:
    with open(temporary, "wb") as file:
      file.writelines(records)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
  return path.stat().st_size
