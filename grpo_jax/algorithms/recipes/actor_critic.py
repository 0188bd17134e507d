"""PPO with its critic, and what made it work for long chains of thought."""

from functools import partial
from typing import Literal

import jax.numpy as jnp

from grpo_jax.algorithms import penalties
from grpo_jax.algorithms.batch_advantages import batch_normalised_advantages
from grpo_jax.algorithms.recipes.group import grpo
from grpo_jax.algorithms.recipes.recipe import (
  Critic,
  Penalty,
  Recipe,
  check_choice,
  check_range,
  kept_tokens,
  rewards_with_kl,
  right_answers,
)
from grpo_jax.algorithms.returns import (
  generalised_advantages,
  length_adaptive_trace_decay,
)
from grpo_jax.algorithms.surrogates import clipped_surrogate
from grpo_jax.algorithms.weights import token_mean


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
  check_range(
    kl_coefficient=kl_coefficient,
    value_coefficient=value_coefficient,
    value_clip=0.0 if value_clip is None else value_clip,
    critic_warmup_steps=critic_warmup_steps,
  )
  check_range(0.0, 1.0, discount=discount, trace_decay=trace_decay)
  check_choice(("head", "model"), critic=critic)
  if not critic_learning_rate_factor > 0:
    raise ValueError("critic_learning_rate_factor must be positive.")
  estimate = partial(
    _generalised,
    discount=discount,
    trace_decay=trace_decay,
    bootstrap_truncated=bootstrap_truncated,
    kl_coefficient=kl_coefficient,
  )
  return grpo(length_budget=length_budget, eps=eps)._replace(
    advantages=partial(_whitened, estimate) if whiten else estimate,
    weights=token_mean,
    needs_reference=kl_coefficient > 0,
    critic=Critic(
      kind=critic,
      learning_rate_factor=critic_learning_rate_factor,
      warmup_steps=critic_warmup_steps,
      coefficient=value_coefficient,
      loss=partial(
        penalties.clipped_value_loss,
        clip=jnp.inf if value_clip is None else value_clip,
      ),
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
    value_coefficient=value_coefficient,
    value_clip=value_clip,
    critic_learning_rate_factor=critic_learning_rate_factor,
    critic_warmup_steps=critic_warmup_steps,
  )
  decay = partial(
    length_adaptive_trace_decay, alpha=alpha, floor=least_trace_decay
  )
  estimate = partial(
    _generalised,
    discount=1.0,
    trace_decay=decay,
    bootstrap_truncated=False,
    kl_coefficient=0.0,
  )
  likelihood = Penalty(
    nll_coefficient, penalties.negative_log_likelihood, _share_of_right_tokens
  )
  return base._replace(
    advantages=partial(_whitened, estimate),
    surrogate=partial(clipped_surrogate, eps_low=eps_low, eps_high=eps_high),
    penalties=(likelihood,) if nll_coefficient else (),
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
  return generalised_advantages(
    rewards_with_kl(rewards, rollouts, kl_coefficient),
    rollouts.value,
    kept_tokens(rollouts),
    discount=discount,
    trace_decay=trace_decay,
    bootstrap=jnp.where(cut, rollouts.final_value, 0.0),
  )


def _whitened(estimate, rewards, rollouts):
  return batch_normalised_advantages(
    estimate(rewards, rollouts),
    kept_tokens(rollouts),
    each="token",
    ddof=0,
    eps=1e-8,
    eps_in="std",
  )


def _targets(estimate, rewards, rollouts):
  return estimate(rewards, rollouts) + rollouts.value


def _share_of_right_tokens(rollouts, advantage):
  """All tokens over right ones, on the right: turns one mean into the other."""
  del advantage
  mask = kept_tokens(rollouts)
  right = mask & right_answers(rollouts)[..., None]
  return jnp.where(right, mask.sum() / jnp.maximum(right.sum(), 1), 0.0)
