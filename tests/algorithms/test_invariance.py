"""What must not matter to a loss and its gradient, for every recipe."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms.recipes import Penalty, Recipe, pieces
from tests import every_recipe

T = 6
# Arguments of the pieces, each added to DAPO.
PIECES = {
  "adaptive_entropy": {"target": 5.0},
  "clamped_log_ratio": {"limit": 0.3},
  "clip_cov": {"fraction": 0.5, "lowest": -1.0},
  "drop_truncated": {},
  "dual_clip": {"ratio_cap": 1.3},
  "entropy_bonus": {"coefficient": 0.1},
  "high_entropy_tokens": {"fraction": 0.5},
  "kl_cov": {"fraction": 0.2},
  "kl_in_reward": {"coefficient": 0.1},
  "kl_loss": {"coefficient": 0.1, "estimator": "weighted_k3"},
  "lone_rewards": {},
  "off_policy_mask": {"threshold": 0.1},
  "sampler_correction": {
    "level": "token",
    "outside": "truncate",
    "highest": 1.5,
  },
}


def names():
  """Every recipe and every piece that a config can name."""
  return [*every_recipe.NAMES, *(f"dapo + {name}" for name in PIECES)]


def recipe(name) -> Recipe:
  name, _, piece = name.partition(" + ")
  one = every_recipe.make(name, T)
  if piece:
    # Its memory has seen a batch, or there would be nothing to see.
    one = getattr(pieces, piece)(one, **PIECES[piece])
    seen = tuple(
      memory._replace(initial=jnp.asarray(0.1)) for memory in one.memories
    )
    one = one._replace(memories=seen)
  return one


@pytest.fixture
def compiled(loss_and_grad):
  return lambda name: _compiled(loss_and_grad, name)


@cache
def _compiled(loss_and_grad, name):
  one = recipe(name)

  def run(rollouts, logp, parts=1):
    entropy = -logp
    return loss_and_grad(one, rollouts, logp, entropy=entropy, parts=parts)[:2]

  return jax.jit(run, static_argnames="parts")


def same(actual, expected, **tolerance):
  tolerance = {"rtol": 1e-5, "atol": 1e-6} | tolerance
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, **tolerance),
    actual,
    expected,
  )


def permuted(tree, axis, order):
  return jax.tree.map(
    lambda x: jnp.take(x, order, axis) if x.ndim > axis else x, tree
  )


def test_the_list_is_complete():
  assert {"grpo", "dapo", "dr_grpo", "supervised"} <= set(names())
  found = inspect.getmembers(pieces, inspect.isfunction)
  own = {n for n, f in found if f.__module__.startswith(pieces.__name__)}
  assert {name for name in own if not name.startswith("_")} == set(PIECES)


@pytest.mark.parametrize("name", every_recipe.NAMES)
def test_under_vmap(name, compiled, random_batch):
  batches = [random_batch(seed) for seed in (9, 10)]
  stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
  together = jax.vmap(compiled(name))(*stacked)
  alone = [compiled(name)(*batch) for batch in batches]
  same(together, jax.tree.map(lambda *x: jnp.stack(x), *alone))


@pytest.mark.parametrize("name", names())
def test_something_is_learned(name, compiled, random_batch):
  loss, grad = compiled(name)(*random_batch(0))
  assert np.isfinite(loss) and np.isfinite(grad).all()
  assert np.abs(grad).max() > 1e-3


@pytest.mark.parametrize("piece", PIECES)
def test_each_piece_changes_something(piece, compiled, random_batch):
  batch = random_batch(0, P=6, G=1) if "lone" in piece else random_batch(0)
  plain, changed = compiled("dapo")(*batch), compiled(f"dapo + {piece}")(*batch)
  differences = jax.tree.map(lambda a, b: np.abs(a - b).max(), plain, changed)
  assert max(differences) > 1e-4


@pytest.mark.parametrize("name", names())
def test_microbatches(name, compiled, random_batch):
  batch = random_batch(1)
  run = compiled(name)
  same(run(*batch, parts=4), run(*batch))


@pytest.mark.parametrize("name", every_recipe.NAMES)
def test_eager(name, compiled, random_batch, loss_and_grad):
  rollouts, logp = random_batch(2)
  eager = loss_and_grad(recipe(name), rollouts, logp, entropy=-logp)[:2]
  same(eager, compiled(name)(rollouts, logp))


@pytest.mark.parametrize("name", names())
def test_padding_width(name, compiled, random_batch):
  rollouts, logp = random_batch(3)
  loss, grad = compiled(name)(rollouts, logp)

  def widen(x):
    if x.ndim < 3 or x.shape[-1] != T:
      return x
    return jnp.pad(x, ((0, 0), (0, 0), (0, 3)))

  wide_loss, wide_grad = compiled(name)(
    jax.tree.map(widen, rollouts), widen(logp)
  )
  same((wide_loss, wide_grad[..., :T]), (loss, grad))
  assert not wide_grad[..., T:].any()


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_garbage_in_masked_slots(name, garbage, compiled, random_batch):
  rollouts, logp = random_batch(4)
  # The last completion does not exist; its numbers, and those of padding, are
  # whatever the sampler left there.
  sample_mask = jnp.ones_like(rollouts.sample_mask).at[-1, -1].set(False)
  rollouts = rollouts.replace(sample_mask=sample_mask)
  masked = ~(rollouts.loss_mask & sample_mask[..., None])

  def spoil(x):
    return jnp.where(masked if x.ndim == 3 else ~sample_mask, garbage, x)

  spoilt = rollouts.replace(
    components=jnp.where(sample_mask[..., None], rollouts.components, garbage),
    **{
      field: spoil(getattr(rollouts, field))
      for field in (
        "outcome",
        "accuracy",
        "step_rewards",
        "old_logp",
        "ref_logp",
        "behaviour_logp",
        "entropy",
        "value",
        "final_value",
      )
    },
  )
  expected = compiled(name)(rollouts, logp)
  loss, grad = compiled(name)(spoilt, spoil(logp))
  same((loss, grad), expected)
  assert not grad[masked].any()


@pytest.mark.parametrize(
  "name", [name for name in names() if "clip_cov" not in name]
)  # which draws tokens by their place
@pytest.mark.parametrize("axis", [0, 1])
def test_order(name, axis, compiled, random_batch):
  rollouts, logp = random_batch(5)
  order = np.roll(np.arange(logp.shape[axis]), 1)
  loss, grad = compiled(name)(rollouts, logp)
  moved = compiled(name)(*permuted((rollouts, logp), axis, order))
  same(moved, (loss, jnp.take(grad, order, axis)))


@pytest.mark.parametrize("name", names())
def test_all_masked(name, compiled, random_batch):
  rollouts, logp = random_batch(6)
  empty = rollouts.replace(
    loss_mask=jnp.zeros_like(rollouts.loss_mask),
    lengths=jnp.zeros_like(rollouts.lengths),
  )
  loss, grad = compiled(name)(empty, logp)
  assert loss == 0 and not grad.any()
  absent = rollouts.replace(sample_mask=jnp.zeros_like(rollouts.sample_mask))
  loss, grad = compiled(name)(absent, logp)
  assert loss == 0 and not grad.any()


# Where equal rewards in each group still teach: no baseline of the group.
TEACHES_ON_TIES = {"supervised", "reinforce_moving_average", "ppo", "vapo"}
TEACHES_ALONE = {"dapo + lone_rewards", "verl_grpo"}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("G", [1, 7])
def test_ties_teach_nothing(name, G, random_batch, compiled):
  rollouts, logp = random_batch(7, G=max(G, 2))
  rollouts, logp = jax.tree.map(
    lambda x: x[:, :G] if x.ndim > 1 and x.shape[1] == max(G, 2) else x,
    (rollouts, logp),
  )
  # In float32 the mean of seven such numbers is another one. No KL: the
  # reference is the policy.
  for value in (0.7, -0.9, 0.1):
    tied = jnp.full_like(rollouts.outcome, value)
    equal = rollouts.replace(
      outcome=tied,
      components=jnp.full_like(rollouts.components, value),
      accuracy=tied,
      step_rewards=jnp.full_like(logp, value),
      value=jnp.zeros_like(logp),
      lengths=jnp.full_like(rollouts.lengths, 2),
      loss_mask=jnp.broadcast_to(jnp.arange(T) < 2, rollouts.loss_mask.shape),
      stop_reason=jnp.ones_like(rollouts.stop_reason),
      ref_logp=logp,
      old_logp=logp,
      behaviour_logp=logp,
    )
    _, grad = compiled(name)(equal, logp)
    assert np.isfinite(grad).all()
    alone = G == 1 and name in TEACHES_ALONE
    assert grad.any() == (alone or name in TEACHES_ON_TIES)


def test_a_variant_need_not_think_of_masked_slots(random_batch, loss_and_grad):
  """It may apply any function to the log-probability, and return NaN."""

  def surrogate(log_ratio, advantage, logp):
    finite = jnp.isfinite(log_ratio + advantage + logp)
    loss = -advantage * jnp.sqrt(jnp.exp(logp))
    return jnp.where(advantage == 0, jnp.nan, loss), {"finite": finite}

  def penalty(scores, batch):
    return scores.logp**2 + jnp.sqrt(scores.entropy + 1.0)

  rollouts, logp = random_batch(8)
  masked = ~rollouts.loss_mask
  one = recipe("grpo")._replace(
    surrogate=surrogate, penalties=(Penalty(0.1, penalty),)
  )
  expected = loss_and_grad(one, rollouts, logp, entropy=-logp)
  spoilt = rollouts.replace(
    old_logp=jnp.where(masked, jnp.nan, rollouts.old_logp)
  )
  logp = jnp.where(masked, -jnp.inf, logp)
  actual = loss_and_grad(one, spoilt, logp, entropy=-logp)
  assert np.isfinite(expected[0])
  same(actual[:2], expected[:2])
  total, tokens = actual[2]["finite"]
  assert total == tokens
