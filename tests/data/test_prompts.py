"""Streams of prompts: every index has its problem, on every host."""

import collections

import grain
import pytest

from grpo_jax.data.example import Example
from grpo_jax.data.prompts import (
  check_disjoint,
  fitting,
  host_slice,
  mixed_prompt_stream,
  prompt_stream,
)


def test_the_stream_takes_every_problem_once_an_epoch():
  stream = prompt_stream(range(7), seed=3)
  epochs = [[stream[i] for i in range(e * 7, e * 7 + 7)] for e in range(3)]
  assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
  assert len({tuple(epoch) for epoch in epochs}) == 3
  drawn = [i for epoch in epochs for i in epoch]
  again = prompt_stream(range(7), seed=3)
  assert [again[i] for i in range(21)] == drawn
  other = prompt_stream(range(7), seed=4)
  assert [other[i] for i in range(21)] != drawn


def test_an_empty_stream_is_refused():
  with pytest.raises(ValueError, match="no training problems"):
    prompt_stream([], seed=0)


def test_the_stream_is_that_of_the_problems_or_of_their_indices():
  problems = list("abcdefg")
  stream, order = (prompt_stream(x, seed=3) for x in (problems, range(7)))
  assert isinstance(stream, grain.MapDataset)
  assert [problems[order[i]] for i in range(20)] == [
    stream[i] for i in range(20)
  ]
  # Far along, and backwards: the state is one integer.
  assert [order[i] for i in (10**6, 5)] == [
    prompt_stream(range(7), seed=3)[i] for i in (10**6, 5)
  ]


SETS = {"large": range(100), "small": range(100, 104)}


def test_a_mixture_keeps_its_proportions_all_along():
  stream = mixed_prompt_stream(SETS, {"large": 3, "small": 1}, seed=0)
  for start in (0, 400, 12_000):
    drawn = [stream[i] for i in range(start, start + 40)]
    assert sum(problem >= 100 for problem in drawn) == 10
  counts = collections.Counter(stream[i] for i in range(400))
  assert all(counts[problem] == 3 for problem in SETS["large"])
  assert all(counts[problem] == 25 for problem in SETS["small"])
  epochs = [stream[i] for i in range(32) if stream[i] >= 100]
  assert epochs[:4] != epochs[4:8]


def test_a_mixture_is_its_seeds():
  def draw(seed):
    weights = {"large": 0.5, "small": 0.5}
    stream = mixed_prompt_stream(SETS, weights, seed=seed)
    return [stream[i] for i in range(60)]

  assert draw(0) == draw(0) != draw(1)
  assert len(draw(2**32 - 1)) == 60  # the second set has the seed after it


@pytest.mark.parametrize(
  "weights, message",
  [
    ({"large": 1}, r"\['large'\], and problems of \['large', 'small'\]"),
    ({"large": 1, "small": 0}, "weight of small must be positive"),
    ({"large": 1, "small": float("inf")}, "weight of small"),
  ],
)
def test_wrong_weights_are_told(weights, message):
  with pytest.raises(ValueError, match=message):
    mixed_prompt_stream(SETS, weights, seed=0)
  with pytest.raises(ValueError, match="no problems of small"):
    mixed_prompt_stream(SETS | {"small": []}, {"large": 1, "small": 1}, seed=0)


@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 3, 8, 10])
def test_hosts_read_the_whole_in_order_and_nothing_twice(hosts, count):
  positions = list(range(100, 100 + count))
  parts = [host_slice(positions, host=h, hosts=hosts) for h in range(hosts)]
  assert [p for part in parts for p in part] == positions
  assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_long_prompts_are_left_out():
  def keep(limit):
    examples = [Example("x" * n, "", {}) for n in (3, 9, 4, 5)]
    return [
      len(e.question)
      for e in fitting(
        examples, lambda e: len(e.question), max_prompt_tokens=limit
      )
    ]

  assert keep(4) == [3, 4] and keep(9) == [3, 9, 4, 5]
  with pytest.raises(ValueError, match="= 2 tokens; they have 3 to 9"):
    keep(2)


def test_a_question_is_the_same_in_other_case_and_space():
  test = [Example("How many  apples?\n", "1", {})]
  for question in ("how many apples?", "HOW\tMANY APPLES? "):
    with pytest.raises(ValueError, match="1 held-out questions are also"):
      check_disjoint([Example(question, "1", {})], test)
  check_disjoint([Example("howmany apples?", "1", {})], test)
  with pytest.raises(ValueError, match="more than once"):
    check_disjoint([], test * 2)
