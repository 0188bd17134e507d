"""REINFORCE and its descendants: log-probabilities, or a batch's statistics."""

from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms.batch_advantages import (
  MovingBaseline,
  batch_normalised_advantages,
  next_moving_baseline,
)
from grpo_jax.algorithms.ratios import product_log_ratio
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.algorithms.recipes.group import dr_grpo, grpo
from grpo_jax.algorithms.recipes.recipe import (
  Memory,
  Recipe,
  check_choice,
  check_range,
  group_relative,
  kept_tokens,
  kl_penalty,
  per_group,
  per_token,
  rewards_with_kl,
)
from grpo_jax.algorithms.returns import reward_to_go
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
  check_choice(("none", "sequence"), ratio=ratio)
  base = grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(per_group, adv.leave_one_out_advantages)
  )
  if kl_coefficient:
    base = pieces.kl_in_reward(base, coefficient=kl_coefficient)
  if ratio == "sequence":
    return base._replace(log_ratio=product_log_ratio)
  return base._replace(weights=_sum_mean, surrogate=log_likelihood)


def opo(*, length_budget: int) -> Recipe:
  """On-Policy RL with Optimal reward baseline (OPO, arXiv:2505.23585).

  The length-weighted mean reward as baseline, and a completion's summed
  log-probability, for which it is derived. No ratio, no clip, no KL: the paper
  wants exactly one update for each rollout batch.
  """
  return grpo(length_budget=length_budget)._replace(
    advantages=_length_weighted, weights=_sum_mean, surrogate=log_likelihood
  )


def _length_weighted(rewards, rollouts):
  return adv.length_weighted_advantages(
    rewards, rollouts.sample_mask, rollouts.lengths
  )


def gpg(*, length_budget: int) -> Recipe:
  """Group Policy Gradient (GPG, arXiv:2504.02546).

  Centred rewards, rescaled for the groups without signal; no ratio, clip or
  KL. Deviation: the paper also samples on until 0.6 of a batch has a signal.
  """
  return grpo(length_budget=length_budget)._replace(
    advantages=partial(per_group, adv.rescaled_advantages),
    weights=token_mean,
    surrogate=log_likelihood,
  )


def kimi_k15(*, length_budget: int, tau: float = 0.1) -> Recipe:
  """The online mirror descent of Kimi k1.5 (arXiv:2501.12599).

  Centred rewards on the summed log-probability, and the squared log-ratio of
  the completion instead of a clip. The paper gives no tau: 0.1 is ours. It
  also adds a length reward (`shaping.relative_length_reward`), and starts the
  optimizer afresh at each iteration; neither happens here.
  """
  check_range(tau=tau)
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
  check_range(kl_coefficient=kl_coefficient)
  check_range(0.0, 1.0, discount=discount)
  check_choice(("token", "sequence"), each=each)
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(
      _normalised_return,
      kl_coefficient=kl_coefficient,
      discount=discount,
      each=each,
      ddof=ddof,
      eps=std_eps,
    ),
    needs_reference=kl_coefficient > 0,
  )


def _normalised_return(
  rewards, rollouts, *, kl_coefficient, discount, **normalisation
):
  mask = kept_tokens(rollouts)
  with_kl = rewards_with_kl(rewards, rollouts, kl_coefficient)
  return batch_normalised_advantages(
    reward_to_go(with_kl, mask, discount=discount),
    mask,
    eps_in="std",
    **normalisation,
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
  check_choice(("token", "sequence"), each=each)
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_normalised_centred, each=each, ddof=ddof, eps=std_eps),
    penalties=kl_penalty(kl_coefficient, "k2"),
    needs_reference=kl_coefficient > 0,
  )


def _normalised_centred(rewards, rollouts, **normalisation):
  centred = group_relative("none", ddof=0, eps=0.0)(rewards, rollouts)
  return batch_normalised_advantages(
    per_token(centred, rollouts),
    kept_tokens(rollouts),
    eps_in="std",
    **normalisation,
  )


def reinforce_moving_average(
  *,
  length_budget: int,
  decay: float | None = 0.9,
  eps: float = 0.2,
  kl_coefficient: float = 0.001,
) -> Recipe:
  """REINFORCE with the moving average of rewards as its baseline.

  The popular description of REINFORCE++, with PPO's clip and k1 in the reward;
  no version of that paper has such a baseline. It is the plain REINFORCE of
  RLOO's paper (arXiv:2402.14740, eq. 8), which averages over all batches, as
  `decay=None` does; the decay of 0.9 per rollout batch is ours. The gradient
  clipping of the description is `optimizer.max_grad_norm`. The baseline is 0
  for the first batch.
  """
  check_range(0.0, 1.0, decay=decay or 0.0)
  base = grpo(length_budget=length_budget, eps=eps)
  if kl_coefficient:
    base = pieces.kl_in_reward(base, coefficient=kl_coefficient)
  return base._replace(
    advantages=_above_the_moving_average,
    memories=(
      Memory(
        name="moving_average",
        initial=MovingBaseline(jnp.zeros(()), jnp.zeros((), jnp.int32)),
        update=partial(_next_moving_average, decay=decay),
      ),
    ),
  )


def _above_the_moving_average(rewards, rollouts):
  baseline = rollouts.memory["moving_average"].mean
  return jnp.where(rollouts.sample_mask, rewards - baseline, 0.0)


def _next_moving_average(state, rewards, rollouts, *, decay):
  return next_moving_baseline(state, rewards, rollouts.sample_mask, decay=decay)
