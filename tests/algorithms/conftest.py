"""From plain arrays to a loss and its gradient, and the golden cases."""

import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings

from grpo_jax.algorithms.loss import optimizer_batch, prepare, token_loss
from grpo_jax.types import EOS, LENGTH, Rollouts, TokenScores

settings.register_profile(
  "algorithms", max_examples=15, deadline=None, derandomize=True
)
settings.load_profile("algorithms")


@pytest.fixture(autouse=True)
def _no_silent_broadcast():
  """[T] against [P, T] is an error: only axes of 1 may be stretched."""
  with jax.numpy_rank_promotion("raise"):
    yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
  """Runs a test in both precisions."""
  with jax.enable_x64(request.param == "float64"):
    yield jnp.dtype(request.param)


@pytest.fixture
def close(dtype) -> Callable:
  """Asserts equality at the tolerance of golden.json for the precision."""
  double = dtype == jnp.float64
  rtol, atol = (1e-10, 1e-13) if double else (2e-5, 1e-6)

  def check(actual, expected):
    actual = np.asarray(actual)
    assert actual.dtype == dtype, f"{actual.dtype}, not {dtype}"
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)

  return check


class Golden:
  """The cases of golden.json by id, with their fixtures filled in."""

  def __init__(self, path: Path):
    content = json.loads(path.read_text())
    self._fixtures = content["fixtures"]
    self._cases = {case["id"]: case for case in content["cases"]}
    self.ids = list(self._cases)

  def __call__(self, name: str) -> tuple[dict, dict]:
    case = self._cases[name]
    inputs = case["inputs"]
    return self._fixtures.get(inputs.get("fixture"), {}) | inputs, case[
      "outputs"
    ]


@pytest.fixture(scope="session")
def golden() -> Golden:
  return Golden(Path(__file__).with_name("golden.json"))


@pytest.fixture(scope="session")
def make_rollouts() -> Callable[..., Rollouts]:
  return _make_rollouts


@pytest.fixture
def golden_rollouts(dtype) -> Callable:
  """Turns a golden case into groups of 4 or fewer, and the policy's logp."""

  def make(case, groups=1, **replaced):
    def grid(name):
      values = jnp.asarray(case[name], dtype)
      return values.reshape(groups, -1, *values.shape[1:])

    arrays = {
      name: grid(source)
      for name, source in (
        ("old_logp", "logp_old"),
        ("ref_logp", "logp_ref"),
        ("behaviour_logp", "logp_rollout"),
      )
      if source in case
    }
    rollouts = _make_rollouts(
      rewards=grid("rewards"),
      mask=grid("mask"),
      dtype=dtype,
      **(arrays | replaced),
    )
    return rollouts, grid("logp_new")

  return make


@pytest.fixture
def loss_and_grad() -> Callable:
  return _loss_and_grad


@pytest.fixture
def random_batch() -> Callable:
  return _random_batch


def _make_rollouts(
  *, rewards, mask, old_logp, dtype=jnp.float32, **replaced
) -> Rollouts:
  """Groups from arrays [P, G] and [P, G, T]; what is not given is neutral."""
  mask = jnp.asarray(mask, bool)
  P, G, T = mask.shape
  rewards = jnp.asarray(rewards, dtype)
  fields = dict(
    prompt_tokens=jnp.zeros((P, 1), jnp.int32),
    prompt_lengths=jnp.ones(P, jnp.int32),
    tokens=jnp.zeros((P, G, T), jnp.int32),
    lengths=jnp.sum(mask, -1, dtype=jnp.int32),
    stop_reason=jnp.full((P, G), EOS),
    loss_mask=mask,
    behaviour_logp=old_logp,
    sample_mask=jnp.ones((P, G), bool),
    version=jnp.zeros(P, jnp.int32),
    outcome=rewards,
    components=rewards[..., None],
    accuracy=rewards,
    step_rewards=jnp.zeros((P, G, T)),
    step_mask=jnp.zeros((P, G, T), bool),
    old_logp=old_logp,
    ref_logp=jnp.zeros((P, G, T)),
    entropy=jnp.zeros((P, G, T)),
    value=jnp.zeros((P, G, T)),
    final_value=jnp.zeros((P, G)),
  )
  fields |= replaced
  for name in (
    "behaviour_logp",
    "components",
    "accuracy",
    "step_rewards",
    "old_logp",
    "ref_logp",
    "entropy",
    "value",
    "final_value",
  ):
    fields[name] = jnp.asarray(fields[name], dtype)
  return Rollouts(**fields)


