"""GRPO with what other trainers do if their users change nothing.

They agree on the clip of 0.2 and the sample standard deviation (ddof 1), and on
little else. OpenRLHF's KL (k1 in the reward, 0.01) is off here, as it is in the
others; `pieces.kl_in_reward` adds it.
"""

from grpo_jax.algorithms import weights
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.algorithms.recipes.group import grpo
from grpo_jax.algorithms.recipes.recipe import Recipe


def trl_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as TRL has it: 1e-4 in the std, token mean."""
  recipe = grpo(length_budget=length_budget, std_eps=1e-4)
  return recipe._replace(weights=weights.token_mean)


def verl_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as verl has it, with the dual clip switched on.

  1e-6 in the std, token mean over the optimizer batch, ratios capped at 3 and
  log-ratios at 20 nats, the reward as advantage of the only completion of a
  group.
  """
  recipe = grpo(length_budget=length_budget, std_eps=1e-6)
  recipe = recipe._replace(weights=weights.token_mean)
  recipe = pieces.clamped_log_ratio(pieces.dual_clip(recipe))
  return pieces.lone_rewards(recipe)


def openrlhf_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as OpenRLHF's `group_norm`.

  1e-9 in the std, token mean, log-ratios capped at 20 nats.
  """
  recipe = grpo(length_budget=length_budget, std_eps=1e-9)
  return pieces.clamped_log_ratio(recipe._replace(weights=weights.token_mean))


def oat_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as OAT has it: 1e-8 in the std, sequence mean."""
  return grpo(length_budget=length_budget, std_eps=1e-8)
