"""Three variants of your own: an advantage, a surrogate, a weighting.

Open it as a notebook (the cells begin with `# %%`), or run it:

  python -m experiments.variants.walkthrough

Each function below that takes `length_budget` is a recipe that the command
takes by its path:

  --config.recipe.name=experiments.variants.walkthrough:median_baseline
"""

# %% A recipe is a named tuple of functions; a variant replaces one of them.
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from grpo_jax.algorithms import recipes


# %% 1. An advantage: the group's median as the baseline.
def median_advantages(rewards, rollouts):
  """A_g = r_g - median r: one lucky completion does not move the baseline."""
  baseline = jnp.median(rewards, axis=-1, keepdims=True)
  return jnp.where(rollouts.sample_mask, rewards - baseline, 0.0)


def median_baseline(*, length_budget: int, eps_high: float = 0.28):
  """DAPO (arXiv:2503.14476) with the median in place of mean and std."""
  return recipes.dapo(length_budget=length_budget, eps_high=eps_high)._replace(
    advantages=median_advantages
  )


# %% 2. A surrogate: the pull of a token fades on both sides, without an edge.
def fading_surrogate(log_ratio, advantage, logp, *, width):
  """-A width tanh(log r / width): half of the pull is left at 0.88 width."""
  del logp
  return -advantage * width * jnp.tanh(log_ratio / width), {}


def fading_clip(*, length_budget: int, width: float = 0.3):
  """GRPO (arXiv:2402.03300) with a soft edge in place of the clip."""
  return recipes.grpo(length_budget=length_budget)._replace(
    surrogate=partial(fading_surrogate, width=width)
  )


# %% 3. A weighting: half-way between the token mean and the sequence mean.
def root_length_mean(loss_mask, group_mask):
  """m / (sqrt(n_i) sum_j sqrt(n_j)): a completion counts sqrt(its length)."""
  del group_mask  # nothing of the others is under the loss mask
  tokens = jnp.sum(loss_mask, axis=-1, keepdims=True)
  weights = loss_mask / jnp.sqrt(jnp.maximum(tokens, 1))
  return weights / jnp.maximum(weights.sum(), 1)


def root_length(*, length_budget: int):
  """DAPO (arXiv:2503.14476) with the weights above."""
  return recipes.dapo(length_budget=length_budget)._replace(
    weights=root_length_mean
  )


# %% Look at them on two groups of four, and at what they replace.
def show() -> None:
  """Prints the three, each after what it replaces."""
  rewards = jnp.asarray([[0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
  rollouts = SimpleNamespace(sample_mask=jnp.ones((2, 4), bool))
  dapo = recipes.dapo(length_budget=8)
  print("advantages", dapo.advantages(rewards, rollouts), sep="\n")
  print("above the median", median_advantages(rewards, rollouts), sep="\n")

  ratio = jnp.asarray([[0.5, 0.9, 1.0, 1.1, 1.5]])  # [N, T]
  print(f"tokens of advantage 1 and ratio {ratio[0]} are pulled by")
  for recipe in (dapo, fading_clip(length_budget=8)):

    def gain(log_ratio, surrogate=recipe.surrogate):
      return -surrogate(log_ratio, jnp.ones((1, 5)), log_ratio)[0].sum()

    print(jax.grad(gain)(jnp.log(ratio))[0])

  mask = jnp.arange(8) < jnp.asarray([[1, 4, 8, 8]])[..., None]
  print("completions of 1, 4, 8 and 8 tokens share the loss as")
  for weights in (dapo.weights, root_length_mean):
    print(weights(mask, jnp.ones(1, bool)).sum(-1)[0])


if __name__ == "__main__":
  show()
