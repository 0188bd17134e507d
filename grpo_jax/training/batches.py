"""From a batch of rollouts to the optimizer's minibatches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from grpo_jax.algorithms.loss import optimizer_batch, prepare
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.algorithms.recipes.recipe import per_token
from grpo_jax.models.logprobs import completion_rows
from grpo_jax.training.metrics import explained_variance


def make_minibatches(
  recipe: Recipe, *, minibatches: int, microbatches: int
) -> Callable:
  """Compiles the split of a rollout batch.

  Args:
    recipe: the algorithm; its advantages see the whole rollout batch, its
      weights one minibatch.
    minibatches: optimizer updates per rollout batch, M.
    microbatches: parts of each whose gradients are summed, K.

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
    rows = jax.vmap(completion_rows)(
      prompts.reshape(microbatches, -1, prompts.shape[-1]),
      lengths.reshape(microbatches, -1),
      batch.tokens,
    )
    return batch.replace(rows=rows)

  return jax.jit(split)
