"""Estimators against enumeration and simulation."""

import collections
import itertools

import numpy as np
import pytest

from grpo_jax.reporting.estimators import (
  maj_at_k,
  mean_interval,
  pass_at_k,
)


@pytest.mark.parametrize(
  "n, c, k", [(4, 1, 2), (5, 2, 3), (6, 0, 2), (6, 6, 1), (3, 1, 3)]
)
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n, c, k):
  samples = [1] * c + [0] * (n - c)
  expected = np.mean([max(s) for s in itertools.combinations(samples, k)])
  np.testing.assert_allclose(pass_at_k(np.array([c]), n, k), [expected])


def test_pass_at_k_survives_many_samples():
  assert pass_at_k(np.array([1]), 2048, 1024) == pytest.approx(0.5)


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_refuses_what_cannot_be_estimated(k):
  with pytest.raises(ValueError, match=f"pass@{k}"):
    pass_at_k(np.array([1]), 4, k)


def test_the_interval_covers_the_mean_19_times_of_20():
  rng = np.random.default_rng(0)
  covered = []
  for _ in range(2000):
    values = rng.binomial(8, rng.beta(2, 2, 20)) / 8
    _, low, high = mean_interval(values)
    covered.append(low <= 0.5 <= high)
  assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_interval_of_known_values():
  mean, low, high = mean_interval(np.array([0.0, 1.0, 0.0, 1.0]))
  assert mean == 0.5
  half = 3.182446 * np.std([0, 1, 0, 1], ddof=1) / 2  # t of 3 degrees
  assert (high - mean, mean - low) == pytest.approx((half, half), rel=1e-6)


def test_intervals_at_the_edges():
  assert mean_interval(np.ones(5)) == (1.0, 1.0, 1.0)
  assert mean_interval(np.array([0.3])) == (0.3, -np.inf, np.inf)
  with pytest.raises(ValueError, match="at least one"):
    mean_interval(np.zeros(0))


def _vote(answers, right) -> float:
  """The vote over one subset, by its definition."""
  votes = collections.Counter(a for a in answers if a is not None)
  if not votes:
    return 0.0
  most = max(votes.values())
  shares = [
    np.mean([r for a, r in zip(answers, right, strict=True) if a == winner])
    for winner, count in votes.items()
    if count == most
  ]
  return float(np.mean(shares))


@pytest.mark.parametrize(
  "answers, right",
  [
    ("aabc", [1, 1, 0, 0]),
    ("aaabbbcc", [0, 0, 0, 1, 1, 1, 0, 0]),
    ("abcdefg", [1, 0, 0, 0, 0, 0, 0]),  # ties only
    ("aabb-", [1, 1, 0, 0, 0]),  # one states no answer
    ("----a", [0, 0, 0, 0, 1]),
    ("aabbc", [1, 0, 0, 1, 1]),  # verified differently under one key
    ("aaaaaaa", [1] * 7),
    ("---", [0, 0, 0]),
    ("a", [1]),
  ],
)
def test_maj_at_k_is_the_mean_vote_of_all_subsets(answers, right):
  answers = [None if a == "-" else a for a in answers]
  ks = range(1, len(answers) + 1)
  expected = [
    np.mean(
      [
        _vote([answers[i] for i in s], [right[i] for i in s])
        for s in itertools.combinations(range(len(answers)), k)
      ]
    )
    for k in ks
  ]
  np.testing.assert_allclose(
    maj_at_k(answers, np.array(right), ks), expected, rtol=1e-12
  )


def test_maj_at_k_of_random_votes_is_the_mean_over_subsets():
  rng = np.random.default_rng(0)
  for _ in range(20):
    n = int(rng.integers(2, 10))
    answers = [None if a == 4 else int(a) for a in rng.integers(0, 5, n)]
    right = rng.integers(0, 2, n)
    for k in (1, 2, n):
      expected = np.mean(
        [
          _vote([answers[i] for i in s], [right[i] for i in s])
          for s in itertools.combinations(range(n), k)
        ]
      )
      [found] = maj_at_k(answers, right, [k])
      assert found == pytest.approx(expected, rel=1e-12)


def test_a_vote_hurts_where_a_wrong_answer_leads():
  """Counts 20, 15, 10, 8, 5, 3, 2, 1; the second is right."""
  counts = [20, 15, 10, 8, 5, 3, 2, 1]
  answers = np.repeat(range(8), counts).tolist()
  found = maj_at_k(answers, np.equal(answers, 1), [1, 4, 8, 32, 64])
  np.testing.assert_allclose(
    found, [0.234, 0.256, 0.277, 0.198, 0.0], atol=6e-4
  )


def test_votes_of_a_thousand_samples_can_be_counted():
  answers = [i % 4 for i in range(1000)]  # alike, so each as likely to win
  right = np.equal(answers, 0)
  assert maj_at_k(answers, right, [1, 500]) == pytest.approx([0.25, 0.25])
  with pytest.raises(ValueError, match="at most 1000"):
    maj_at_k([0] * 1001, np.ones(1001), [1])


@pytest.mark.parametrize("k", [0, 4])
def test_maj_at_k_refuses_what_cannot_be_estimated(k):
  with pytest.raises(ValueError, match=f"maj@{k}"):
    maj_at_k(["a"] * 3, np.ones(3), [k])
