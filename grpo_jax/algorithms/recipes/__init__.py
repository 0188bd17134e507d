"""Published algorithms, each as one function that returns a `Recipe`.

The module is the registry: a config names a function here, or any function by
its dotted path. A variant replaces a field:

  recipes.dapo(length_budget=512)._replace(advantages=my_advantages)

Every recipe takes `length_budget`, the tokens that a completion may have.
"""

from grpo_jax.algorithms.recipes.group import (
  dapo,
  dr_grpo,
  grpo,
  length_projected,
  lite_ppo,
  maxrl,
  pass_at_k,
  supervised,
)
from grpo_jax.algorithms.recipes.peers import (
  oat_grpo,
  openrlhf_grpo,
  trl_grpo,
  verl_grpo,
)
from grpo_jax.algorithms.recipes.policy_gradient import (
  gpg,
  kimi_k15,
  opo,
  reinforce_plus_plus,
  reinforce_plus_plus_baseline,
  rloo,
)
from grpo_jax.algorithms.recipes.recipe import (
  Recipe,
  kl_penalty,
  with_sampler_correction,
)
from grpo_jax.algorithms.recipes.surrogate import (
  cispo,
  gmpo,
  gspo,
  gspo_token,
  luspo,
  sapo,
)

__all__ = [
  "Recipe",
  "cispo",
  "dapo",
  "dr_grpo",
  "gmpo",
  "gpg",
  "grpo",
  "gspo",
  "gspo_token",
  "kimi_k15",
  "kl_penalty",
  "length_projected",
  "lite_ppo",
  "luspo",
  "maxrl",
  "oat_grpo",
  "openrlhf_grpo",
  "opo",
  "pass_at_k",
  "reinforce_plus_plus",
  "reinforce_plus_plus_baseline",
  "rloo",
  "sapo",
  "supervised",
  "trl_grpo",
  "verl_grpo",
  "with_sampler_correction",
]
