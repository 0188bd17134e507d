"""Files of published mathematical problems: fetched, read, checked."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
import tensorflow_datasets as tfds

from grpo_jax.data.example import Example


@dataclasses.dataclass(frozen=True)
class SourceFile:
  """One file of a publisher.

  Attributes:
    url: of the revision that is meant; ends in .jsonl or .parquet.
    sha256: of its content, in hexadecimal.
    rows: how many it has.
  """

  url: str
  sha256: str
  rows: int

  @property
  def suffix(self) -> str:
    return self.url[self.url.rindex(".") :]


@dataclasses.dataclass(frozen=True)
class MathSource:
  """One published set.

  Attributes:
    homepage: for people.
    files: by split.
    to_example: of a row; raises KeyError, TypeError or ValueError for one that
      is not as published.
  """

  homepage: str
  files: Mapping[str, SourceFile]
  to_example: Callable[[Mapping[str, Any]], Example]


def sha256_of(path: Path) -> str:
  """Of a file's content, in hexadecimal."""
  with path.open("rb") as content:
    return hashlib.file_digest(content, "sha256").hexdigest()


def download(file: SourceFile, dl_manager) -> Path:
  """Fetches a file, or finds it among the downloads.

  Args:
    file: of the publisher.
    dl_manager: of TFDS.

  Returns:
    Where it is.

  Raises:
    ValueError: it could not be fetched.
  """
  try:
    # TFDS would look for a network that is not there for minutes.
    requests.get(file.url, stream=True, timeout=30).close()
    return Path(dl_manager.download(file.url))
  except (OSError, tfds.download.DownloadError) as error:
    raise ValueError(
      f"{file.url} could not be downloaded: {error}. Fetch it by other means,"
      " and name a folder with it as manual_dir."
    ) from error


def read_examples(
  source: MathSource, file: SourceFile, path: Path
) -> Iterator[Example]:
  """One example of each row of a file.

  Args:
    source: of the set.
    file: what the publisher has there.
    path: of the file here.

  Yields:
    The examples, in the order of the file.

  Raises:
    ValueError: a row is damaged or lacks something, or there are more or fewer
      rows than published.
  """
  count = 0
  try:
    for row in _rows(path, file.suffix):
      yield source.to_example(row)
      count += 1
  except (KeyError, OSError, TypeError, ValueError) as error:
    raise ValueError(
      f"Row {count + 1} of {path} is not as {source.homepage} publishes it:"
      f" {type(error).__name__}: {error}. Fetch it again from {file.url}."
    ) from error
  if count != file.rows:
    raise ValueError(
      f"{path} has {count} rows and should have {file.rows}. Fetch it again"
      f" from {file.url}."
    )


def _rows(path: Path, suffix: str) -> Iterator[Any]:
  if suffix == ".parquet":
    import pyarrow.parquet  # not needed once data is prepared

    for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
      yield from batch.to_pylist()
  else:
    with path.open("rb") as lines:
      yield from map(json.loads, lines)


def answered_once(examples: Iterable[Example]) -> list[Example]:
  """Each question once, and none of those with two different answers."""
  first: dict[str, Example] = {}
  disputed = set()
  for example in examples:
    if first.setdefault(example.question, example).answer != example.answer:
      disputed.add(example.question)
  return [e for question, e in first.items() if question not in disputed]
