"""Metrics and samples: resume, torn files, and what readers can load."""

import gzip
import json
import math
import random
import struct

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c

from grpo_jax.reporting.sinks import (
  MetricsLog,
  SamplesLog,
  read_edge_samples,
  read_metrics,
  read_samples,
)


def steps_of(rows) -> list[int]:
  return [row["step"] for row in rows]


def write_steps(workdir, steps, *, resume_step=None):
  """Writes both logs without closing them, as a killed run leaves them."""
  metrics = MetricsLog(workdir, resume_step=resume_step)
  samples = SamplesLog(workdir, resume_step=resume_step)
  for step in steps:
    metrics.write(step, {"reward": step / 10})
    samples.write(step, [{"prompt": "p", "completion": f"c{step}"}] * 2)


def read_events(workdir) -> list[Event]:
  events = []
  for path in sorted((workdir / "tensorboard").iterdir()):
    data = path.read_bytes()
    while data:
      (size,) = struct.unpack("<Q", data[:8])
      length_check, body = data[8:12], data[12 : 12 + size]
      body_check, data = data[12 + size : 16 + size], data[16 + size :]
      assert struct.unpack("<I", length_check)[0] == masked_crc32c(
        struct.pack("<Q", size)
      )
      assert struct.unpack("<I", body_check)[0] == masked_crc32c(body)
      events.append(Event.FromString(body))
  return events


def test_a_written_row_is_in_the_file_before_close(tmp_path):
  log = MetricsLog(tmp_path, resume_step=None)
  log.write(3, {"reward": np.float32(0.5), "eval/pass@1": np.array(0.25)})
  text = (tmp_path / "metrics.jsonl").read_text()
  assert text == '{"step": 3, "reward": 0.5, "eval/pass@1": 0.25}\n'


def test_non_finite_numbers_are_null_to_strict_readers(tmp_path):
  with MetricsLog(tmp_path, resume_step=None) as log:
    log.write(1, {"kl": math.nan, "loss": math.inf, "entropy": 0.5})
  line = (tmp_path / "metrics.jsonl").read_text()
  assert "Infinity" not in line
  assert json.loads(line)["loss"] is None
  (row,) = read_metrics(tmp_path / "metrics.jsonl")
  assert math.isnan(row["kl"])
  assert row["entropy"] == 0.5


def test_a_step_among_the_fields_changes_nothing(tmp_path):
  MetricsLog(tmp_path, resume_step=None).write(np.int32(1), {"step": 7.5})
  SamplesLog(tmp_path, resume_step=None).write(np.int32(1), [{"step": 7.5}])
  assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}]
  assert read_samples(tmp_path / "samples.jsonl.gz") == [{"step": 1}]


def test_tensorboard_gets_the_same_numbers_under_the_same_tags(tmp_path):
  with MetricsLog(tmp_path, resume_step=4) as log:
    log.write(5, {"eval/pass@1/terms=2": 0.25, "loss": math.inf})
  version, start, row = read_events(tmp_path)
  assert version.file_version == "brain.Event:2"
  assert start.session_log.status == SessionLog.START
  assert start.step == 5  # hides steps 5 and later of the killed process
  assert row.step == 5
  values = {value.tag: value.simple_value for value in row.summary.value}
  assert values == {"eval/pass@1/terms=2": 0.25, "loss": math.inf}


def test_a_resume_adds_an_event_file(tmp_path):
  write_steps(tmp_path, [1, 2])
  write_steps(tmp_path, [3], resume_step=2)
  assert [e.step for e in read_events(tmp_path)] == [0, 0, 1, 2, 0, 3, 3]


@pytest.mark.parametrize(
  "resume_step, kept", [(2, [1, 2]), (0, []), (9, [1, 2, 3])]
)
def test_resume_drops_what_the_checkpoint_does_not_know(
  tmp_path, resume_step, kept
):
  write_steps(tmp_path, [1, 2, 3])
  write_steps(tmp_path, [10], resume_step=resume_step)
  assert steps_of(read_metrics(tmp_path / "metrics.jsonl")) == [*kept, 10]
  steps = steps_of(read_samples(tmp_path / "samples.jsonl.gz"))
  assert steps == [step for step in [*kept, 10] for _ in range(2)]


