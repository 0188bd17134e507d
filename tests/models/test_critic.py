"""Values lie on the tokens that they were computed before."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.critic import init_critic
from grpo_jax.models.logprobs import completion_rows, score


@pytest.fixture
def batch():
  rng = np.random.default_rng(0)
  prompts = jnp.asarray(rng.integers(2, 20, (3, 4)), jnp.int32)
  lengths = jnp.asarray([4, 2, 1])
  return prompts, lengths, jnp.asarray(rng.integers(2, 20, (3, 5)), jnp.int32)


@functools.partial(jax.jit, static_argnames="model")
def _score(params, model, batch, critic):
  rows = completion_rows(*batch)
  return score(params, model, rows, batch[2], temperature=1.0, critic=critic)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_values_before_and_after_each_token(kind, batch, model, params):
  prompts, lengths, tokens = batch
  critic = init_critic(kind, params, model)
  critic["weight"] = jax.random.normal(jax.random.key(2), (model.width,))
  critic["bias"] = jnp.asarray(0.25)
  trunk = params
  if kind == "model":
    trunk = critic["trunk"] = jax.tree.map(lambda x: 1.1 * x, params)
  scores = _score(params, model, batch, critic)

  @jax.jit
  def hidden_of(sequence):
    positions = jnp.arange(sequence.shape[1])[None]
    mask = decoder.causal_mask(positions, sequence.shape[1])
    return decoder.trunk(trunk, model, sequence, positions, mask)[0]

  for n, length in enumerate(np.asarray(lengths)):
    sequence = np.concatenate([prompts[n, :length], tokens[n]])
    padded = np.pad(sequence, (0, 9 - len(sequence)))  # one shape to compile
    hidden = hidden_of(jnp.asarray(padded)[None])[0]
    values = hidden @ critic["weight"] + 0.25
    np.testing.assert_allclose(
      scores.value[n], values[length - 1 : length + 4], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
      scores.next_value[n], values[length : length + 5], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_new_critic_expects_nothing(kind, batch, model, params):
  critic = init_critic(kind, params, model)
  scores = _score(params, model, batch, critic)
  assert not scores.value.any()
