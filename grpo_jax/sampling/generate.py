"""Groups of completions for a batch of prompts, as one compiled function."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.models.config import ModelConfig
from grpo_jax.sampling import decode
from grpo_jax.sampling.decode import SamplingOptions


class Completions(NamedTuple):
  """As `grpo_jax.types.Rollouts` describes them."""

  tokens: Int[Array, "P G T"]
  logp: Float[Array, "P G T"]
  lengths: Int[Array, "P G"]
  stop_reason: Int[Array, "P G"]


@functools.partial(jax.jit, static_argnames="group_size")
def completion_keys(
  key: Array, prompt_ids: Int[Array, " P"], group_size: int
) -> Array:
  """One key per completion `[P, G]`: fold_in(fold_in(key, prompt_id), g).

  A completion's randomness depends on neither the batch that it is sampled in
  nor G: eight completions are the first eight of sixty-four.
  """

  def of_prompt(prompt_id):
    prompt_key = jax.random.fold_in(key, prompt_id)
    return jax.vmap(lambda g: jax.random.fold_in(prompt_key, g))(
      jnp.arange(group_size)
    )

  return jax.vmap(of_prompt)(prompt_ids)


def make_generate(config: ModelConfig, options: SamplingOptions) -> Callable:
  """Compiles `generate(params, prompt_tokens, prompt_lengths, keys)`.

  Args:
    config: of the model.
    options: of sampling.

  Returns:
    A jitted function of params, prompts `[P, Q]`, their lengths `[P]` and keys
    `[P, G]` to `Completions`; it compiles once per shape.
  """

  def generate(params, prompt_tokens, prompt_lengths, keys):
    P, G = keys.shape
    T = options.max_completion_tokens
    state = decode.prefill(
      params, config, prompt_tokens, prompt_lengths, max_completion_tokens=T
    )
    state = decode.fork(state, jnp.repeat(jnp.arange(P), G), keys.reshape(-1))
    state = decode.decode(params, config, state, options, steps=T)
    return Completions(
      tokens=state.tokens.reshape(P, G, T),
      logp=state.logp.reshape(P, G, T),
      lengths=state.lengths.reshape(P, G),
      stop_reason=state.stop_reason.reshape(P, G),
    )

  return jax.jit(generate)
