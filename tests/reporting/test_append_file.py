"""Disks that fill up, and processes that are killed while they write."""

import logging

import pytest

from grpo_jax.reporting import append_file
from grpo_jax.reporting.append_file import AppendFile


def keep_all(path):
  return [path.read_bytes()] if path.exists() else []


def test_records_are_in_the_file_at_once_and_after_what_was_kept(tmp_path):
  path = tmp_path / "log"
  path.write_bytes(b"old\n")
  file = AppendFile(path, keep_all)
  file.append(b"1\n")
  assert path.read_bytes() == b"old\n1\n"
  file.append(b"2\n")
  assert path.read_bytes() == b"old\n1\n2\n"


def test_a_full_disk_loses_records_and_raises_nothing(
  tmp_path, full_disk, caplog
):
  path = tmp_path / "log"
  file = AppendFile(path, keep_all)
  for step in range(1, 6):
    full_disk["on"] = step in (2, 3)
    file.append(f"row {step}\n".encode())
  assert path.read_text() == "row 1\nrow 4\nrow 5\n"
  (warning,) = caplog.records  # one, though two writes failed
  assert warning.levelno == logging.WARNING
  assert f"{path}: No space left on device" in warning.getMessage()
  caplog.clear()
  file.report_lost()
  assert caplog.messages == [f"{path}: writes lost: 2"]


def test_nothing_is_reported_when_nothing_was_lost(tmp_path, caplog):
  file = AppendFile(tmp_path / "log", keep_all)
  file.append(b"1")
  file.report_lost()
  assert not caplog.records


def test_a_start_on_a_full_disk_is_made_up_for(tmp_path, full_disk, caplog):
  path = tmp_path / "log"
  path.write_bytes(b"kept and stale")
  full_disk["on"] = True
  file = AppendFile(path, lambda path: [path.read_bytes()[:4]])
  file.append(b" lost")
  assert path.read_bytes() == b"kept and stale"
  full_disk["on"] = False
  file.append(b" new")
  assert path.read_bytes() == b"kept new"
  file.report_lost()
  assert caplog.messages[1:] == [f"{path}: writes lost: 1"]
  assert [p.name for p in tmp_path.iterdir()] == ["log"]


def test_a_start_that_is_killed_leaves_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / "log"
  path.write_bytes(b"old")

  def killed(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(append_file.os, "replace", killed)
  with pytest.raises(KeyboardInterrupt):
    AppendFile(path, lambda _: [b"new"])
  assert path.read_bytes() == b"old"
  assert [p.name for p in tmp_path.iterdir()] == ["log"]


def test_a_file_that_was_removed_is_made_again(tmp_path):
  path = tmp_path / "log"
  file = AppendFile(path, keep_all)
  file.append(b"1")
  path.unlink()
  file.append(b"2")
  assert path.read_bytes() == b"2"
