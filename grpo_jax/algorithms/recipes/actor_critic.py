"""PPO with its critic, and what made it work for long chains of thought."""

import math
from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import penalties, returns, weights
from grpo_jax.algorithms.advantages import batch_normalised_advantages
from grpo_jax.algorithms.checks import check_choice, check_range
from grpo_jax.algorithms.recipes import recipe as fields
from grpo_jax.algorithms.recipes.group import grpo
from grpo_jax.algorithms.recipes.recipe import Critic, Penalty, Recipe


def ppo(
  *,
  length_budget: int,
  critic: Literal["head", "model"] = "model",
  eps: float = 0.2,
  discount: float = 1.0,
  trace_decay: float = 0.95,
  bootstrap_truncated: bool = False,
  whiten: bool = True,
  kl_coefficient: float = 0.0,
  value_coefficient: float = 0.5,
  value_clip: float | None = 0.2,
  critic_learning_rate_factor: float = 2.0,
  critic_warmup_steps: int = 0,
) -> Recipe:
  """Proximal Policy Optimization (PPO, arXiv:1707.06347) over tokens.

  Generalised advantages of a critic, the clipped surrogate, every token the
  same weight; k1 towards a reference in the reward, as language models have
  it. value_coefficient is c_1 of eq. 9 with half the squared error; value_clip,
  in reward units, is that of PPO's code, None for none. A completion that was
  cut counts as ended unless `bootstrap_truncated`. Whitening is over the
  batch's tokens. The critic's learning rate is a multiple of the policy's: 2 is
  VAPO's.
  """
  value_clip = math.inf if value_clip is None else value_clip
  check_range(kl_coefficient=kl_coefficient, value_clip=value_clip)
  check_range(value_coefficient=value_coefficient)
  check_range(critic_warmup_steps=critic_warmup_steps)
  check_range(1e-9, critic_learning_rate_factor=critic_learning_rate_factor)
  check_range(0.0, 1.0, discount=discount, trace_decay=trace_decay)
  check_choice(("head", "model"), critic=critic)
  estimate = partial(
    _generalised,
    discount=discount,
    trace_decay=trace_decay,
    bootstrap_truncated=bootstrap_truncated,
    kl_coefficient=kl_coefficient,
  )
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_whitened, estimate) if whiten else estimate,
    weights=weights.token_mean,
    needs_reference=kl_coefficient > 0,
    critic=Critic(
      kind=critic,
      learning_rate_factor=critic_learning_rate_factor,
      warmup_steps=critic_warmup_steps,
      coefficient=value_coefficient,
      loss=partial(penalties.clipped_value_loss, clip=value_clip),
      targets=partial(_targets, estimate),
    ),
  )


def vapo(
  *,
  length_budget: int,
  critic: Literal["head", "model"] = "model",
  eps_low: float = 0.2,
  eps_high: float = 0.28,
  alpha: float = 0.05,
  least_trace_decay: float = 0.0,
  nll_coefficient: float = 0.1,
  value_coefficient: float = 0.5,
  value_clip: float | None = 0.2,
  critic_learning_rate_factor: float = 2.0,
  critic_warmup_steps: int = 50,
) -> Recipe:
  """Value-model-based Augmented PPO (VAPO, arXiv:2504.05118).

  PPO with a pretrained critic (at trace decay 1: Monte-Carlo targets), another
  trace decay for the policy, 1 - 1 / (alpha length), clip-higher, the
  token-level loss, and the likelihood of right answers. Deviations: the decay
  is bounded from below, where the paper's is negative below 20 tokens; the
  likelihood's denominator, the tokens of right answers, is counted over the
  rollout batch; advantages are whitened over it. The paper tells neither
  value_coefficient nor value_clip.
  """
  check_range(nll_coefficient=nll_coefficient)
  check_range(1e-6, alpha=alpha)
  base = ppo(
    length_budget=length_budget,
    critic=critic,
    trace_decay=1.0,
    whiten=False,
    value_coefficient=value_coefficient,
    value_clip=value_clip,
    critic_learning_rate_factor=critic_learning_rate_factor,
    critic_warmup_steps=critic_warmup_steps,
  )
  decay = partial(
    returns.length_adaptive_trace_decay, alpha=alpha, floor=least_trace_decay
  )
  estimate = partial(base.advantages, trace_decay=decay)
  likelihood = penalties.negative_log_likelihood
  return base._replace(
    advantages=partial(_whitened, estimate),
    surrogate=fields.clip(eps_low, eps_high),
    penalties=(Penalty(nll_coefficient, likelihood, _share_of_right_tokens),),
  )


def _generalised(
  rewards,
  rollouts,
  *,
  discount,
  trace_decay,
  bootstrap_truncated,
  kl_coefficient,
):
  if callable(trace_decay):
    trace_decay = trace_decay(rollouts.lengths)
  cut = rollouts.truncated & rollouts.sample_mask & bootstrap_truncated
  return returns.generalised_advantages(
    returns.token_rewards(rewards, rollouts, kl_coefficient=kl_coefficient),
    rollouts.value,
    rollouts.loss_mask,
    discount=discount,
    trace_decay=trace_decay,
    bootstrap=jnp.where(cut, rollouts.final_value, 0.0),
  )


def _whitened(estimate, rewards, rollouts):
  advantages, mask = estimate(rewards, rollouts), rollouts.loss_mask
  return batch_normalised_advantages(
    advantages, mask, each="token", ddof=0, eps=1e-8
  )


def _targets(estimate, rewards, rollouts):
  return estimate(rewards, rollouts) + rollouts.value


def _share_of_right_tokens(rollouts, advantage):
  """All tokens over right ones, on the right: turns one mean into the other."""
  mask = rollouts.loss_mask
  right = mask & fields.right_answers(rollouts)[..., None]
  return jnp.where(right, mask.sum() / jnp.maximum(right.sum(), 1), 0.0)
