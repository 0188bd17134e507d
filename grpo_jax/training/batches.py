"""From a batch of rollouts to the optimizer's minibatches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from grpo_jax.algorithms.loss import prepare
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.models.logprobs import completion_rows
from grpo_jax.types import Rollouts, TrainBatch


def make_minibatches(
  recipe: Recipe, *, minibatches: int, microbatches: int
) -> Callable[[Rollouts], TrainBatch]:
  """Compiles the split of a rollout batch.

  Args:
    recipe: the algorithm; its advantages see the whole rollout batch, its
      weights one minibatch.
    minibatches: optimizer updates per rollout batch, M.
    microbatches: parts of each whose gradients are summed, K.

  Returns:
    A jitted function of rollouts with P groups to a `TrainBatch` whose leaves
    lead with `[M, K]`. Group i goes to minibatch i mod M, so that groups that
    only fill up the batch are spread evenly.
  """

  def split(rollouts):
    advantage, loss_mask = prepare(recipe, rollouts)
    parts = jax.tree.map(
      lambda x: jnp.stack([x[m::minibatches] for m in range(minibatches)]),
      (rollouts, advantage, loss_mask),
    )
    return jax.vmap(to_microbatches)(*parts)

  def to_microbatches(rollouts, advantage, loss_mask):
    weight = recipe.weights(loss_mask, rollouts.sample_mask.any(axis=1))
    G = loss_mask.shape[1]
    completions = jax.tree.map(
      lambda x: x.reshape(microbatches, -1, x.shape[-1]),
      dict(
        tokens=rollouts.tokens,
        loss_mask=loss_mask,
        weight=weight,
        advantage=advantage,
        old_logp=rollouts.old_logp,
        ref_logp=rollouts.ref_logp,
      ),
    )
    prompts = jnp.repeat(rollouts.prompt_tokens, G, axis=0)
    lengths = jnp.repeat(rollouts.prompt_lengths, G, axis=0)
    rows = jax.vmap(completion_rows)(
      prompts.reshape(microbatches, -1, prompts.shape[-1]),
      lengths.reshape(microbatches, -1),
      completions["tokens"],
    )
    return TrainBatch(rows=rows, **completions)

  return jax.jit(split)
