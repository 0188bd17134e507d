"""The quickstart's traces: careful ones are right, careless ones often not."""

import random
import re

import numpy as np
import pytest

from experiments.tasks import chain_sum
from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.rewards.thinking import split_thinking


@pytest.fixture(scope="module")
def task(tmp_path_factory):
  return chain_sum.make_task(
    data_dir=str(tmp_path_factory.mktemp("data")),
    train_size=600,
    test_size=50,
    max_digits=2,
  )


def test_prompts_are_bare_expressions(task):
  for example in task.train[:50]:
    prompt = task.prompt(example)
    assert re.fullmatch(r"-?\d+([+-]\d+){1,4}=", prompt)
    assert sum(chain_sum.terms(prompt)) == int(example.answer)


@pytest.mark.parametrize("kind", ["running_totals", "columns", "checked"])
def test_every_equation_of_a_careful_trace_holds(task, kind):
  for example in task.train:
    numbers = chain_sum.terms(task.prompt(example))
    thought = getattr(chain_sum, kind)(numbers)
    equations = re.split("[;?]", thought)
    for equation in equations:
      left, _, right = equation.rpartition("=")
      assert sum(chain_sum.terms(left.split(":")[0])) == int(right), thought
    forward = thought.split("?")[0]
    assert int(forward.rpartition("=")[2]) == int(example.answer)


def test_columns_carry():
  assert chain_sum.columns([47, 85]) == "47+85:12:13=132"
  assert chain_sum.columns([47, -85, 9]) == "47-85=-38;-38+9=-29"


def test_a_check_leads_back_to_the_first_term():
  assert chain_sum.checked([3, 4, -5]) == "3+4=7;7-5=2?2+5=7;7-4=3"


def test_mixture(task):
  rng = random.Random(0)
  texts = [(e, task.trace(e, rng)) for e in task.train]
  parts = [split_thinking(text) for _, text in texts]
  assert all(part.well_formed for part in parts)
  right = np.array(
    [
      part.answer == example.answer
      for (example, _), part in zip(texts, parts, strict=True)
    ]
  )
  thoughtless = np.array([not part.reasoning for part in parts])
  assert 0.4 < right.mean() < 0.7
  assert right[thoughtless].mean() < 0.35
  assert right[~thoughtless].mean() > 0.7


def test_traces_fit_the_quickstarts_vocabulary_and_budget(task):
  tokenizer = CharTokenizer(chain_sum.CHARACTERS)
  rng = random.Random(0)
  for example in task.train:
    tokenizer.encode(task.prompt(example) + task.trace(example, rng))
