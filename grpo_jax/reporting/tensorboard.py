"""TensorBoard event files, written record by record.

tensorboardX gives the messages and the checksum, not its SummaryWriter: a full
disk kills that one's thread, after which a run waits forever on a queue of 10
events; and it turns the @ and = of tags into underscores.

tensorboardX is imported where it is used, so that reading a run's files does
not load it.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from grpo_jax.reporting.append_file import AppendFile


def open_events(directory: Path, purge_step: int) -> AppendFile:
  """Starts a new event file in a directory.

  Args:
    directory: what TensorBoard is pointed at.
    purge_step: TensorBoard hides what the directory's earlier event files hold
      from this step on.
  """
  # TensorBoard reads a directory's files in the order of their names.
  unique = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
  path = directory / f"events.out.tfevents.{unique}"
  return AppendFile(path, lambda _: _first_records(purge_step))


def scalars_record(step: int, numbers: Mapping[str, float]) -> bytes:
  """The record of one step's scalars, each under its name as the tag."""
  values = [{"tag": k, "simple_value": v} for k, v in numbers.items()]
  return _record(step=step, summary={"value": values})


def _first_records(purge_step: int) -> Iterator[bytes]:
  from tensorboardX.proto.event_pb2 import SessionLog

  yield _record(file_version="brain.Event:2")
  start = SessionLog(status=SessionLog.START)
  yield _record(step=purge_step, session_log=start)


def _record(**fields) -> bytes:
  """One event in its frame: length, checksum, event, checksum."""
  from tensorboardX.proto.event_pb2 import Event
  from tensorboardX.record_writer import masked_crc32c

  event = Event(wall_time=time.time(), **fields).SerializeToString()
  length = struct.pack("<Q", len(event))
  checks = [struct.pack("<I", masked_crc32c(part)) for part in (length, event)]
  return b"".join((length, checks[0], event, checks[1]))
