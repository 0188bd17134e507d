"""Saved and restored bit by bit, also past damage and a full disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.errors import UserError
from grpo_jax.training.checkpoints import (
  Checkpoints,
  rollouts_from_json,
  rollouts_to_json,
)
from grpo_jax.training.collect import StreamState
from grpo_jax.training.setup import HostState
from grpo_jax.training.step import (
  OptimizerOptions,
  init_state,
  make_optimizer,
)


@pytest.fixture
def state(params):
  options = OptimizerOptions(1e-3, 2, 0, 0.9, 0.99, 0.0, 1.0)
  return init_state(params, make_optimizer(options))


def _moved(state, step):
  params = jax.tree.map(lambda x: x + step / 3, state.params)
  return state.replace(step=jnp.int32(step), params=params)


def _equal(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


def test_round_trip_and_retention(tmp_path, state):
  checkpoints = Checkpoints(tmp_path / "c", keep=2)
  assert checkpoints.restore_latest(state) is None
  for step in (1, 2, 3):
    assert checkpoints.save(step, _moved(state, step), {"next": step})
  step, restored, host = Checkpoints(tmp_path / "c", keep=2).restore_latest(
    state
  )
  assert (step, host) == (3, {"next": 3})
  _equal(restored, _moved(state, 3))
  names = {p.name for p in (tmp_path / "c").iterdir()}
  assert {"2", "3"} <= names and "1" not in names


def test_saving_a_step_again_changes_nothing(tmp_path, state):
  checkpoints = Checkpoints(tmp_path / "c", keep=2)
  checkpoints.save(1, _moved(state, 1), {"next": 1})
  assert checkpoints.save(1, _moved(state, 9), {"next": 9})
  assert checkpoints.restore_latest(state)[2] == {"next": 1}


@pytest.mark.parametrize("damage", ["truncate", "delete", "empty"])
def test_a_damaged_newest_checkpoint_falls_back(
  tmp_path, state, caplog, damage
):
  checkpoints = Checkpoints(tmp_path / "c", keep=3)
  for step in (1, 2):
    checkpoints.save(step, _moved(state, step), {"next": step})
  checkpoints.__exit__()
  files = [p for p in (tmp_path / "c/2").rglob("*") if p.is_file()]
  for path in files:
    if damage == "delete" and "state" in path.parts:
      path.unlink()
    elif damage == "truncate":
      path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "empty":
      path.write_bytes(b"")
  checkpoints = Checkpoints(tmp_path / "c", keep=3)
  step, restored, host = checkpoints.restore_latest(state)
  assert (step, host["next"]) == (1, 1)
  _equal(restored, _moved(state, 1))
  assert "step 2 cannot be read" in caplog.text
  assert (tmp_path / "c.damaged/2").exists()
  assert checkpoints.save(2, _moved(state, 2), {"next": 2})


def test_a_failed_save_costs_that_checkpoint_only(
  tmp_path, state, caplog, monkeypatch
):
  checkpoints = Checkpoints(tmp_path / "c", keep=2)
  checkpoints.save(1, _moved(state, 1), {})

  def full(*args, **kwargs):
    (tmp_path / "c/2.orbax-checkpoint-tmp").mkdir()
    raise OSError(28, "No space left on device")

  with monkeypatch.context() as patch:
    patch.setattr(checkpoints._manager, "save", full)
    assert not checkpoints.save(2, _moved(state, 2), {})
  assert "step 2 could not be saved" in caplog.text
  assert not list((tmp_path / "c").glob("*tmp*"))
  assert "No space left" in caplog.text
  assert checkpoints.restore_latest(state)[0] == 1
  assert checkpoints.save(2, _moved(state, 2), {})


def test_no_readable_checkpoint_is_not_a_fresh_start(tmp_path, state):
  with Checkpoints(tmp_path / "c", keep=2) as checkpoints:
    checkpoints.save(1, state, {})
  for path in (tmp_path / "c/1").rglob("*"):
    if path.is_file():
      path.write_bytes(b"")
  with pytest.raises(UserError, match="None of the checkpoints"):
    Checkpoints(tmp_path / "c", keep=2).restore_latest(state)


def test_another_models_checkpoint_is_left_alone(tmp_path, state, variant):
  with Checkpoints(tmp_path / "c", keep=2) as checkpoints:
    checkpoints.save(1, state, {})
  _, params = variant(mlp_width=28)
  options = OptimizerOptions(1e-3, 2, 0, 0.9, 0.99, 0.0, 1.0)
  other = init_state(params, make_optimizer(options))
  with pytest.raises(UserError, match="another model"):
    Checkpoints(tmp_path / "c", keep=2).restore_latest(other)
  assert Checkpoints(tmp_path / "c", keep=2).restore_latest(state)[0] == 1


def test_another_recipes_memory_is_left_alone(tmp_path, state):
  """Of the same shape, under another name: not a damaged checkpoint."""
  states = [state.replace(memory={name: np.zeros(())}) for name in "ab"]
  with Checkpoints(tmp_path / "c", keep=2) as checkpoints:
    checkpoints.save(1, states[0], {})
  with pytest.raises(UserError, match="another model"):
    Checkpoints(tmp_path / "c", keep=2).restore_latest(states[1])
  assert Checkpoints(tmp_path / "c", keep=2).restore_latest(states[0])[0] == 1


def test_groups_survive_json_bit_by_bit(random_rollouts):
  rollouts = random_rollouts()
  rollouts.old_logp[0, 0, 0] = np.nextafter(np.float32(0.1), np.float32(1))
  host = HostState(
    stream=StreamState(7, 0.3, rollouts, {11: 0.1 + 0.2, 2: 1.0}),
    before={"accuracy": [0.1, 0.25], "summary": {}},
    seconds={"sample": 1.5},
    tokens=12,
  )
  again = HostState.from_json(host.to_json())
  _equal(again.stream.pending, rollouts)
  assert [x.dtype for x in jax.tree.leaves(again.stream.pending)] == [
    x.dtype for x in jax.tree.leaves(rollouts)
  ]
  assert again._replace(stream=None) == host._replace(stream=None)
  assert again.stream[:2] == (7, 0.3)
  assert again.stream.solve_rates == {11: 0.1 + 0.2, 2: 1.0}
  assert rollouts_from_json(rollouts_to_json(None)) is None
