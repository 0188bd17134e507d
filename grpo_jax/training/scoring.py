"""What the trainer's models say of completions, before any update."""

import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.models.config import ModelConfig
from grpo_jax.models.logprobs import completion_rows, score

# The fields of rollouts that a scorer needs.
_READ = ("prompt_tokens", "prompt_lengths", "tokens", "lengths")


def make_scorer(
  config: ModelConfig,
  *,
  temperature: float,
  groups_per_call: int,
  completions_per_row: int = 1,
  ref_params: dict | None,
) -> Callable:
  """A function that fills in what the trainer's models say of groups.

  Args:
    config: of the model.
    temperature: that the completions were sampled at.
    groups_per_call: the one batch size that is compiled.
    completions_per_row: that share one copy of their prompt; divides G.
    ref_params: of the reference policy; None leaves `ref_logp` at zero and
      runs nothing.

  Returns:
    `scorer(params, critic, rollouts) -> (rollouts, seconds)`, arrays on the
    host. It sets `old_logp`, `entropy`, `ref_logp` and the critic's values.
  """

  def scores_of(params, critic, groups):
    P, G, T = groups["tokens"].shape
    tokens = groups["tokens"].reshape(P * G, T)
    rows = completion_rows(
      jnp.repeat(groups["prompt_tokens"], G, axis=0),
      jnp.repeat(groups["prompt_lengths"], G, axis=0),
      tokens,
      completions_per_row=completions_per_row,
    )
    scores = score(
      params, config, rows, tokens, temperature=temperature, critic=critic
    )
    return jax.tree.map(lambda x: x.reshape(P, G, T), scores)

  @jax.jit
  def policy_fields(params, critic, groups):
    scores = scores_of(params, critic, groups)
    fields = {"old_logp": scores.logp, "entropy": scores.entropy}
    if critic:
      last = jnp.maximum(groups["lengths"] - 1, 0)[..., None]
      final = jnp.take_along_axis(scores.next_value, last, axis=-1)
      fields |= {"value": scores.value, "final_value": final[..., 0]}
    return fields

  @jax.jit
  def reference_fields(params, groups):
    return {"ref_logp": scores_of(params, (), groups).logp}

  def in_calls(fields_of, rollouts):
    parts = []
    for at in range(0, len(rollouts.lengths), groups_per_call):
      groups = {n: rollouts[n][at : at + groups_per_call] for n in _READ}
      count = len(groups["lengths"])
      missing = groups_per_call - count
      filled = jax.tree.map(
        lambda x, n=missing: np.concatenate([x, np.repeat(x[:1], n, axis=0)]),
        groups,
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
