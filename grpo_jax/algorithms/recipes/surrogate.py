"""GRPO with another ratio or another clip."""

from functools import partial

from grpo_jax.algorithms import ratios, surrogates, weights
from grpo_jax.algorithms.checks import check_range
from grpo_jax.algorithms.recipes.group import dapo, grpo
from grpo_jax.algorithms.recipes.recipe import Recipe, clip


def gspo(
  *, length_budget: int, eps_low: float = 3e-4, eps_high: float = 4e-4
) -> Recipe:
  """Group Sequence Policy Optimization (GSPO, arXiv:2507.18071).

  One ratio for a completion, the geometric mean of its tokens', and one clip.
  The ratio stays so close to 1 that the clip is three orders narrower than
  GRPO's; ScaleRL (arXiv:2510.13786) found ten times as much to work better.
  """
  return grpo(length_budget=length_budget)._replace(
    log_ratio=ratios.sequence_log_ratio, surrogate=clip(eps_low, eps_high)
  )


def gspo_token(
  *, length_budget: int, eps_low: float = 3e-4, eps_high: float = 4e-4
) -> Recipe:
  """GSPO for advantages that differ along a completion (arXiv:2507.18071).

  Equal to `gspo`, values and gradients, until a variant replaces `advantages`
  by some that are per token.
  """
  return grpo(length_budget=length_budget)._replace(
    log_ratio=ratios.sequence_token_log_ratio, surrogate=clip(eps_low, eps_high)
  )


def luspo(
  *, length_budget: int, eps_low: float = 2e-3, eps_high: float = 2.5e-3
) -> Recipe:
  """Length-Unbiased Sequence Policy Optimization (LUSPO, arXiv:2602.05261).

  GSPO with each completion's loss multiplied by its length, which undoes the
  division in its gradient; a wider clip.
  """
  return gspo(
    length_budget=length_budget, eps_low=eps_low, eps_high=eps_high
  )._replace(weights=partial(weights.token_sum_mean, count_empty=True))


def gmpo(*, length_budget: int, eps: float = 0.4) -> Recipe:
  """Geometric-Mean Policy Optimization (GMPO, arXiv:2507.20673).

  The geometric mean of ratios that were clipped token by token, where GRPO has
  the arithmetic one. eps is in nats, not a distance from ratio 1.
  """
  check_range(eps=eps)
  return grpo(length_budget=length_budget)._replace(
    surrogate=partial(surrogates.geometric_surrogate, eps=eps)
  )


def cispo(
  *,
  length_budget: int,
  lowest: float = 0.0,
  highest: float = 5.0,
  overlong_penalty: float = 1.0,
) -> Recipe:
  """Clipped importance-sampling weights (CISPO, MiniMax-M1, arXiv:2506.13585).

  GRPO's advantage with the dynamic sampling, the length penalty and the
  token-level loss of DAPO; the ratio is a bounded constant before log pi. The
  paper has no lower bound and does not tell the upper one: 5 is ScaleRL's and
  TRL's. Two more readings of the name: bounds 0.8 and 1.2 give verl's,
  highest = 1 + eps_high gives MiniMax's notation.
  """
  check_range(0.0, highest, lowest=lowest)
  bounds = {"lowest": lowest, "highest": highest}
  return dapo(
    length_budget=length_budget,
    overlong_penalty=overlong_penalty,
    overlong_filter=False,
  )._replace(surrogate=partial(surrogates.clipped_importance_weight, **bounds))


def sapo(
  *, length_budget: int, tau_positive: float = 1.0, tau_negative: float = 1.05
) -> Recipe:
  """Soft Adaptive Policy Optimization (SAPO, arXiv:2511.20347).

  A sigmoid gate in the place of GRPO's clip, narrower for bad tokens.
  """
  taus = {"tau_positive": tau_positive, "tau_negative": tau_negative}
  check_range(1e-6, **taus)
  return grpo(length_budget=length_budget)._replace(
    surrogate=partial(surrogates.soft_gate, **taus)
  )
