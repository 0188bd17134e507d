"""All recipes by name, with constants that show on small random batches."""

import inspect

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.recipes import Recipe

NAMES = [
  name
  for name, function in inspect.getmembers(recipes, inspect.isfunction)
  if "length_budget" in inspect.signature(function).parameters
]

# Arguments of recipes that are not run with the length budget alone.
_OPTIONS = {
  "grpo": {"kl_coefficient": 0.1},
  "dapo": {"overlong_buffer": 2},
  "rloo": {"kl_coefficient": 0.1},
  "pass_at_k": {"k": 2},
  "gdpo": {"reward_weights": (1.0, 0.5)},
  "ppo": {"kl_coefficient": 0.1, "bootstrap_truncated": True},
  # Wide enough for the random ratios to fall on both sides.
  "gspo": {"eps_low": 0.1, "eps_high": 0.1},
  "gspo_token": {"eps_low": 0.1, "eps_high": 0.1},
  "luspo": {"eps_low": 0.1, "eps_high": 0.1},
  "gmpo": {"eps": 0.2},
  "cispo": {"lowest": 0.8, "highest": 1.2},
  "vapo": {"critic_warmup_steps": 0},
  "reinforce_plus_plus": {"kl_coefficient": 0.1},
  "reinforce_plus_plus_baseline": {"kl_coefficient": 0.1},
}


def make(name: str, length_budget: int) -> Recipe:
  """The recipe with the constants above, or its own."""
  function = getattr(recipes, name)
  return function(length_budget=length_budget, **_OPTIONS.get(name, {}))
