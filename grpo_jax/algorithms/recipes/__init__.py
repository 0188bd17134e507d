"""Published algorithms, each as one function that returns a `Recipe`.

The module is the registry: a config names a function here, or any function by
its dotted path. A variant replaces a field:

  recipes.dapo(length_budget=512)._replace(advantages=my_advantages)

Every recipe takes `length_budget`, the tokens that a completion may have. What
can be added to any of them is in `pieces`.
"""

from grpo_jax.algorithms.recipes.actor_critic import ppo, vapo
from grpo_jax.algorithms.recipes.group import (
  dapo,
  dr_grpo,
  grpo,
  lite_ppo,
  supervised,
)
from grpo_jax.algorithms.recipes.group_advantages import (
  gdpo,
  grpo_process,
  length_projected,
  maxrl,
  pass_at_k,
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
  reinforce_moving_average,
  reinforce_plus_plus,
  reinforce_plus_plus_baseline,
  rloo,
)
from grpo_jax.algorithms.recipes.recipe import Critic, Memory, Penalty, Recipe
from grpo_jax.algorithms.recipes.surrogate import (
  cispo,
  gmpo,
  gspo,
  gspo_token,
  luspo,
  sapo,
)
