"""Rows that several completions share give every recipe the same gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms.loss import optimizer_batch, prepare, token_loss
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.models.critic import init_critic
from grpo_jax.models.decoder import init_params
from grpo_jax.models.logprobs import completion_rows, score
from grpo_jax.training.packing import packed_rows, place
from tests import every_recipe

T = 6


@pytest.fixture(scope="module")
def layouts(model, random_rollouts):
  """Scores of padded and of packed rows, and their pull-backs to parameters."""
  model = dataclasses.replace(model, layers=2)
  params = init_params(model, jax.random.key(1))
  rollouts = random_rollouts(P=2, G=4, T=T)
  N = rollouts.lengths.size
  tokens = rollouts.tokens.reshape(N, T)
  prompts = np.repeat(rollouts.prompt_tokens, 4, axis=0)
  lengths = np.repeat(rollouts.prompt_lengths, 4)
  arrays = tuple(map(jnp.asarray, (prompts, lengths, tokens)))
  padded = completion_rows(*arrays)
  shared = completion_rows(*arrays, completions_per_row=4)
  texts = [p[:n].tolist() for p, n in zip(prompts, lengths, strict=True)]
  completions = [
    row[:n].tolist()
    for row, n in zip(tokens, rollouts.lengths.ravel(), strict=True)
  ]
  used = [0] * 4
  places = [
    place(len(p) + len(c), used, width=20)
    for p, c in zip(texts, completions, strict=True)
  ]
  packed, _, mask = packed_rows(
    texts,
    completions,
    places,
    rows=4,
    width=20,
    max_sequences=N,
    completion_width=T,
  )
  assert used.count(0) >= 1 and (mask == rollouts.loss_mask.reshape(N, T)).all()
  critic = init_critic("model", params, model)
  critic["weight"] = jax.random.normal(jax.random.key(3), (model.width,))

  def of(rows):
    def run(learned):
      scores = score(
        learned[0],
        model,
        jax.tree.map(jnp.asarray, rows),
        jnp.asarray(tokens),
        temperature=1.0,
        critic=learned[1],
      )
      return scores

    forward = jax.jit(run)
    pull = jax.jit(lambda learned, c: jax.vjp(run, learned)[1](c)[0])
    learned = (params, critic)
    return forward(learned), lambda c: pull(learned, c)

  return rollouts, of(padded), of(packed), of(shared)


def test_scores_are_the_same(layouts):
  rollouts, (padded, _), *others = layouts
  mask = rollouts.loss_mask.reshape(-1, T)
  for name in ("logp", "entropy", "value", "next_value"):
    for scores, _ in others:
      np.testing.assert_allclose(
        padded[name][mask], scores[name][mask], rtol=1e-5, atol=1e-5
      )


@pytest.mark.parametrize("name", every_recipe.NAMES)
def test_loss_and_gradient_are_the_same(name, layouts):
  rollouts, *layouts = layouts
  recipe = pieces.entropy_bonus(every_recipe.make(name, T), coefficient=0.1)
  rollouts = jax.tree.map(jnp.asarray, rollouts)

  @jax.jit
  def cotangent(scores):
    prepared, _ = prepare(recipe, rollouts, recipe.initial_memory)
    batch = optimizer_batch(recipe, rollouts, prepared)
    run = jax.value_and_grad(lambda s: token_loss(recipe, s, batch)[0])
    return run(scores)

  (expected_loss, expected), *others = (
    (loss, pull(c))
    for scores, pull in layouts
    for loss, c in [cotangent(scores)]
  )
  assert any(np.abs(x).max() > 1e-3 for x in jax.tree.leaves(expected))
  for loss, gradient in others:
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-6)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6),
      gradient,
      expected,
    )
