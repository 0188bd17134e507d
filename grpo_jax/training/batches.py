"""From a batch of rollouts to the optimizer's minibatches."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from grpo_jax.algorithms.loss import optimizer_batch, prepare
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.algorithms.recipes.recipe import per_token
from grpo_jax.models.logprobs import completion_rows
from grpo_jax.training.metrics import explained_variance


def make_minibatches(
  recipe: Recipe,
  *,
  minibatches: int,
  microbatches: int,
  completions_per_row: int = 1,
) -> Callable:
  """Compiles the split of a rollout batch.

  Args:
    recipe: the algorithm; its advantages see the whole rollout batch, its
      weights one minibatch.
    minibatches: optimizer updates per rollout batch, M.
    microbatches: parts of each whose gradients are summed, K.
    completions_per_row: that go through the model with one copy of their
      prompt; divides G and the completions of a microbatch.

  Returns:
    A jitted function of rollouts with P groups and the recipe's memory to a
    `TrainBatch` whose leaves lead with `[M, K]`, the memory for the next
    rollout batch, and (total, weight) metrics. Group i goes to minibatch i mod
    M, so that groups that only fill up the batch are spread evenly.
  """

  def split(rollouts, memory):
    prepared, memory = prepare(recipe, rollouts, memory)
    parts = jax.tree.map(
      lambda x: jnp.stack([x[m::minibatches] for m in range(minibatches)]),
      (rollouts, prepared),
    )
    metrics = {}
    if recipe.critic:
      # Of the critic's target, which holds its own value if traces decay; and
      # of the reward, which is what there is to know.
      reward = per_token(prepared.rewards, rollouts)
      for name, returns in (("", prepared.target), ("_of_reward", reward)):
        metrics[f"value/explained_variance{name}"] = explained_variance(
          rollouts.value, returns, prepared.loss_mask
        )
    return jax.vmap(to_microbatches)(*parts), memory, metrics

  def to_microbatches(rollouts, prepared):
    batch = jax.tree.map(
      lambda x: x.reshape(microbatches, -1, x.shape[-1]),
      optimizer_batch(recipe, rollouts, prepared),
    )
    G = rollouts.tokens.shape[1]
    prompts = jnp.repeat(rollouts.prompt_tokens, G, axis=0)
    lengths = jnp.repeat(rollouts.prompt_lengths, G, axis=0)
    to_rows = partial(completion_rows, completions_per_row=completions_per_row)
    rows = jax.vmap(to_rows)(
      prompts.reshape(microbatches, -1, prompts.shape[-1]),
      lengths.reshape(microbatches, -1),
      batch.tokens,
    )
    return batch.replace(rows=rows)

  return jax.jit(split)
