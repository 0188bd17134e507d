"""Where a gradient must vanish, and where it must not."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from grpo_jax.algorithms.surrogates import clipped_surrogate

clip = partial(clipped_surrogate, eps_low=0.2, eps_high=0.28)


def slope(surrogate, ratio, advantage):
  """D loss / d log pi of one token."""

  def loss(log_ratio):
    array = log_ratio.reshape(1, 1)
    return surrogate(array, jnp.full((1, 1), advantage), array)[0][0, 0]

  return float(jax.grad(loss)(jnp.log(jnp.float32(ratio))))


@pytest.mark.parametrize(
  ("ratio", "advantage", "moves"),
  [
    (0.79, 1.0, True),  # too rare and good: pulled back
    (0.79, -1.0, False),  # too rare and bad: left alone
    (0.81, -1.0, True),
    (1.0, 1.0, True),
    (1.0, -1.0, True),
    (1.27, 1.0, True),
    (1.29, 1.0, False),  # too likely and good: left alone
    (1.29, -1.0, True),  # too likely and bad: pulled back
  ],
)
def test_gradient_at_the_clip_edges(ratio, advantage, moves):
  expected = -ratio * advantage if moves else 0.0
  assert slope(clip, ratio, advantage) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
  ("ratio", "advantage", "edge"),
  [(0.5, -1.0, "low"), (2.0, 1.0, "high"), (0.5, 1.0, None), (2.0, -1.0, None)],
)
def test_a_token_counts_as_clipped_by_the_branch_taken(ratio, advantage, edge):
  log_ratio = jnp.full((1, 1), jnp.log(ratio))
  _, counts = clip(log_ratio, jnp.full((1, 1), advantage), log_ratio)
  assert {name: bool(count[0, 0]) for name, count in counts.items()} == {
    "clip_ratio/low_mean": edge == "low",
    "clip_ratio/high_mean": edge == "high",
  }


@pytest.mark.parametrize(
  ("form", "options"),
  [
    ("ppo_0.2", {"eps_low": 0.2, "eps_high": 0.2}),
    ("asym_0.2_0.28", {"eps_low": 0.2, "eps_high": 0.28}),
    ("dual_c3", {"eps_low": 0.2, "eps_high": 0.2, "ratio_cap": 3.0}),
    ("dual_c10_asym", {"eps_low": 0.2, "eps_high": 0.28, "ratio_cap": 10.0}),
    ("two_sided_delta4", {"eps_low": 0.2, "eps_high": 0.2, "ratio_cap": 4.0}),
  ],
)
def test_clip_table(form, options, golden, dtype, close):
  _, expected = golden("clip_table")
  for row in expected["rows"]:
    one = jnp.ones((1, 1), dtype)

    def loss(log_ratio, A=row["A"] * one):
      return clipped_surrogate(log_ratio, A, log_ratio, **options)[0].sum()

    value, slope = jax.value_and_grad(loss)(row["log_ratio"] * one)
    close(value, row[form]["loss"])
    close(slope[0, 0], row[form]["dloss_dlogp"])
