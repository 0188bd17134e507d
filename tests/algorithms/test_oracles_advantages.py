"""Advantages against loops in NumPy that read like the formulas."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.algorithms import advantages as adv
from tests.algorithms.oracles import SEEDS, SHAPES, centred, groups_oracle


def pass_at_k_by_subsets(correct, k):
  """Mean, over the subsets that hold a completion, of their GRPO advantage."""
  N = len(correct)
  if N < k:
    return np.zeros(N)
  subsets = list(combinations(range(N), k))
  right = np.asarray([max(correct[i] for i in s) for s in subsets], float)
  if right.std() == 0:
    return np.zeros(N)
  advantage = (right - right.mean()) / right.std()
  return np.asarray(
    [
      np.mean([a for a, s in zip(advantage, subsets, strict=True) if i in s])
      for i in range(N)
    ]
  )


FORMULAS = {
  "group_std": (
    partial(adv.group_relative_advantages, scale="group_std", ddof=0, eps=0.01),
    lambda r: centred(r) / (r.std() + 0.01),
  ),
  "group_std, ddof 1": (
    partial(adv.group_relative_advantages, scale="group_std", ddof=1, eps=0.01),
    lambda r: (
      centred(r) / (r.std(ddof=1) + 0.01) if len(r) > 1 else np.zeros(1)
    ),
  ),
  "none": (
    partial(adv.group_relative_advantages, scale="none", ddof=1, eps=0.01),
    centred,
  ),
  "leave_one_out": (
    adv.leave_one_out_advantages,
    lambda r: [
      r[i] - np.delete(r, i).mean() if len(r) > 1 else 0.0
      for i in range(len(r))
    ],
  ),
}


@given(SEEDS, SHAPES)
@pytest.mark.parametrize("name", FORMULAS)
def test_of_one_group(name, draw, agree, seed, shape):
  _, rewards, sample_mask, _ = draw(seed, shape)
  function, formula = FORMULAS[name]
  actual = jax.jit(function)(rewards, sample_mask)
  agree(actual, groups_oracle(formula, sample_mask, rewards))


@given(SEEDS, SHAPES)
def test_maximum_likelihood(draw, agree, seed, shape):
  rng, _, sample_mask, _ = draw(seed, shape)
  rewards = np.where(sample_mask, rng.integers(0, 2, shape[:2]), np.nan)
  actual = jax.jit(partial(adv.maximum_likelihood_advantages, eps=0.01))(
    rewards, sample_mask
  )
  expected = groups_oracle(
    lambda r: centred(r) / (r.mean() + 0.01), sample_mask, rewards
  )
  agree(actual, expected)


@given(SEEDS, SHAPES)
def test_length_weighted(draw, agree, make_rollouts, seed, shape):
  rng, rewards, sample_mask, loss_mask = draw(seed, shape)
  lengths = rng.integers(1, 9, shape[:2])
  rollouts = make_rollouts(
    rewards=rewards,
    mask=loss_mask,
    old_logp=np.zeros(shape),
    sample_mask=jnp.asarray(sample_mask),
    lengths=jnp.asarray(lengths),
  )
  actual = jax.jit(adv.length_weighted_advantages)(rewards, rollouts)

  def formula(r, n):
    return r - sum(n * r) / sum(n) if max(r) > min(r) else np.zeros(len(r))

  agree(actual, groups_oracle(formula, sample_mask, rewards, lengths))


@given(SEEDS, SHAPES, st.integers(1, 3))
def test_pass_at_k(draw, agree, seed, shape, k):
  rng, _, sample_mask, _ = draw(seed, shape)
  correct = rng.random(shape[:2]) < 0.4
  actual = jax.jit(partial(adv.pass_at_k_advantages, k=k))(correct, sample_mask)
  formula = partial(pass_at_k_by_subsets, k=k)
  agree(actual, groups_oracle(formula, sample_mask, correct))


@given(SEEDS, SHAPES)
@pytest.mark.parametrize("centre", [True, False])
def test_projected(centre, draw, agree, make_rollouts, seed, shape):
  rng, _, sample_mask, loss_mask = draw(seed, shape)
  lengths = rng.integers(1, 5, shape[:2])
  A = np.where(sample_mask, rng.normal(size=shape[:2]), np.nan)

  def formula(a, n):
    n = n - n.mean() if centre else n
    return a - (a @ n) / (n @ n) * n if n.any() else a

  rollouts = make_rollouts(
    rewards=A,
    mask=loss_mask,
    old_logp=np.zeros(shape),
    sample_mask=jnp.asarray(sample_mask),
    lengths=jnp.asarray(lengths),
  )
  project = partial(
    adv.projected_advantages, lambda rewards, _: rewards, centre=centre
  )
  actual = jax.jit(project)(rollouts.outcome, rollouts)
  agree(actual, groups_oracle(formula, sample_mask, A, lengths))


@given(SEEDS, SHAPES)
def test_scaled_by_the_batch(draw, agree, seed, shape):
  _, rewards, sample_mask, _ = draw(seed, shape)
  plain = groups_oracle(centred, sample_mask, rewards)
  kept = rewards[sample_mask]
  std = kept.std(ddof=1) if len(kept) > 1 else 1.0
  actual = adv.group_relative_advantages(
    *map(jnp.asarray, (rewards, sample_mask)),
    scale="batch_std",
    ddof=1,
    eps=0.1,
  )
  expected = plain / (std + 0.1) if std > 0 else plain
  agree(actual, expected)


@given(SEEDS, SHAPES)
def test_rescaled(draw, agree, seed, shape):
  _, rewards, sample_mask, _ = draw(seed, shape)
  plain = groups_oracle(centred, sample_mask, rewards)
  silent = sum(
    keep.sum()
    for r, keep in zip(rewards, sample_mask, strict=True)
    if len(set(r[keep])) < 2
  )
  B = sample_mask.sum()
  alpha = B / (B - silent) if B > silent else 0.0
  actual = adv.rescaled_advantages(*map(jnp.asarray, (rewards, sample_mask)))
  agree(actual, alpha * plain)
