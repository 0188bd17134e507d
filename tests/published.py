"""Rows of ours in the place of published sets of problems."""

import dataclasses
import hashlib
import json

import pyarrow
import pyarrow.parquet

from grpo_jax.data.math_sets import load_math, load_math_split
from grpo_jax.data.math_sources import SOURCES


def gsm8k_row(question, answer):
  return {"question": question, "answer": f"Count #### them.\n#### {answer}"}


def encoded(rows, suffix):
  if suffix == ".jsonl":
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
  sink = pyarrow.BufferOutputStream()
  pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
  return sink.getvalue().to_pybytes()


class Publisher:
  """Puts rows of ours in the place of the published files."""

  def __init__(self, folder, monkeypatch):
    self.manual_dir = folder / "manual"
    self._data_dir, self._monkeypatch = folder / "prepared", monkeypatch

  def path(self, name, split):
    suffix = SOURCES[name].files[split].suffix
    return self.manual_dir / name / f"{split}{suffix}"

  def publish(self, name, split, rows, url=None):
    path, old = self.path(name, split), SOURCES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(rows, path.suffix))
    file = dataclasses.replace(
      old.files[split],
      url=url or old.files[split].url,
      sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
      rows=len(rows),
    )
    files = {split: file} if url else {**old.files, split: file}
    source = dataclasses.replace(old, files=files)
    self._monkeypatch.setitem(SOURCES, name, source)

  def load(self, name, split, **changed):
    settings = dict(data_dir=str(self._data_dir), manual_dir=self.manual_dir)
    return load_math_split(name, split, **(settings | changed))

  def load_math(self, **settings):
    return load_math(
      data_dir=str(self._data_dir), manual_dir=self.manual_dir, **settings
    )
