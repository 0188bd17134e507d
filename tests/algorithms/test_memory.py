"""What recipes remember between rollout batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.recipes import pieces

T = 6


def test_the_baseline_is_the_moving_average_of_earlier_batches(random_batch):
  recipe = recipes.reinforce_moving_average(
    length_budget=T, decay=0.5, kl_coefficient=0.0
  )
  step = jax.jit(lambda rollouts, memory: prepare(recipe, rollouts, memory))
  memory, baseline = recipe.initial_memory, 0.0
  for seed in range(3):
    rollouts, _ = random_batch(seed)
    prepared, memory = step(rollouts, memory)
    expected = np.where(
      rollouts.loss_mask, rollouts.outcome[..., None] - baseline, 0.0
    )
    np.testing.assert_allclose(prepared.advantage, expected, atol=1e-6)
    baseline = 0.5 * baseline + 0.5 * float(rollouts.outcome.mean())
  assert memory["moving_average"].updates == 3


def test_entropy_is_rewarded_below_its_target(random_batch, loss_and_grad):
  recipe = pieces.adaptive_entropy(
    recipes.grpo(length_budget=T), target=0.2, delta=0.1, highest=0.25
  )
  rollouts, logp = random_batch(0)
  memory = recipe.initial_memory
  coefficients = []
  for entropy in (0.1, 0.1, 0.1, 0.1, 0.3, 0.1):
    measured = rollouts.replace(entropy=jnp.full_like(logp, entropy))
    prepared, after = prepare(recipe, measured, memory)
    coefficients.append(float(prepared.scales[0].max()))
    total = loss_and_grad(
      recipe, measured, logp, entropy=jnp.ones_like(logp), memory=memory
    )[0]
    plain = loss_and_grad(recipes.grpo(length_budget=T), measured, logp)[0]
    # Every completion has the same weight, 1 in all.
    np.testing.assert_allclose(total - plain, -coefficients[-1], atol=1e-6)
    memory = after
  # Above the target it is not applied, and lower afterwards.
  np.testing.assert_allclose(coefficients, [0, 0.1, 0.2, 0.25, 0, 0.15])


def test_a_batch_without_tokens_is_not_remembered(random_batch):
  recipe = pieces.adaptive_entropy(
    recipes.reinforce_moving_average(length_budget=T), target=1.0
  )
  rollouts, _ = random_batch(0)
  _, memory = prepare(recipe, rollouts, recipe.initial_memory)
  assert len(memory) == 2
  absent = rollouts.replace(sample_mask=jnp.zeros_like(rollouts.sample_mask))
  _, after = prepare(recipe, absent, memory)
  jax.tree.map(np.testing.assert_array_equal, after, memory)


def test_pieces_go_onto_a_recipe_with_a_memory(random_batch, loss_and_grad):
  base = recipes.reinforce_moving_average(length_budget=T)
  recipe = pieces.high_entropy_tokens(base, fraction=1.0)
  batch = random_batch(2)
  for a, b in zip(
    loss_and_grad(recipe, *batch)[:2],
    loss_and_grad(base, *batch)[:2],
    strict=True,
  ):
    np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("after", [jnp.zeros(2), jnp.zeros((), jnp.int32)])
def test_a_memory_keeps_shape_and_dtype(after, random_batch):
  memory = recipes.Memory("odd", jnp.zeros(()), lambda *_: after)
  recipe = recipes.grpo(length_budget=T)._replace(memories=(memory,))
  with pytest.raises(ValueError, match="'odd' must keep"):
    prepare(recipe, random_batch(0)[0], recipe.initial_memory)


def test_two_memories_of_one_name_are_refused():
  recipe = pieces.clip_cov(pieces.clip_cov(recipes.grpo(length_budget=T)))
  with pytest.raises(ValueError, match="one name"):
    _ = recipe.initial_memory


def test_two_pieces_keep_their_places(random_batch):
  """Each binds its own penalty, whatever stands beside it."""
  recipe = pieces.adaptive_entropy(
    pieces.entropy_bonus(recipes.grpo(length_budget=T), coefficient=0.01),
    target=9.0,
  )
  recipe = pieces.kl_cov(recipe, fraction=0.5)
  rollouts, _ = random_batch(1)
  memory = {"entropy_coefficient": jnp.asarray(0.2)}
  prepared, _ = prepare(recipe, rollouts, memory)
  fixed, adaptive, chosen = (scale.max() for scale in prepared.scales)
  np.testing.assert_allclose([fixed, adaptive, chosen], [1.0, 0.2, 1.0])


@pytest.mark.parametrize("decay", [-0.1, 1.5])
def test_a_decay_out_of_range_is_refused(decay):
  with pytest.raises(ValueError, match="decay"):
    recipes.reinforce_moving_average(length_budget=T, decay=decay)