def _loss_and_grad(
  recipe, rollouts, logp, *, parts=1, entropy=None, memory=None
):
  """Runs prepare, weights and token_loss as training does.

  Args:
    recipe: the algorithm.
    rollouts: the whole rollout batch.
    logp: the policy's, [P, G, T].
    parts: microbatches whose losses and gradients are summed.
    entropy: the policy's, [P, G, T]; zeros without. The critic's values are
      the log-probabilities, held constant.
    memory: of the recipe; its initial one without.

  Returns:
    Loss, gradient [P, G, T] and summed totals.
  """
  memory = recipe.initial_memory if memory is None else memory
  prepared, _ = prepare(recipe, rollouts, memory)
  batch = optimizer_batch(recipe, rollouts, prepared)
  shape = logp.shape

  def rows(x):
    return x.reshape(-1, shape[-1])

  entropy = jnp.zeros_like(logp) if entropy is None else entropy
  scores = TokenScores(logp=rows(logp), entropy=rows(entropy), value=rows(logp))
  split = jax.tree.map(
    lambda x: x.reshape(parts, -1, shape[-1]), (scores, batch)
  )

  def one(logp, scores, batch):
    return token_loss(recipe, scores.replace(logp=logp), batch)

  value_and_grad = jax.value_and_grad(one, has_aux=True)
  loss, grads, totals = 0.0, [], []
  for part in range(parts):
    scores, batch = jax.tree.map(lambda x: x[part], split)  # noqa: B023
    (value, counts), grad = value_and_grad(scores.logp, scores, batch)
    loss += value
    grads.append(grad)
    totals.append(counts)
  totals = jax.tree.map(lambda *x: sum(x), *totals)
  return loss, jnp.concatenate(grads).reshape(shape), totals


def _random_batch(seed: int, P: int = 2, G: int = 4, T: int = 6):
  """Rollouts and policy log-probs with ratios on both sides of every clip."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, T + 1, (P, G))
  old = -rng.exponential(1.0, (P, G, T))
  correct = rng.integers(0, 2, (P, G)).astype(float)
  correct[:, :2] = (1.0, 0.0)[:G]
  stop_reason = np.where(rng.random((P, G)) < 0.2, LENGTH, EOS)
  stop_reason[0, -1] = LENGTH
  rollouts = _make_rollouts(
    rewards=correct + rng.normal(0, 0.1, (P, G)),
    mask=np.arange(T) < lengths[..., None],
    old_logp=old,
    accuracy=correct,
    behaviour_logp=old + rng.normal(0, 0.3, old.shape),
    ref_logp=old + rng.normal(0, 0.3, old.shape),
    stop_reason=jnp.asarray(stop_reason, jnp.int32),
    components=np.stack([correct, rng.normal(0, 1, (P, G))], axis=-1),
    step_rewards=rng.integers(0, 2, old.shape).astype(float),
    step_mask=rng.random(old.shape) < 0.5,
    entropy=rng.exponential(1.0, old.shape),
    value=rng.normal(0.5, 0.3, old.shape),
    final_value=rng.normal(0.5, 0.3, (P, G)),
  )
  logp = jnp.asarray(old + rng.normal(0, 0.25, old.shape), jnp.float32)
  return rollouts, logp


@pytest.fixture(scope="session")
def draw() -> Callable:
  """Rewards with ties, masks with empty rows, NaN wherever masked."""

  def make(seed, shape):
    rng = np.random.default_rng(seed)
    P, G, T = shape
    rewards = rng.choice([0.0, 1.1, 1.0, -2.5], (P, G))
    rewards[rng.random(P) < 0.3] = 1.1
    sample_mask = rng.random((P, G)) < 0.8
    loss_mask = rng.random((P, G, T)) < 0.7
    loss_mask[rng.random((P, G)) < 0.2] = False
    rewards = np.where(sample_mask, rewards, np.nan)
    return rng, rewards, sample_mask, loss_mask

  return make


@pytest.fixture(scope="session")
def agree() -> Callable:
  """Asserts equality up to float32 rounding."""

  def check(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=5e-5, atol=3e-5)

  return check
