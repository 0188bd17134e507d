"""Aggregation as a weight per token: loss = sum of weight * token loss.

A weight holds the denominator of the whole optimizer batch. Sums over
microbatches, devices or packed rows are then exact, and a mean of means cannot
be written. m is the loss mask, n_i the tokens of completion i under it. The
group mask says which groups exist: others only fill up a batch, and no
denominator counts them.
"""

import jax.numpy as jnp

from grpo_jax.types import GroupMask, TokenGrid, TokenGridMask


def token_mean(loss_mask: TokenGridMask, group_mask: GroupMask) -> TokenGrid:
  """m / sum m: every token of the batch counts the same.

  DAPO's token-level loss (arXiv:2503.14476) as implementations have it; eq. 8
  of the paper normalises within each prompt's group.
  """
  # Nothing of groups that do not exist is under the loss mask.
  return loss_mask / jnp.maximum(jnp.sum(loss_mask), 1)


def sequence_mean(
  loss_mask: TokenGridMask, group_mask: GroupMask, *, count_empty: bool
) -> TokenGrid:
  """m / (n_i N): every completion counts the same.

  GRPO (arXiv:2402.03300).

  Args:
    loss_mask: tokens that are trained on.
    group_mask: groups that exist.
    count_empty: whether N includes completions without such tokens, as TRL
      has it, or leaves them out, as OpenRLHF does.

  Returns:
    Weights; 0 everywhere if nothing is trained on.
  """
  tokens = jnp.sum(loss_mask, axis=-1, keepdims=True)
  count = _count(loss_mask, group_mask, count_empty)
  return loss_mask / (jnp.maximum(tokens, 1) * count)


def constant_length(
  loss_mask: TokenGridMask,
  group_mask: GroupMask,
  *,
  length_budget: int,
  count_empty: bool,
) -> TokenGrid:
  """m / (N L): no completion's length appears in the denominator.

  Dr. GRPO (arXiv:2503.20783), as its listing 1 has it. L is the configured
  budget, never a padded width, which would change from batch to batch.

  Args:
    loss_mask: tokens that are trained on.
    group_mask: groups that exist.
    length_budget: L, in tokens.
    count_empty: as for `sequence_mean`.

  Returns:
    Weights; 0 everywhere if nothing is trained on.
  """
  count = _count(loss_mask, group_mask, count_empty)
  return loss_mask / (count * float(length_budget))


def token_sum_mean(
  loss_mask: TokenGridMask, group_mask: GroupMask, *, count_empty: bool
) -> TokenGrid:
  """m / N: the sum over a completion's tokens, then the completions' mean.

  RLOO (arXiv:2402.14740), and Dr. GRPO's formula as opposed to its listing.

  Args:
    loss_mask: tokens that are trained on.
    group_mask: groups that exist.
    count_empty: as for `sequence_mean`.

  Returns:
    Weights; 0 everywhere if nothing is trained on.
  """
  return constant_length(
    loss_mask, group_mask, length_budget=1, count_empty=count_empty
  )


def group_token_mean(
  loss_mask: TokenGridMask, group_mask: GroupMask, *, count_empty: bool
) -> TokenGrid:
  """m / (n_group P): the token mean of each group, then the groups' mean.

  DAPO eq. 8 (arXiv:2503.14476) and ScaleRL's "prompt average"
  (arXiv:2510.13786).

  Args:
    loss_mask: tokens that are trained on.
    group_mask: groups that exist.
    count_empty: whether P includes groups without such tokens.

  Returns:
    Weights; 0 everywhere if nothing is trained on.
  """
  P = loss_mask.shape[0]
  rows = loss_mask.reshape(P, 1, -1)
  weights = sequence_mean(rows, group_mask, count_empty=count_empty)
  return weights.reshape(loss_mask.shape)


def _count(loss_mask, group_mask, count_empty):
  """Completions in the denominator: with tokens, or of groups that exist."""
  counts = jnp.any(loss_mask, axis=-1) | (count_empty & group_mask[:, None])
  return jnp.maximum(jnp.sum(counts), 1)
