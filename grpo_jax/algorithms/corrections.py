"""Tokens of a batch that stand out: by covariance, by entropy, by chance."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from grpo_jax.algorithms import masked
from grpo_jax.types import TokenGrid, TokenGridMask


def token_covariance(
  logp: TokenGrid, advantage: TokenGrid, loss_mask: TokenGridMask
) -> TokenGrid:
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
  logp = logp - masked.mean(logp, loss_mask, axis=None)
  advantage = advantage - masked.mean(advantage, loss_mask, axis=None)
  return jnp.where(loss_mask, logp * advantage, 0.0)


def randomly_chosen(
  candidates: TokenGridMask,
  loss_mask: TokenGridMask,
  key: PRNGKeyArray,
  *,
  fraction: float,
) -> TokenGridMask:
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

  def draw(row, position):
    # A key of its own for each token, which padding does not change.
    own = jax.random.fold_in(jax.random.fold_in(key, row), position)
    return jax.random.uniform(own)

  P, G, T = candidates.shape
  of_row = jax.vmap(draw, (None, 0))
  draws = jax.vmap(of_row, (0, None))(jnp.arange(P * G), jnp.arange(T))
  draws = draws.reshape(P, G, T)
  return largest_fraction(draws, candidates, loss_mask, fraction=fraction)


def largest_fraction(
  values: TokenGrid,
  candidates: TokenGridMask,
  loss_mask: TokenGridMask,
  *,
  fraction: float,
) -> TokenGridMask:
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
