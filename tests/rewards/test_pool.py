"""The pool survives what its items and the world do to it."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from grpo_jax.errors import UserError
from grpo_jax.rewards.pool import Pool
from tests.worker_processes import alive, worker_processes

LIMIT_S = 0.8
_HERE = str(Path(__file__).parent)


def make_pool(monkeypatch, workers=2, recycle_after=1000):
  monkeypatch.setattr(sys, "path", [*sys.path, _HERE])
  return Pool(
    "pool_items:run",
    workers=workers,
    limit_s=LIMIT_S,
    memory_mib=96,
    recycle_after=recycle_after,
  )


@pytest.fixture(scope="module")
def pool():
  """One pool for all tests here: whatever happens, it can be used again."""
  with pytest.MonkeyPatch.context() as monkeypatch:
    with make_pool(monkeypatch) as pool:
      yield pool


def _pids(pool):
  """Of two workers: items that take a while are handed out side by side."""
  return {result.value for result in pool.map([("pid", 0.05)] * 2)}


def test_order_is_kept_and_results_are_values(pool):
  items = [("echo", {"n": n, "text": "é\ud800" * (n % 7)}) for n in range(500)]
  results = pool.map(items)
  assert [r.value for r in results] == [item[1] for item in items]
  assert {r.status for r in results} == {"done"}
  assert pool.map([]) == []


@pytest.mark.parametrize(
  "kind, status, error",
  [
    ("raise", "raised", "ValueError: message"),
    ("exit", "raised", "SystemExit"),
    ("recurse", "raised", "RecursionError"),
    ("unserialisable", "raised", "TypeError"),
    ("unknown", "raised", "KeyError"),
    ("allocate_without_end", "raised", "out of memory"),
    ("die", "died", "died"),
    ("huge", "died", "died"),
    ("hang_in_c", "timed_out", "0.8 s"),
    ("hang_with_signals_blocked", "timed_out", "0.8 s"),
  ],
)
def test_a_bad_item_harms_only_itself(pool, kind, status, error):
  items = [("echo", 1), (kind, "message"), *[("echo", n) for n in range(9)]]
  start = time.monotonic()
  results = pool.map(items)
  assert time.monotonic() - start < LIMIT_S + 4
  assert results[1].status == status
  assert error in results[1].error
  del results[1]
  assert [r.value for r in results] == [1, *range(9)]


def test_hung_items_wait_side_by_side_and_not_in_turn(monkeypatch):
  with make_pool(monkeypatch, workers=6) as pool:
    pool.map([("echo", 1)])
    start = time.monotonic()
    results = pool.map([("sleep", 60)] * 6)
    assert time.monotonic() - start < 3 * LIMIT_S
  assert Counter(r.status for r in results) == {"timed_out": 6}


def test_an_item_is_tried_again_when_its_worker_was_killed(pool, tmp_path):
  results = pool.map([("die_once", str(tmp_path / "died")), ("echo", 1)])
  assert [r.value for r in results] == ["alive", 1]


def test_the_second_try_is_in_a_new_process(monkeypatch, tmp_path):
  with make_pool(monkeypatch) as pool:
    argument = [str(tmp_path / "died"), list(_pids(pool))]
    results = pool.map([("die_once_and_stop_others", argument)])
  assert results[0].value == "alive"


def test_idle_workers_killed_from_outside_are_replaced(pool):
  for _ in range(3):
    pids = _pids(pool)
    for pid in pids:
      os.kill(pid, signal.SIGKILL)
    results = pool.map([("echo", n) for n in range(20)])
    assert [r.value for r in results] == list(range(20))


def test_workers_killed_at_work_lose_nothing(pool):
  pids = _pids(pool)

  def kill():
    for pid in pids:
      os.kill(pid, signal.SIGKILL)

  timer = threading.Timer(0.1, kill)
  timer.start()
  results = pool.map([("sleep", 0.05)] * 10)
  timer.join()
  assert Counter(r.status for r in results) == {"done": 10}


def test_a_killed_nursery_is_replaced(pool):
  pool.map([("echo", 1)])
  for pid in worker_processes():
    os.kill(pid, signal.SIGKILL)
  results = pool.map([("echo", n) for n in range(20)])
  assert [r.value for r in results] == list(range(20))


def test_a_nursery_killed_amid_items_is_replaced(pool):
  def kill():
    for pid in worker_processes():
      os.kill(pid, signal.SIGKILL)

  timer = threading.Timer(0.1, kill)
  timer.start()
  results = pool.map([("sleep", 0.05)] * 10)
  timer.join()
  assert Counter(r.status for r in results) == {"done": 10}


def test_workers_die_with_a_nursery_that_is_killed(
  monkeypatch, tmp_path, wait_until
):
  reports = [tmp_path / "0", tmp_path / "1"]
  pool = make_pool(monkeypatch)
  items = [("report_and_hang", str(report)) for report in reports]
  thread = threading.Thread(target=lambda: pool.map(items))
  thread.start()
  wait_until(lambda: _started(reports))
  stuck = {int(report.read_text()) for report in reports}
  nurseries = [
    pid for pid in worker_processes() if worker_processes(pid) == stuck
  ]
  assert len(nurseries) == 1
  os.kill(nurseries[0], signal.SIGKILL)
  wait_until(lambda: not any(map(alive, stuck)))
  thread.join()
  pool.close()


def _started(reports):
  return all(report.exists() and report.read_text() for report in reports)


def test_an_interrupted_call_leaves_no_process_at_work(
  monkeypatch, tmp_path, wait_until
):
  reports = [tmp_path / "0", tmp_path / "1"]
  with make_pool(monkeypatch) as pool:

    def interrupt(busy):
      wait_until(lambda: _started(reports))
      raise KeyboardInterrupt

    with monkeypatch.context() as patch:
      patch.setattr(pool, "_finished", interrupt)
      with pytest.raises(KeyboardInterrupt):
        pool.map([("report_and_hang", str(report)) for report in reports])
    stuck = [int(report.read_text()) for report in reports]
    wait_until(lambda: not any(map(alive, stuck)))
    assert [r.value for r in pool.map([("echo", 1)] * 5)] == [1] * 5


def test_an_interrupted_fork_does_not_mix_up_processes(
  monkeypatch, tmp_path, wait_until
):
  def interrupt(*args, send=socket.send_fds):
    send(*args)
    raise KeyboardInterrupt

  with make_pool(monkeypatch, workers=1) as pool:
    with monkeypatch.context() as patch:
      patch.setattr(socket, "send_fds", interrupt)
      with pytest.raises(KeyboardInterrupt):
        pool.map([("echo", 1)])
    report = tmp_path / "pid"
    result = pool.map([("report_and_hang", str(report))])[0]
    assert result.status == "timed_out"
    wait_until(lambda: not alive(int(report.read_text())))


def test_signals_to_the_group_of_the_trainer_do_not_reach_workers(pool):
  assert all(os.getsid(pid) != os.getsid(0) for pid in _pids(pool))


def test_workers_are_replaced_after_some_items(monkeypatch, wait_until):
  with make_pool(monkeypatch, workers=1, recycle_after=3) as pool:
    pids = [r.value for r in pool.map([("pid", 0)] * 9)]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
  assert [len(set(pids[i : i + 3])) for i in (0, 3, 6)] == [1, 1, 1]
  assert len(set(pids)) == 3


def test_workers_outlive_a_call(pool):
  assert _pids(pool) == _pids(pool)
  assert len(_pids(pool)) == 2


def test_results_do_not_depend_on_the_number_of_workers(monkeypatch):
  kinds = ["echo"] * 30 + ["raise", "die", "exit", "sleep"]
  items = [
    (kind, 60 if kind == "sleep" else "x")
    for kind in random.Random(0).sample(kinds, k=len(kinds))
  ]
  seen = []
  for workers in (1, 3):
    with make_pool(monkeypatch, workers=workers) as pool:
      seen.append(pool.map(items))
  assert seen[0] == seen[1]


def test_several_threads_share_the_pool(pool):
  results = {}

  def use(name):
    results[name] = pool.map([("echo", [name, n]) for n in range(50)])

  threads = [threading.Thread(target=use, args=[n]) for n in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for name in range(4):
    assert [r.value for r in results[name]] == [[name, n] for n in range(50)]


def test_workers_started_by_a_thread_outlive_it(monkeypatch):
  pools = []
  thread = threading.Thread(
    target=lambda: pools.append(make_pool(monkeypatch, workers=1))
  )
  thread.start()
  thread.join()
  with pools[0] as pool:
    first = pool.map([("pid", 0)])
    assert first == pool.map([("pid", 0)])


def test_a_worker_imports_nothing_heavy(pool):
  modules = {name.split(".")[0] for name in pool.map([("modules", 1)])[0].value}
  assert not modules & {"jax", "jaxlib", "flax", "numpy", "absl", "pytest"}


def test_closing_leaves_no_process(monkeypatch):
  before = worker_processes()
  pool = make_pool(monkeypatch)
  pool.close()
  pool.map([])
  assert worker_processes() == before  # none is started for nothing
  pids = _pids(pool)
  assert len(worker_processes() - before) == 1 + len(pids)
  pool.close()
  assert worker_processes() == before


def test_a_function_that_cannot_be_imported_is_told():
  with Pool(
    "no_such_module:f", workers=1, limit_s=1, memory_mib=99, recycle_after=9
  ) as pool:
    with pytest.raises(UserError, match="no_such_module"):
      pool.map([(1,)])


@pytest.mark.parametrize("name", ["workers", "limit_s", "recycle_after"])
def test_limits_are_checked(name):
  limits = dict(workers=1, limit_s=1, memory_mib=99, recycle_after=9)
  with pytest.raises(UserError, match="more than zero"):
    Pool("pool_items:run", **limits | {name: 0})


# A trainer of its own, to be ended while its workers are stuck in C.
_TRAINER = """
import os, sys, time
sys.path.append(sys.argv[1])
from grpo_jax.rewards.pool import Pool
pool = Pool(
  "pool_items:run", workers=2, limit_s=60, memory_mib=256, recycle_after=9
)
items = [("report_and_hang", f"{sys.argv[2]}/{n}") for n in range(2)]
try:
  pool.map(items)
except KeyboardInterrupt:
  pool_again = [r.value for r in pool.map([("echo", 7)] * 3)]
  print("interrupted", pool_again, flush=True)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_outlives_the_trainer(name, tmp_path, wait_until):
  trainer = subprocess.Popen(
    [sys.executable, "-c", _TRAINER, _HERE, str(tmp_path)],
    stdout=subprocess.PIPE,
    text=True,
    env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
  )
  reports = [tmp_path / "0", tmp_path / "1"]
  wait_until(lambda: _started(reports))
  stuck = [int(report.read_text()) for report in reports]
  group = worker_processes(trainer.pid)
  assert set(stuck) < group
  trainer.send_signal(signal.Signals[name])
  output, _ = trainer.communicate(timeout=10)
  if name == "SIGINT":
    assert output == "interrupted [7, 7, 7]\n"
    assert trainer.returncode == 0
  wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in group))
