"""GRPO with what other trainers do if their users change nothing.

They agree on the clip of 0.2, no KL and the sample standard deviation
(ddof 1), and on little else.
"""

from functools import partial

from grpo_jax.algorithms.ratios import clamped, token_log_ratio
from grpo_jax.algorithms.recipes.group import grpo
from grpo_jax.algorithms.recipes.recipe import Recipe
from grpo_jax.algorithms.surrogates import clipped_surrogate
from grpo_jax.algorithms.weights import token_mean


def trl_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as TRL has it: 1e-4 in the std, token mean."""
  return grpo(length_budget=length_budget, std_eps=1e-4)._replace(
    weights=token_mean
  )


def verl_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as verl has it, with the dual clip switched on.

  1e-6 in the std, token mean over the optimizer batch, ratios capped at 3 and
  log-ratios at 20 nats. Deviation: the only completion of a group has
  advantage 0 here, and its reward there.
  """
  return grpo(length_budget=length_budget, std_eps=1e-6)._replace(
    weights=token_mean,
    log_ratio=clamped(token_log_ratio, limit=20.0),
    surrogate=partial(
      clipped_surrogate, eps_low=0.2, eps_high=0.2, ratio_cap=3.0
    ),
  )


def openrlhf_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as OpenRLHF's `group_norm`.

  1e-9 in the std, token mean, log-ratios capped at 20 nats.
  """
  return grpo(length_budget=length_budget, std_eps=1e-9)._replace(
    weights=token_mean, log_ratio=clamped(token_log_ratio, limit=20.0)
  )


def oat_grpo(*, length_budget: int) -> Recipe:
  """GRPO (arXiv:2402.03300) as OAT has it: 1e-8 in the std, sequence mean."""
  return grpo(length_budget=length_budget, std_eps=1e-8)
