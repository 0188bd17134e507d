"""What the trainer's models say of completions, before any update."""

import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.models.config import ModelConfig
from grpo_jax.models.logprobs import completion_rows, score


def make_scorer(
  config: ModelConfig,
  *,
  temperature: float,
  groups_per_call: int,
  ref_params: dict | None,
) -> Callable:
  """A function that fills in what the trainer's models say of groups.

  Args:
    config: of the model.
    temperature: that the completions were sampled at.
    groups_per_call: the one batch size that is compiled.
    ref_params: of the reference policy; None leaves `ref_logp` at zero and
      runs nothing.

  Returns:
    `scorer(params, critic, rollouts) -> (rollouts, seconds)`, arrays on the
    host. It sets `old_logp`, `entropy`, `ref_logp` and the critic's values.
  """

  def scores_of(params, critic, rollouts):
    P, G, T = rollouts.tokens.shape
    tokens = rollouts.tokens.reshape(P * G, T)
    rows = completion_rows(
      jnp.repeat(rollouts.prompt_tokens, G, axis=0),
      jnp.repeat(rollouts.prompt_lengths, G, axis=0),
      tokens,
    )
    scores = score(
      params, config, rows, tokens, temperature=temperature, critic=critic
    )
    return jax.tree.map(lambda x: x.reshape(P, G, T), scores)

  @jax.jit
  def policy_fields(params, critic, rollouts):
    scores = scores_of(params, critic, rollouts)
    fields = {"old_logp": scores.logp, "entropy": scores.entropy}
    if critic:
      last = jnp.maximum(rollouts.lengths - 1, 0)[..., None]
      final = jnp.take_along_axis(scores.next_value, last, axis=-1)
      fields |= {"value": scores.value, "final_value": final[..., 0]}
    return fields

  @jax.jit
  def reference_fields(params, rollouts):
    return {"ref_logp": scores_of(params, (), rollouts).logp}

  def in_calls(fields_of, rollouts):
    parts = []
    for at in range(0, len(rollouts.lengths), groups_per_call):
      part = jax.tree.map(
        lambda x, at=at: x[at : at + groups_per_call], rollouts
      )
      count = len(part.lengths)
      filled = jax.tree.map(
        lambda x: np.concatenate(
          [x, np.repeat(x[:1], groups_per_call - len(x), axis=0)]
        ),
        part,
      )
      fields = jax.device_get(fields_of(filled))
      parts.append(jax.tree.map(lambda x, n=count: x[:n], fields))
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)

  def scorer(params, critic, rollouts):
    start = time.perf_counter()
    fields = in_calls(partial(policy_fields, params, critic), rollouts)
    if ref_params is not None:
      fields |= in_calls(partial(reference_fields, ref_params), rollouts)
    return rollouts.replace(**fields), time.perf_counter() - start

  return scorer
