"""Weights and masks per token, computed once per batch, outside gradients.

Multiply advantages by them: every surrogate but Kimi's is proportional to its
advantage. A weight of 0 keeps the token in the denominator.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

# Keeps the exponential of a long completion's sum finite, as verl has it.
_LARGEST_LOG_WEIGHT = 20.0


def sampler_correction(
  old_logp: Float[Array, "P G T"],
  behaviour_logp: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  level: Literal["token", "sequence", "geometric"],
  outside: Literal["truncate", "mask"],
  lowest: float,
  highest: float,
) -> Float[Array, "P G T"]:
  """W = pi_old / pi_sampler, bounded: the sampler is not quite the policy.

  Truncated importance sampling (Yao et al., 2025) bounds w from above, C = 2;
  IcePop and MIS set it to 0 outside [C_min, C].

  Args:
    old_logp: of the trainer's policy that sampled, in nats.
    behaviour_logp: as the sampler reported them, in nats.
    loss_mask: tokens that the policy chose.
    level: w of each token; of the completion, the product of its tokens
      (unbiased, of high variance); or the geometric mean of its tokens.
    outside: what becomes of w outside the bounds: the bound, or 0.
    lowest: least w; 0 for none.
    highest: largest w.

  Returns:
    Weights; 0 where masked.

  Raises:
    ValueError: no such level, or nothing of that name outside.
  """
  check_correction(level, outside)
  log_weight = jnp.where(loss_mask, old_logp - behaviour_logp, 0.0)
  if level != "token":
    count = jnp.sum(loss_mask, axis=-1, keepdims=True)
    total = log_weight.sum(axis=-1, keepdims=True)
    log_weight = total if level == "sequence" else total / jnp.maximum(count, 1)
  limit = _LARGEST_LOG_WEIGHT
  weight = jnp.exp(jnp.clip(log_weight, -limit, limit))
  if outside == "truncate":
    weight = jnp.clip(weight, lowest, highest)
  else:
    inside = (weight >= lowest) & (weight <= highest)
    weight = jnp.where(inside, weight, 0.0)
  return jnp.where(loss_mask, weight, 0.0)


def check_correction(level: str, outside: str) -> None:
  """Raises a ValueError if there is no such correction."""
  if level not in ("token", "sequence", "geometric"):
    raise ValueError("level must be 'token', 'sequence' or 'geometric'.")
  if outside not in ("truncate", "mask"):
    raise ValueError("outside must be 'truncate' or 'mask'.")


def token_covariance(
  logp: Float[Array, "P G T"],
  advantage: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
) -> Float[Array, "P G T"]:
  """(log pi - mean log pi) (A - mean A), means over the batch's tokens.

  Its mean says how fast the policy gradient takes entropy away
  (arXiv:2505.22617).

  Args:
    logp: of the policy, in nats.
    advantage: per token.
    loss_mask: tokens that count.

  Returns:
    In nats times the advantage's unit; 0 where masked.
  """
  count = jnp.maximum(jnp.sum(loss_mask), 1)

  def centred(values):
    values = jnp.where(loss_mask, values, 0.0)
    return values - values.sum() / count

  return jnp.where(loss_mask, centred(logp) * centred(advantage), 0.0)


def covariance_candidates(
  covariance: Float[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  lowest: float,
  highest: float,
) -> Bool[Array, "P G T"]:
  """Tokens that Clip-Cov draws from: covariance between the bounds.

  arXiv:2505.22617, bounds 1 and 5.

  Args:
    covariance: from `token_covariance`.
    loss_mask: tokens that count; the paper's code leaves out those whose
      gradient the clip stops already.
    lowest: bound, in nats times the advantage's unit.
    highest: likewise.

  Returns:
    True for candidates.
  """
  return loss_mask & (covariance > lowest) & (covariance < highest)


def randomly_chosen(
  candidates: Bool[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  key: PRNGKeyArray,
  *,
  fraction: float,
) -> Bool[Array, "P G T"]:
  """A fraction of the tokens, at random among candidates; Clip-Cov drops them.

  arXiv:2505.22617, fraction 2e-4.

  Args:
    candidates: tokens to choose from.
    loss_mask: tokens that the fraction is of.
    key: of the choice.
    fraction: between 0 and 1.

  Returns:
    True for the chosen; all candidates, if there are fewer.
  """
  P, G, T = candidates.shape
  # A draw for each token of its own, which padding does not change.
  rows = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(P * G))
  per_token = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
  draws = jax.vmap(jax.vmap(jax.random.uniform))(per_token(rows, jnp.arange(T)))
  order = draws.reshape(P, G, T)
  return largest_fraction(order, candidates, loss_mask, fraction=fraction)


def largest_fraction(
  values: Float[Array, "P G T"],
  candidates: Bool[Array, "P G T"],
  loss_mask: Bool[Array, "P G T"],
  *,
  fraction: float,
) -> Bool[Array, "P G T"]:
  """The max(1, floor(fraction tokens)) candidates of largest value.

  Of covariances, the tokens that KL-Cov penalises (arXiv:2505.22617, fraction
  2e-3 to 2e-4); of entropies, those that carry the decisions
  (arXiv:2506.01939, fraction 0.2).

  Args:
    values: what is compared.
    candidates: tokens to choose from.
    loss_mask: tokens that the fraction is of.
    fraction: between 0 and 1.

  Returns:
    True for the chosen; of equal values the first ones.
  """
  count = jnp.maximum(jnp.floor(fraction * jnp.sum(loss_mask)), 1)
  order = jnp.argsort(
    -jnp.where(candidates, values, -jnp.inf).ravel(), stable=True
  )
  rank = jnp.argsort(order).reshape(values.shape)
  return candidates & (rank < count)
