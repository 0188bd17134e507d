"""GRPO with another advantage of a completion among its group."""

import math
from functools import partial

import jax.numpy as jnp

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import masked
from grpo_jax.algorithms.checks import check_range
from grpo_jax.algorithms.recipes.group import grpo
from grpo_jax.algorithms.recipes.recipe import Recipe, right_answers
from grpo_jax.algorithms.returns import reward_to_go


def length_projected(
  *,
  length_budget: int,
  centre: bool = True,
  eps: float = 0.2,
  ddof: int = 1,
  std_eps: float = 1e-6,
) -> Recipe:
  """GRPO whose advantages are made orthogonal to the lengths of their group.

  The popular description of Dr. GRPO, A - proj_length(A), which its paper does
  not contain. Centred lengths keep the group's zero mean; raw ones, as the
  description has it, do not.
  """
  base = grpo(length_budget=length_budget, eps=eps, ddof=ddof, std_eps=std_eps)
  return base._replace(
    advantages=partial(adv.projected_advantages, base.advantages, centre=centre)
  )


def maxrl(
  *, length_budget: int, eps: float = 0.2, mean_eps: float = 1e-6
) -> Recipe:
  """MaxRL (arXiv:2602.02710): towards the likelihood of being right.

  The centred accuracy over the group's mean, as the released code has it. It
  is derived for rewards of 0 and 1, so it looks at accuracy and not at the
  reward. The clip and the weights, which the estimator leaves open, are those
  of GRPO.
  """
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_maximum_likelihood_of_accuracy, eps=mean_eps)
  )


def _maximum_likelihood_of_accuracy(rewards, rollouts, *, eps):
  right = right_answers(rollouts).astype(rewards.dtype)
  return adv.maximum_likelihood_advantages(right, rollouts.sample_mask, eps=eps)


def pass_at_k(
  *,
  length_budget: int,
  k: int = 4,
  eps: float = 0.2,
  group_size: int | None = None,
) -> Recipe:
  """Pass@k training (arXiv:2508.10751): rewards a subset with one success.

  Looks at accuracy, not at the reward. The default of k is ours; it must not
  exceed group_size, the completions of a prompt, or nothing would be learned.
  With k = 1 it is GRPO on accuracy, with the population's standard deviation.
  """
  check_range(1, group_size or math.inf, k=k)
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_pass_at_k_of_accuracy, k=k)
  )


def _pass_at_k_of_accuracy(rewards, rollouts, *, k):
  right = right_answers(rollouts)
  return adv.pass_at_k_advantages(right, rollouts.sample_mask, k=k)


def gdpo(
  *,
  length_budget: int,
  reward_weights: tuple[float, ...] | None = None,
  eps: float = 0.2,
  ddof: int = 1,
  std_eps: float = 1e-4,
) -> Recipe:
  """Group reward-Decoupled normalisation (GDPO, arXiv:2601.05242).

  Each named score is normalised within its group, then their weighted sum over
  the batch; everything else is GRPO. The weights are those of the
  configuration's rewards, in the order of their names; 1 each without one. The
  paper leaves ddof and std_eps open.
  """
  constants = {"weights": reward_weights, "ddof": ddof, "eps": std_eps}
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_gdpo_of_components, **constants)
  )


def _gdpo_of_components(rewards, rollouts, *, weights, ddof, eps):
  """Normalises sum_k w_k A_k over the batch, A_k within each group.

  So that no reward is drowned by another's spread. Statistics count each
  completion once (TRL); verl counts tokens.
  """
  mask, scores = rollouts.sample_mask, jnp.moveaxis(rollouts.components, -1, 0)
  weights = weights or (1.0,) * len(scores)
  each = masked.normalised(scores, mask[None], ddof=ddof, eps=eps)
  mixed = sum(w * A for w, A in zip(weights, each, strict=True))
  return masked.normalised(mixed, mask, axis=None, ddof=ddof, eps=eps)


def grpo_process(
  *,
  length_budget: int,
  eps: float = 0.2,
  kl_coefficient: float = 0.0,
  ddof: int = 1,
  std_eps: float = 1e-6,
) -> Recipe:
  """GRPO with process supervision (DeepSeekMath, arXiv:2402.03300).

  A token's advantage is the sum of the normalised rewards of the steps that
  end at it or later (section 4.1.3). Needs a task that judges steps; the
  outcome's reward is not used.
  """
  return grpo(
    length_budget=length_budget, eps=eps, kl_coefficient=kl_coefficient
  )._replace(
    advantages=partial(_of_steps, ddof=ddof, eps=std_eps), needs_steps=True
  )


def _of_steps(rewards, rollouts, *, ddof, eps):
  """Mean and standard deviation are over all steps of a group."""
  steps = rollouts.step_mask & rollouts.loss_mask
  normalised = masked.normalised(
    rollouts.step_rewards, steps, axis=(1, 2), ddof=ddof, eps=eps
  )
  return reward_to_go(normalised, rollouts.loss_mask, discount=1.0)