def test_a_fresh_run_drops_the_rows_of_an_earlier_one(tmp_path):
  write_steps(tmp_path, [1, 2, 3])
  write_steps(tmp_path, [1])
  assert steps_of(read_metrics(tmp_path / "metrics.jsonl")) == [1]
  assert steps_of(read_samples(tmp_path / "samples.jsonl.gz")) == [1, 1]


@pytest.mark.parametrize("cut", [1, 5, 18])
def test_a_torn_last_line_is_dropped(tmp_path, cut):
  write_steps(tmp_path, [1, 2])
  path = tmp_path / "metrics.jsonl"
  text = path.read_bytes()
  assert len(text) == 2 * len('{"step": 1, "reward": 0.1}\n')
  path.write_bytes(text[:-cut])
  # Without its newline alone (cut = 1) the row is whole.
  kept = [1, 2] if cut == 1 else [1]
  assert steps_of(read_metrics(path)) == kept
  write_steps(tmp_path, [3], resume_step=2)
  assert steps_of(read_metrics(path)) == [*kept, 3]
  assert path.read_bytes().count(b"\n") == len(kept) + 1


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_a_torn_last_member_is_dropped(tmp_path, cut):
  write_steps(tmp_path, [1, 2])
  path = tmp_path / "samples.jsonl.gz"
  path.write_bytes(path.read_bytes()[:-cut])
  assert steps_of(read_samples(path)) == [1, 1]
  write_steps(tmp_path, [3], resume_step=2)
  assert steps_of(read_samples(path)) == [1, 1, 3, 3]
  with gzip.open(path) as file:  # any gzip reader, not only ours
    assert len(file.read().splitlines()) == 4


def test_samples_keep_their_text_and_numbers(tmp_path):
  row = {
    "prompt": "What is 1 + 2?\n",
    "completion": "<think>\u2028 \ud83d half a character",
    "rewards": {"correctness": np.float32(1.0), "length": math.nan},
    "stop_reason": "eos",
    "tokens": [np.int32(5)],
  }
  with SamplesLog(tmp_path, resume_step=None) as log:
    log.write(1, [])
    assert (tmp_path / "samples.jsonl.gz").stat().st_size == 0
    log.write(2, [row])
  expected = row | {
    "step": 2,
    "rewards": {"correctness": 1.0, "length": None},
    "tokens": [5],
  }
  assert read_samples(tmp_path / "samples.jsonl.gz") == [expected]


def test_members_larger_than_a_read_are_joined(tmp_path):
  rng = random.Random(0)
  texts = [rng.randbytes(150_000).hex(), "", rng.randbytes(70_000).hex()]
  with SamplesLog(tmp_path, resume_step=None) as log:
    for step, text in enumerate(texts):
      log.write(step, [{"completion": text}])
  SamplesLog(tmp_path, resume_step=1)
  rows = read_samples(tmp_path / "samples.jsonl.gz")
  assert [row["completion"] for row in rows] == texts[:2]


def test_edge_samples_are_those_of_the_first_and_last_write(tmp_path):
  path = tmp_path / "samples.jsonl.gz"
  assert read_edge_samples(path) == ([], [])
  write_steps(tmp_path, [1])
  first, last = read_edge_samples(path)
  assert (steps_of(first), last) == ([1, 1], [])
  write_steps(tmp_path, [1, 2, 3])
  first, last = read_edge_samples(path)
  assert (steps_of(first), steps_of(last)) == ([1, 1], [3, 3])


def test_both_logs_outlive_a_full_disk(tmp_path, full_disk, caplog):
  with (
    MetricsLog(tmp_path, resume_step=None) as metrics,
    SamplesLog(tmp_path, resume_step=None) as samples,
  ):
    for step in range(1, 30):
      full_disk["on"] = 1 < step < 29
      metrics.write(step, {"reward": 0.5})
      samples.write(step, [{"completion": "c"}])
    assert len(caplog.records) == 3  # metrics, TensorBoard, samples
  assert len(caplog.records) == 6  # and how many each of them lost
  assert steps_of(read_metrics(tmp_path / "metrics.jsonl")) == [1, 29]
  assert steps_of(read_samples(tmp_path / "samples.jsonl.gz")) == [1, 29]
  assert [event.step for event in read_events(tmp_path)[2:]] == [1, 29]
