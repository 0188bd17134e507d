"""Minibatches hold every group once, with weights of their own."""

import jax
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.models.decoder import segment_mask
from grpo_jax.training.batches import make_minibatches


def test_group_i_goes_to_minibatch_i_mod_m(random_rollouts):
  rollouts = random_rollouts(P=6, G=4)
  batch = make_minibatches(
    recipes.grpo(length_budget=6), minibatches=3, microbatches=2
  )(rollouts, {})[0]
  assert batch.tokens.shape == (3, 2, 4, 6)
  for m in range(3):
    np.testing.assert_array_equal(
      batch.tokens[m].reshape(2, 4, 6), rollouts.tokens[m::3]
    )


def test_the_weights_of_each_minibatch_sum_to_one(random_rollouts):
  for recipe in (recipes.grpo, recipes.dapo):
    batch = make_minibatches(
      recipe(length_budget=7), minibatches=2, microbatches=4
    )(random_rollouts(), {})[0]
    np.testing.assert_allclose(batch.weight.sum((1, 2, 3)), 1, rtol=1e-6)


@pytest.mark.parametrize("completions_per_row", [1, 2, 4])
def test_a_token_sees_its_prompt_and_completion_up_to_itself(
  random_rollouts, completions_per_row
):
  rollouts = random_rollouts(P=2, G=4)
  rows = make_minibatches(
    recipes.grpo(length_budget=6),
    minibatches=1,
    microbatches=1,
    completions_per_row=completions_per_row,
  )(rollouts, {})[0].rows
  rows = jax.tree.map(lambda x: x[0, 0], rows)
  assert len(rows.tokens) == 8 // completions_per_row
  mask = np.asarray(segment_mask(rows.segments, rows.prompts))
  rows = jax.tree.map(np.asarray, rows)
  for n in range(8):
    p, g = divmod(n, 4)
    prompt = rollouts.prompt_tokens[p, : rollouts.prompt_lengths[p]]
    completion = rollouts.tokens[p, g, : rollouts.lengths[p, g]]
    whole = np.concatenate([prompt, completion])
    for t, place in enumerate(rows.places[n, : len(completion)]):
      row, at = divmod(int(place), rows.tokens.shape[1])
      seen = mask[row, at]
      end = len(prompt) + t + 1
      np.testing.assert_array_equal(rows.tokens[row, seen], whole[:end])
      np.testing.assert_array_equal(rows.positions[row, seen], np.arange(end))
      before = rows.predecessor[n, t]
      assert rows.tokens.ravel()[before] == whole[end - 2]
      assert rows.positions.ravel()[before] == end - 2
