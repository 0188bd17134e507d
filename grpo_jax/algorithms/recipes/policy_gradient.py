"""REINFORCE and its descendants: log-probabilities, or a batch's statistics."""

from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms.batch_advantages import batch_normalised_advantages
from grpo_jax.algorithms.ratios import product_log_ratio
from grpo_jax.algorithms.recipes.group import dr_grpo, grpo
from grpo_jax.algorithms.recipes.recipe import (
  Recipe,
  check_not_negative,
  kept_tokens,
  kl_penalty,
)
from grpo_jax.algorithms.returns import reward_to_go, token_rewards
from grpo_jax.algorithms.shaping import sequence_kl
from grpo_jax.algorithms.surrogates import (
  log_likelihood,
  regularised_log_likelihood,
)
from grpo_jax.algorithms.weights import token_mean, token_sum_mean

_sum_mean = partial(token_sum_mean, count_empty=True)


def rloo(
  *,
  length_budget: int,
  ratio: Literal["none", "sequence"] = "none",
  eps: float = 0.2,
  kl_coefficient: float = 0.0,
) -> Recipe:
  """REINFORCE Leave-One-Out (RLOO, arXiv:2402.14740).

  The others' mean reward as baseline, a completion's summed log-probability,
  k1 in the reward. The paper has kl_coefficient 0.03 and 0.10, and no clip;
  `ratio="sequence"` is TRL's trainer, PPO's clip on the whole completion's
  ratio.
  """
  if ratio not in ("none", "sequence"):
    raise ValueError("ratio must be 'none' or 'sequence'.")
  check_not_negative(kl_coefficient=kl_coefficient)

  def shape_rewards(rollouts):
    return rollouts.outcome - kl_coefficient * sequence_kl(
      rollouts.old_logp, rollouts.ref_logp, rollouts.loss_mask
    )

  def advantages(rewards, rollouts):
    return adv.leave_one_out_advantages(rewards, rollouts.sample_mask)

  base = grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=advantages
  )
  if kl_coefficient:
    base = base._replace(shape_rewards=shape_rewards, needs_reference=True)
  if ratio == "sequence":
    return base._replace(log_ratio=product_log_ratio)
  return base._replace(weights=_sum_mean, surrogate=log_likelihood)


def opo(*, length_budget: int) -> Recipe:
  """On-Policy RL with Optimal reward baseline (OPO, arXiv:2505.23585).

  The length-weighted mean reward as baseline, and a completion's summed
  log-probability, for which it is derived. No ratio, no clip, no KL: the paper
  wants exactly one update for each rollout batch.
  """

  def advantages(rewards, rollouts):
    return adv.length_weighted_advantages(
      rewards, rollouts.sample_mask, rollouts.lengths
    )

  return grpo(length_budget=length_budget)._replace(
    advantages=advantages, weights=_sum_mean, surrogate=log_likelihood
  )


def gpg(*, length_budget: int) -> Recipe:
  """Group Policy Gradient (GPG, arXiv:2504.02546).

  Centred rewards, rescaled for the groups without signal; no ratio, clip or
  KL. Deviation: the paper also samples on until 0.6 of a batch has a signal.
  """

  def advantages(rewards, rollouts):
    return adv.rescaled_advantages(rewards, rollouts.sample_mask)

  return grpo(length_budget=length_budget)._replace(
    advantages=advantages, weights=token_mean, surrogate=log_likelihood
  )


def kimi_k15(*, length_budget: int, tau: float = 0.1) -> Recipe:
  """The online mirror descent of Kimi k1.5 (arXiv:2501.12599).

  Centred rewards on the summed log-probability, and the squared log-ratio of
  the completion instead of a clip. The paper gives no tau: 0.1 is ours. It
  also adds a length reward (`shaping.relative_length_reward`), and starts the
  optimizer afresh at each iteration; neither happens here.
  """
  return dr_grpo(length_budget=length_budget)._replace(
    weights=_sum_mean,
    surrogate=partial(regularised_log_likelihood, tau=tau),
  )


def reinforce_plus_plus(
  *,
  length_budget: int,
  eps: float = 0.2,
  kl_coefficient: float = 0.001,
  discount: float = 1.0,
  each: Literal["token", "sequence"] = "token",
  ddof: int = 0,
  std_eps: float = 1e-8,
) -> Recipe:
  """REINFORCE++ (arXiv:2501.03262): normalised over the batch, not the group.

  The reward comes at the last token, k1 towards the reference at each; their
  sum to go is normalised by the mean and standard deviation of the batch. No
  moving average: that is a popular description. kl_coefficient is 0.01 in
  general, 0.001 for mathematics. What is counted in the statistics the paper
  leaves open: tokens, as verl and OpenRLHF do, or sequences.
  """
  check_not_negative(kl_coefficient=kl_coefficient)

  def advantages(rewards, rollouts):
    mask = kept_tokens(rollouts)
    per_token = token_rewards(
      rewards,
      rollouts.old_logp,
      rollouts.ref_logp,
      mask,
      kl_coefficient=kl_coefficient,
    )
    return batch_normalised_advantages(
      reward_to_go(per_token, mask, discount=discount),
      mask,
      each=each,
      ddof=ddof,
      eps=std_eps,
      eps_in="std",
    )

  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=advantages, needs_reference=kl_coefficient > 0
  )


def reinforce_plus_plus_baseline(
  *,
  length_budget: int,
  eps: float = 0.2,
  kl_coefficient: float = 1e-5,
  each: Literal["token", "sequence"] = "token",
  ddof: int = 0,
  std_eps: float = 1e-8,
) -> Recipe:
  """REINFORCE++ with a group baseline (arXiv:2501.03262, version 9).

  Centres rewards on their group, then normalises over the batch; KL is a k2
  loss. The paper gives no coefficient: 1e-5 is that of OpenRLHF's script.
  """

  def advantages(rewards, rollouts):
    mask = kept_tokens(rollouts)
    centred = adv.group_relative_advantages(
      rewards, rollouts.sample_mask, scale="none", ddof=0, eps=0.0
    )
    return batch_normalised_advantages(
      jnp.broadcast_to(centred[..., None], mask.shape),
      mask,
      each=each,
      ddof=ddof,
      eps=std_eps,
      eps_in="std",
    )

  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=advantages,
    penalties=kl_penalty(kl_coefficient, "k2"),
    needs_reference=kl_coefficient > 0,
  )
