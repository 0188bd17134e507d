"""Minibatches hold every group once, with weights of their own."""

import numpy as np

from grpo_jax.algorithms import recipes
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


def test_rows_hold_prompt_and_completion_without_a_gap(random_rollouts):
  rollouts = random_rollouts(P=2, G=2)
  batch = make_minibatches(
    recipes.grpo(length_budget=6), minibatches=1, microbatches=1
  )(rollouts, {})[0]
  rows = np.asarray(batch.rows.tokens[0, 0])
  predecessor = np.asarray(batch.rows.predecessor[0, 0])
  for n in range(4):
    p, g = divmod(n, 2)
    prompt = rollouts.prompt_tokens[p, : rollouts.prompt_lengths[p]]
    completion = rollouts.tokens[p, g, : rollouts.lengths[p, g]]
    whole = np.concatenate([prompt, completion])
    np.testing.assert_array_equal(rows[n, : len(whole)], whole)
    before = rows.ravel()[predecessor[n, : len(completion)]]
    np.testing.assert_array_equal(before, whole[len(prompt) - 1 : -1])
