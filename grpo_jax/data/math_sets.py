"""Published sets of mathematical problems as one TFDS builder.

Sources, splits, sizes and licences: `grpo_jax/data/math_sources.py`, one entry
a set. Recipe: the publisher's files are downloaded (`dapo_math_17k` is 300 MB,
the rest 17 MB in all), or taken from a folder; checksums and numbers of rows
are verified; each question is kept once, and left out if the file answers it in
two ways, as `dapo_math_17k` does a few. TensorFlow is not needed.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from grpo_jax.data.example import Example
from grpo_jax.data.math_files import (
  SourceFile,
  answered_once,
  download,
  read_examples,
  sha256_of,
)
from grpo_jax.data.math_sources import SOURCES, source_of
from grpo_jax.data.prepared import builder_arguments, prepare
from grpo_jax.data.prompts import check_seed, question_key


class MathSet(tfds.core.GeneratorBasedBuilder):
  """The problems of one published set, by split."""

  VERSION = tfds.core.Version("1.0.0")

  def __init__(
    self,
    *,
    name: str,
    data_dir: str,
    manual_dir: str | None,
    verify_checksums: bool,
  ):
    """Describes the problems; `download_and_prepare` makes them.

    Args:
      name: of the set.
      data_dir: folder that TFDS keeps downloads and prepared data in.
      manual_dir: as in `load_math_split`.
      verify_checksums: as in `load_math_split`.

    Raises:
      ValueError: there is no such set, or a file of `manual_dir` is missing.
    """
    self._source, self._manual_dir = source_of(name), manual_dir
    self._set, self._verify = name, verify_checksums or manual_dir is None
    checksums = [
      file.sha256 if self._verify else sha256_of(self._manual_path(split))
      for split, file in self._source.files.items()
    ]
    super().__init__(
      **builder_arguments(
        self, name=name, settings=" ".join(checksums), data_dir=data_dir
      )
    )

  def _info(self):
    text = tfds.features.Text()
    return tfds.core.DatasetInfo(
      builder=self,
      description=f"{self._set}, published at {self._source.homepage}",
      features=tfds.features.FeaturesDict(
        {"question": text, "answer": text, "info": text}
      ),
      homepage=self._source.homepage,
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    return {
      split: self._generate_examples(file, self._path(split, file, dl_manager))
      for split, file in self._source.files.items()
    }

  def _generate_examples(self, file: SourceFile, path: Path):
    examples = read_examples(self._source, file, path)
    for index, example in enumerate(answered_once(examples)):
      yield (
        index,
        {
          "question": example.question,
          "answer": example.answer,
          "info": json.dumps(example.info),
        },
      )

  def _manual_path(self, split: str) -> Path:
    file = self._source.files[split]
    path = Path(self._manual_dir).expanduser() / self._set
    path /= f"{split}{file.suffix}"
    if not path.is_file():
      raise ValueError(
        f"There is no file {path}. Put {file.url} there, or give no manual_dir"
        " to have it downloaded."
      )
    return path

  def _path(self, split: str, file: SourceFile, dl_manager) -> Path:
    if self._manual_dir is not None:
      path = self._manual_path(split)
    else:
      path = download(file, dl_manager)
    if self._verify and (checksum := sha256_of(path)) != file.sha256:
      if self._manual_dir is None:  # or it would not be downloaded again
        path.with_name(f"{path.name}.INFO").unlink()
      raise ValueError(
        f"{path} is not the file that {file.url} was: its SHA-256 is"
        f" {checksum} and should be {file.sha256}. Fetch it again. A copy that"
        " was written anew is accepted from a manual_dir with"
        " verify_checksums=False."
      )
    return path


def load_math_split(
  name: str,
  split: str,
  *,
  data_dir: str,
  manual_dir: str | None = None,
  verify_checksums: bool = True,
) -> list[Example]:
  """All problems of a split, prepared at the first call and then read.

  An example's answer is the final one: an integer without thousands separators
  or leading zeros, or the LaTeX of MATH. Its info has what the publisher tells
  besides, such as a solution.

  Args:
    name: of the set.
    split: train or test; most sets have one of them.
    data_dir: folder that TFDS keeps downloads and prepared data in.
    manual_dir: folder with the files, as `<name>/<split>.jsonl` or
      `<name>/<split>.parquet`. None downloads them.
    verify_checksums: False also takes files of `manual_dir` that differ from
      the published ones; their rows are counted all the same.

  Returns:
    The problems, in the order of the file.

  Raises:
    ValueError: there is no such set or split, or a file is missing, cannot be
      downloaded, is not the published one, or is damaged.
  """
  if split not in source_of(name).files:
    raise ValueError(
      f"{name} has no split {split!r}. These sets have one:"
      f" {sorted(n for n, s in SOURCES.items() if split in s.files)}."
    )
  builder = MathSet(
    name=name,
    data_dir=data_dir,
    manual_dir=manual_dir,
    verify_checksums=verify_checksums,
  )
  prepare(builder)
  return [
    Example(
      question=row["question"].decode(),
      answer=row["answer"].decode(),
      info=json.loads(row["info"]),
    )
    for row in builder.as_data_source(split=split)
  ]


def load_math(
  *,
  train: Sequence[str],
  test: Sequence[str],
  train_size: int | None,
  test_size: int | None,
  seed: int,
  data_dir: str,
  manual_dir: str | None = None,
  verify_checksums: bool = True,
) -> tuple[list[Example], list[Example]]:
  """Problems to train on and held-out ones, of any sets.

  A problem to train on whose question is anywhere in the held-out splits, also
  outside of the parts that are drawn, is left out; one that is in several sets
  belongs to the first. Case and white space make no difference.

  Args:
    train: sets with a train split, such as gsm8k.
    test: sets with a test split, such as gsm8k or aime24.
    train_size: problems of each set to train on, drawn without repeats; a
      smaller set is taken whole, and None is all.
    test_size: held-out problems of each set, drawn likewise.
    seed: of the draws. A smaller size draws a part of what a larger one does.
    data_dir: folder that TFDS keeps downloads and prepared data in.
    manual_dir: as in `load_math_split`.
    verify_checksums: as in `load_math_split`.

  Returns:
    (train, test), set by set, each in the order of its file; the info of each
    problem tells its "set".

  Raises:
    ValueError: as in `load_math_split`, or a size is not positive.
  """
  check_seed(seed)
  if any(size is not None and size < 1 for size in (train_size, test_size)):
    raise ValueError("train_size and test_size must be at least 1, or None.")

  def load(name: str, split: str) -> list[Example]:
    examples = load_math_split(
      name,
      split,
      data_dir=data_dir,
      manual_dir=manual_dir,
      verify_checksums=verify_checksums,
    )
    return [
      dataclasses.replace(e, info=e.info | {"set": name}) for e in examples
    ]

  held_out = {name: load(name, "test") for name in test}
  seen = {question_key(e.question) for s in held_out.values() for e in s}
  unseen = {}
  for name in train:
    new = [
      e for e in load(name, "train") if question_key(e.question) not in seen
    ]
    seen |= {question_key(e.question) for e in new}
    unseen[name] = new
  return (
    [e for part in unseen.values() for e in _draw(part, train_size, seed)],
    [e for part in held_out.values() for e in _draw(part, test_size, seed)],
  )


def _draw(examples, size: int | None, seed: int) -> list[Example]:
  drawn = np.random.default_rng(seed).permutation(len(examples))[:size]
  return [examples[i] for i in sorted(drawn)]
