"""REINFORCE and its descendants: log-probabilities, or a batch's statistics."""

from functools import partial
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from grpo_jax.algorithms import advantages as adv
from grpo_jax.algorithms import masked, ratios, returns, surrogates, weights
from grpo_jax.algorithms.checks import check_choice, check_range
from grpo_jax.algorithms.recipes import pieces
from grpo_jax.algorithms.recipes import recipe as fields
from grpo_jax.algorithms.recipes.group import dr_grpo, grpo
from grpo_jax.algorithms.recipes.recipe import Memory, Recipe
from grpo_jax.types import Scalar

_sum_mean = partial(weights.token_sum_mean, count_empty=True)


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
    advantages=partial(fields.per_group, adv.leave_one_out_advantages)
  )
  base = pieces.kl_in_reward(base, coefficient=kl_coefficient)
  if ratio == "sequence":
    return base._replace(log_ratio=ratios.product_log_ratio)
  return base._replace(weights=_sum_mean, surrogate=surrogates.log_likelihood)


def opo(*, length_budget: int) -> Recipe:
  """On-Policy RL with Optimal reward baseline (OPO, arXiv:2505.23585).

  The length-weighted mean reward as baseline, and a completion's summed
  log-probability, for which it is derived. No ratio, no clip, no KL: the paper
  wants exactly one update for each rollout batch.
  """
  return grpo(length_budget=length_budget)._replace(
    advantages=adv.length_weighted_advantages,
    weights=_sum_mean,
    surrogate=surrogates.log_likelihood,
  )


def gpg(*, length_budget: int) -> Recipe:
  """Group Policy Gradient (GPG, arXiv:2504.02546).

  Centred rewards, rescaled for the groups without signal; no ratio, clip or
  KL. Deviation: the paper also samples on until 0.6 of a batch has a signal.
  """
  return grpo(length_budget=length_budget)._replace(
    advantages=partial(fields.per_group, adv.rescaled_advantages),
    weights=weights.token_mean,
    surrogate=surrogates.log_likelihood,
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
    surrogate=partial(surrogates.regularised_log_likelihood, tau=tau),
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
  rewards, rollouts, *, kl_coefficient, discount, **constants
):
  mask = rollouts.loss_mask
  rewards = returns.token_rewards(
    rewards, rollouts, kl_coefficient=kl_coefficient
  )
  to_go = returns.reward_to_go(rewards, mask, discount=discount)
  return adv.batch_normalised_advantages(to_go, mask, **constants)


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
  constants = {"each": each, "ddof": ddof, "eps": std_eps}
  recipe = grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_normalised_centred, **constants)
  )
  return pieces.kl_loss(recipe, coefficient=kl_coefficient, estimator="k2")


def _normalised_centred(rewards, rollouts, **constants):
  centred = masked.centred(rewards, rollouts.sample_mask)
  return adv.batch_normalised_advantages(
    fields.per_token(centred, rollouts), rollouts.loss_mask, **constants
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
  first = _MovingAverage(jnp.zeros(()), jnp.zeros((), jnp.int32))
  update = partial(_next_moving_average, decay=decay)
  base = grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=_above_the_moving_average,
    memories=(Memory("moving_average", first, update),),
  )
  return pieces.kl_in_reward(base, coefficient=kl_coefficient)


class _MovingAverage(NamedTuple):
  """Mean of earlier rewards, and how many batches it has seen."""

  mean: Scalar
  updates: Int[Array, ""]


def _above_the_moving_average(rewards, rollouts):
  baseline = rollouts.memory["moving_average"].mean
  return jnp.where(rollouts.sample_mask, rewards - baseline, 0.0)


def _next_moving_average(state, rewards, rollouts, *, decay):
  """b' = b + share (mean r - b), share = 1 - decay, or 1 / number of batches.

  A batch that is all masked leaves it alone.
  """
  seen = jnp.any(rollouts.sample_mask)
  updates = state.updates + seen
  mean = masked.mean(rewards, rollouts.sample_mask, axis=None).squeeze()
  step = mean - state.mean
  step = step / jnp.maximum(updates, 1) if decay is None else step * (1 - decay)
  return _MovingAverage(state.mean + jnp.where(seen, step, 0.0), updates)
