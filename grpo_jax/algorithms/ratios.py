"""Log-ratios of the policy to the policy that sampled."""

import jax
import jax.numpy as jnp

from grpo_jax.algorithms import masked
from grpo_jax.types import PerToken, TokenMask


def token_log_ratio(
  logp: PerToken, old_logp: PerToken, loss_mask: TokenMask
) -> PerToken:
  """Log r_t = log pi(o_t) - log pi_old(o_t), in nats; 0 where masked."""
  return jnp.where(loss_mask, logp - old_logp, 0.0)


def product_log_ratio(
  logp: PerToken, old_logp: PerToken, loss_mask: TokenMask
) -> PerToken:
  """Log of the whole completion's ratio, sum_t log r_t, on each token.

  As typeset in DeepSeek-R1 (arXiv:2501.12948), and in TRL's RLOO.
  """
  log_ratio = token_log_ratio(logp, old_logp, loss_mask)
  return jnp.where(loss_mask, log_ratio.sum(axis=-1, keepdims=True), 0.0)


def sequence_log_ratio(
  logp: PerToken, old_logp: PerToken, loss_mask: TokenMask
) -> PerToken:
  """Log s_i = mean_t log r_t, on each token of completion i.

  GSPO (arXiv:2507.18071): the completion's ratio, to the power 1 / length. A
  completion without tokens has ratio 1.
  """
  return jnp.where(loss_mask, masked.mean(logp - old_logp, loss_mask), 0.0)


def sequence_token_log_ratio(
  logp: PerToken, old_logp: PerToken, loss_mask: TokenMask
) -> PerToken:
  """Log of sg[s_i] pi(o_t) / sg[pi(o_t)]: value s_i, gradient of token t.

  GSPO-token (arXiv:2507.18071, eq. 13 and 14): for advantages per token. With
  one advantage per completion it is GSPO.
  """
  sequence = sequence_log_ratio(logp, old_logp, loss_mask)
  zero = jnp.where(loss_mask, logp - jax.lax.stop_gradient(logp), 0.0)
  return jax.lax.stop_gradient(sequence) + zero


def clamped(function, logp, old_logp, loss_mask, *, limit: float) -> PerToken:
  """Bounds a log-ratio to [-limit, limit] nats; no gradient outside.

  verl and OpenRLHF have limit 20, against overflow; TRL and the papers none.

  Args:
    function: any other of this module.
    logp: its first argument, in nats.
    old_logp: its second, in nats.
    loss_mask: its third.
    limit: in nats.
  """
  return jnp.clip(function(logp, old_logp, loss_mask), -limit, limit)
