"""What a run leaves on disk while it trains: metrics and sampled completions.

Both logs survive a kill, since a restart drops what the checkpoint does not
know of, and a full disk, which costs rows and never the run.
"""

import contextlib
import functools
import gzip
import json
import math
import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grpo_jax.reporting import tensorboard
from grpo_jax.reporting.append_file import AppendFile

_CHUNK_BYTES = 1 << 16


class MetricsLog(contextlib.AbstractContextManager):
  """Writes one row of numbers per step to metrics.jsonl and to TensorBoard.

  A row is a flat JSON object, "step" and the metrics. JSON has no NaN and no
  infinity, so both are written as null (and read back as NaN by
  `read_metrics`); TensorBoard gets the true value.

  A write that fails (a full disk) is logged once as a warning and loses its
  row; the next write tries again.

  Args:
    workdir: the run's directory; created where it is missing.
    resume_step: the last step of the restored checkpoint. Later rows, and a
      last row that a kill left unfinished, are dropped. None starts afresh
      and drops all rows of an earlier run.
  """

  def __init__(self, workdir: str | os.PathLike, *, resume_step: int | None):
    workdir = Path(workdir)
    directory = workdir / "tensorboard"
    directory.mkdir(parents=True, exist_ok=True)
    self._rows = AppendFile(
      workdir / "metrics.jsonl",
      functools.partial(_lines_until, resume_step=resume_step),
    )
    purge_step = 0 if resume_step is None else resume_step + 1
    self._events = tensorboard.open_events(directory, purge_step)

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Appends a row.

    Args:
      step: optimizer steps taken; never smaller than in the row before.
      metrics: numbers, or arrays that hold one number.
    """
    numbers = {name: float(value) for name, value in metrics.items()}
    self._rows.append(_json_line(step, numbers))
    self._events.append(tensorboard.scalars_record(step, numbers))

  def close(self) -> None:
    """Logs how many rows were lost, if any."""
    self._rows.report_lost()
    self._events.report_lost()

  def __exit__(self, *_):
    self.close()


class SamplesLog(contextlib.AbstractContextManager):
  """Appends completions to samples.jsonl.gz, one gzip member per write.

  A killed run leaves a file that `read_samples` reads. A full disk and a
  resume are treated as in `MetricsLog`.

  Args:
    workdir: the run's directory; created where it is missing.
    resume_step: the last step of the restored checkpoint. The samples of later
      steps, and a torn last member, are dropped. None starts afresh.
  """

  def __init__(self, workdir: str | os.PathLike, *, resume_step: int | None):
    path = Path(workdir) / "samples.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    self._file = AppendFile(
      path, functools.partial(_members_until, resume_step=resume_step)
    )

  def write(self, step: int, rows: Sequence[Mapping[str, object]]) -> None:
    """Appends one JSON object per completion.

    Args:
      step: optimizer steps taken when the completions were sampled.
      rows: "prompt", "completion", "rewards" (name to reward units),
        "stop_reason", and whatever else JSON can hold. Non-finite numbers
        become null.
    """
    lines = [_json_line(step, row) for row in rows]
    if lines:
      self._file.append(gzip.compress(b"".join(lines)))

  def close(self) -> None:
    """Logs how many writes were lost, if any."""
    self._file.report_lost()

  def __exit__(self, *_):
    self.close()


def read_metrics(path: str | os.PathLike) -> list[dict]:
  """Reads the rows of metrics.jsonl, with null as NaN.

  A broken row is left out, and a missing file reads as no rows.
  """
  return [
    {name: math.nan if value is None else value for name, value in row.items()}
    for _, row in _lines(Path(path))
  ]


def read_samples(path: str | os.PathLike) -> list[dict]:
  """Reads all completions of samples.jsonl.gz.

  A torn last member is left out, and a missing file reads as no completions.
  """
  return [row for _, text in _members(Path(path)) for row in _rows(text)]


def read_edge_samples(
  path: str | os.PathLike,
) -> tuple[list[dict], list[dict]]:
  """Reads the completions of the first and of the last write only.

  Memory stays bounded by the largest write, however long the run was.

  Returns:
    The rows of the first and of the last write; the second list is empty when
    there was one write, both are when there was none.
  """
  texts = (text for _, text in _members(Path(path)))
  first = next(texts, b"")
  last = deque(texts, maxlen=1)
  return _rows(first), _rows(last[0] if last else b"")


def _json_line(step: int, fields: Mapping[str, object]) -> bytes:
  """A row with its step; the fields may repeat it, but not change it."""
  row = {"step": int(step), **fields} | {"step": int(step)}
  return json.dumps(_strict(row), allow_nan=False).encode() + b"\n"


def _strict(value):
  """Turns NumPy and JAX scalars into numbers, and non-finite ones into None."""
  if isinstance(value, Mapping):
    return {key: _strict(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_strict(item) for item in value]
  if hasattr(value, "item"):
    value = value.item()
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


def _rows(text: bytes) -> list[dict]:
  """Parses JSON lines; leaves out what is no object with a whole step."""
  rows = []
  for line in text.splitlines():
    with contextlib.suppress(ValueError):
      row = json.loads(line)
      if isinstance(row, dict) and isinstance(row.get("step"), int):
        rows.append(row)
  return rows


def _lines(path: Path) -> Iterator[tuple[bytes, dict]]:
  """Yields each whole line of a JSON lines file, and its row."""
  if path.exists():
    for line in path.read_bytes().splitlines():
      for row in _rows(line):
        yield line + b"\n", row


def _lines_until(path: Path, resume_step: int | None) -> Iterator[bytes]:
  if resume_step is not None:
    yield from (ln for ln, row in _lines(path) if row["step"] <= resume_step)


def _members(path: Path) -> Iterator[tuple[bytes, bytes]]:
  """Yields each whole gzip member of a file: as stored, and its content."""
  if not path.exists():
    return
  with open(path, "rb") as file:
    chunk = file.read(_CHUNK_BYTES)
    while chunk:
      member, stored, content = zlib.decompressobj(wbits=31), [], []
      while chunk and not member.eof:
        try:
          content.append(member.decompress(chunk))
        except zlib.error:  # not gzip from here on
          return
        rest = member.unused_data
        stored.append(chunk[: len(chunk) - len(rest)])
        chunk = rest or file.read(_CHUNK_BYTES)
      if member.eof:
        yield b"".join(stored), b"".join(content)


def _members_until(path: Path, resume_step: int | None) -> Iterator[bytes]:
  if resume_step is not None:
    for stored, text in _members(path):
      if all(row["step"] <= resume_step for row in _rows(text)):
        yield stored
