"""Problems outside the band are passed over, the same on every run and host."""

import collections

import numpy as np
import pytest

from grpo_jax.data.prompts import prompt_stream
from grpo_jax.training.curriculum import (
  EVERYTHING,
  Curriculum,
  Prompts,
  choose,
  updated,
)

BAND = Curriculum(low=0.2, high=0.8, skip=0.75)
RATES = dict.fromkeys(range(10), 0.0) | dict.fromkeys(range(10, 20), 1.0)
RATES |= dict.fromkeys(range(20, 30), 0.5)  # 30 to 39 were not tried yet


def _prompts(curriculum, seed=0):
  order = prompt_stream(range(40), seed=seed)
  return Prompts(order=order, curriculum=curriculum, seed=seed)


def _counts(positions, prompts):
  """Draws of too hard, too easy, fitting and new problems."""
  kinds = collections.Counter(prompts.order[i] // 10 for i in positions)
  return [kinds[kind] for kind in range(4)]


def test_without_a_curriculum_all_are_drawn_in_order():
  chosen = choose(_prompts(EVERYTHING), RATES, start=3, count=50)
  assert chosen == list(range(3, 53))


def test_mass_moves_into_the_band():
  order = list(range(40)) * 200
  prompts = Prompts(order=order, curriculum=BAND, seed=0)
  positions = choose(prompts, RATES, start=0, count=4000)
  hard, easy, fitting, new = _counts(positions, prompts)
  # Each kind is a quarter of the stream; of two, a quarter is drawn.
  assert fitting == pytest.approx(1600, rel=0.03)
  assert new == pytest.approx(1600, rel=0.03)
  assert hard == pytest.approx(400, rel=0.15)
  assert easy == pytest.approx(400, rel=0.15)
  passed = set(range(positions[-1])) - set(positions)
  assert all(not 0.2 <= RATES[prompts.order[i]] <= 0.8 for i in passed)


@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_the_bounds_belong_to_the_band(rate):
  rates = dict.fromkeys(range(40), rate)
  prompts = _prompts(BAND)
  assert choose(prompts, rates, start=0, count=80) == list(range(80))


def test_a_draw_in_parts_is_the_draw():
  prompts = _prompts(BAND)
  whole = choose(prompts, RATES, start=0, count=60)
  parts, start = [], 0
  for count in (1, 7, 30, 22):
    parts += choose(prompts, RATES, start=start, count=count)
    start = parts[-1] + 1
  assert parts == whole
  other = choose(_prompts(BAND, seed=1), RATES, start=0, count=60)
  assert other != whole


def test_chances_of_one_problem_differ_from_visit_to_visit():
  prompts = Prompts(order=[0] * 400, curriculum=BAND, seed=0)
  positions = choose(prompts, {0: 0.0}, start=0, count=60)
  assert 0.15 < 60 / positions[-1] < 0.4


def test_rates_follow_the_accuracy():
  prompts = Prompts(
    order=[7, 3, 7],
    curriculum=Curriculum(low=0.0, high=1.0, skip=0.0, decay=0.75),
    seed=0,
  )
  accuracy = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], np.float32)
  verified = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1]], bool)
  before = {5: 0.25}
  rates = updated(prompts, before, [0, 1, 2], accuracy, verified)
  assert rates == {5: 0.25, 7: 0.75 * 0.5, 3: 1.0}
  assert before == {5: 0.25}
  none = np.zeros_like(verified)
  assert updated(prompts, before, [0, 1, 2], accuracy, none) == before


@pytest.mark.parametrize(
  "changed", [{"low": 0.9}, {"high": 1.1}, {"skip": 1.0}, {"decay": 1.0}]
)
def test_bounds_that_make_no_sense_are_refused(changed):
  with pytest.raises(ValueError, match=r"\[0, 1"):
    Curriculum(**{"low": 0.2, "high": 0.8, "skip": 0.5} | changed)
