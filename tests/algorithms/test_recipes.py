"""What a recipe promises beside its loss."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from tests import every_recipe

T = 20


@pytest.mark.parametrize("name", every_recipe.NAMES)
def test_docstring_names_its_paper(name):
  text = inspect.getdoc(getattr(recipes, name))
  own = {"length_projected", "supervised"}
  assert ("arXiv:" in text) != (name in own)


@pytest.mark.parametrize("name", every_recipe.NAMES)
def test_asks_for_a_reference_where_it_uses_one(
  name, random_batch, loss_and_grad
):
  function = getattr(recipes, name)
  options = {"k": 2} if name == "pass_at_k" else {}
  if "kl_coefficient" in inspect.signature(function).parameters:
    without = function(length_budget=T, kl_coefficient=0.0, **options)
    assert not without.needs_reference
    options["kl_coefficient"] = 0.5
  recipe = function(length_budget=T, **options)
  assert recipe.needs_reference == ("kl_coefficient" in options)
  rollouts, logp = random_batch(0)
  other = rollouts.replace(ref_logp=rollouts.ref_logp - 1.5 * logp)
  first, second = (
    loss_and_grad(recipe, each, logp)[1] for each in (rollouts, other)
  )
  assert np.allclose(first, second) != recipe.needs_reference


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    ("grpo", {"kl_coefficient": -1.0}, "kl_coefficient"),
    ("rloo", {"kl_coefficient": -1.0}, "kl_coefficient"),
    ("rloo", {"ratio": "token"}, "ratio"),
    ("reinforce_plus_plus", {"kl_coefficient": -1.0}, "kl_coefficient"),
    ("dapo", {"overlong_buffer": T + 1}, "overlong_buffer"),
    ("dapo", {"overlong_penalty": -1.0}, "overlong_penalty"),
    ("dapo", {"overlong_shape": "hard"}, "overlong_shape"),
    ("pass_at_k", {"k": 0}, "k must"),
  ],
)
def test_bad_arguments_are_named(name, options, message):
  function = inspect.unwrap(getattr(recipes, name))
  with pytest.raises((ValueError, TypeError), match=message):
    function(length_budget=T, **options)


@pytest.mark.parametrize("shape", ["soft", "indicator"])
def test_overlong_penalty_of_dapo(shape, random_batch):
  rollouts, _ = random_batch(0, G=4)
  # Budget 20, buffer 4: the ramp is from 16 to 20.
  rollouts = rollouts.replace(lengths=jnp.asarray([[16, 17, 18, 20]] * 2))
  recipe = recipes.dapo(
    length_budget=T, overlong_penalty=0.5, overlong_shape=shape
  )
  penalty = recipe.shape_rewards(rollouts) - rollouts.outcome
  expected = {
    "soft": [0, -0.125, -0.25, -0.5],
    "indicator": [0, -0.5, -0.5, -0.5],
  }[shape]
  np.testing.assert_allclose(penalty, [expected] * 2, atol=1e-6)
