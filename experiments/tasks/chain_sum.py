"""The quickstart's task: sums and differences, and traces to start from.

Problems and the scorer are reasoning-gym's `chain_sum`. The traces are of
several kinds, so that reinforcement has strategies to choose between: careful
ones (running totals, columns with carries, a second pass as a check) and
careless ones (an answer at once, or from thinking that was broken off).
"""

import random
import re
from collections.abc import Hashable

from grpo_jax.data.example import Example
from grpo_jax.data.reasoning_gym import load_reasoning_gym, score_answer
from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.rewards.equivalence import canonical
from grpo_jax.rewards.functions import answer_and_format
from grpo_jax.rewards.thinking import split_thinking
from grpo_jax.training.rollouts import Task

CHARACTERS = "0123456789+-=;:?"


def prompt(example: Example) -> str:
  """The bare expression: "12 + 34 - 5 =" becomes "12+34-5="."""
  return example.info["metadata"]["expression"].replace(" ", "") + "="


def difficulty(example: Example) -> str:
  """The label that results are grouped by."""
  return f"terms={example.info['metadata']['num_terms']}"


def terms(text: str) -> list[int]:
  """Signed terms of an expression: "12+34-5=" has 12, 34 and -5."""
  return [int(term) for term in re.findall(r"-?\d+", text)]


def running_totals(numbers: list[int]) -> str:
  """One equation per term, as in 12+34=46;46-5=41."""
  total, steps = numbers[0], []
  for number in numbers[1:]:
    steps.append(f"{total}{number:+d}={total + number}")
    total += number
  return ";".join(steps)


def columns(numbers: list[int]) -> str:
  """Adds by columns with carries, as in 47+85:12:13=132.

  Between the colons stand the sums of the columns, ones first, each with the
  carry of the one before. Other steps are written as running totals.
  """
  total, steps = numbers[0], []
  for number in numbers[1:]:
    result = total + number
    if total >= 0 and number >= 0:
      sums, carry, a, b = [], 0, total, number
      while a or b:
        column = a % 10 + b % 10 + carry
        sums.append(str(column))
        carry, a, b = column // 10, a // 10, b // 10
      work = ":".join(sums)
      steps.append(f"{total}{number:+d}:{work}={result}")
    else:
      steps.append(f"{total}{number:+d}={result}")
    total = result
  return ";".join(steps)


def checked(numbers: list[int]) -> str:
  """Running totals, then a question mark and the way back to the start."""
  total, back = sum(numbers), []
  for number in reversed(numbers[1:]):
    back.append(f"{total}{-number:+d}={total - number}")
    total -= number
  return running_totals(numbers) + "?" + ";".join(back)


def blurted(numbers: list[int], rng: random.Random) -> str:
  """An answer without thinking, mostly near and wrong."""
  error = rng.choice([0, 0, 1, -1, 2, -2, 10, -10, 9, -9, 11, -11])
  return f"<think></think>{sum(numbers) + error}"


def broken_off(numbers: list[int], rng: random.Random) -> str:
  """The running total of the first terms, given as the answer."""
  kept = rng.randint(1, len(numbers) - 1)
  thought = running_totals(numbers[: max(kept, 2)]) if kept > 1 else ""
  return f"<think>{thought}</think>{sum(numbers[:kept])}"


def trace(example: Example, rng: random.Random) -> str:
  """A completion to imitate, half of the time a careless one."""
  numbers = terms(prompt(example))
  kind = rng.choices(
    [running_totals, columns, checked, blurted, broken_off],
    weights=[0.25, 0.1, 0.1, 0.35, 0.2],
  )[0]
  if kind in (blurted, broken_off):
    return kind(numbers, rng)
  return f"<think>{kind(numbers)}</think>{sum(numbers)}"


def judge_steps(example: Example, completion: str) -> list[tuple[int, float]]:
  """1 for each equation that adds the next term to the total, and is right.

  The answer is the last step.

  Args:
    example: the problem.
    completion: equations, as in <think>12+34=46;46-5=41</think>41.

  Returns:
    (end, reward) of each step.
  """
  total, *rest = terms(prompt(example))
  steps = []
  thought = completion.partition("</think>")[0]
  for step in re.finditer(r"(-?\d+)([+-]\d+)[:\d]*=(-?\d+)", thought):
    before, term, after = (int(number) for number in step.groups())
    right = bool(rest) and (before, term) == (total, rest[0])
    steps.append((step.end(), float(right and after == before + term)))
    total, rest = after, rest[1:]
  answer = split_thinking(completion).answer
  right = bool(answer) and score_answer(example, answer) >= 1.0
  return [*steps, (len(completion) + 1, float(right))]


def stated(example: Example, completion: str) -> Hashable | None:
  """What the completion votes for: its answer, read as a number."""
  del example
  answer = split_thinking(completion).answer
  return canonical(answer).key if answer else None


def make_task(
  *,
  data_dir: str,
  train_size: int,
  test_size: int,
  min_terms: int = 2,
  max_terms: int = 5,
  min_digits: int = 1,
  max_digits: int = 1,
) -> Task:
  """Sums and differences with a tokenizer of characters.

  Args:
    data_dir: folder for prepared data.
    train_size: problems to train on.
    test_size: held-out problems, none of which is among the former.
    min_terms: terms of the shortest problems.
    max_terms: terms of the longest.
    min_digits: digits of the smallest numbers.
    max_digits: digits of the largest.

  Returns:
    The task.

  Raises:
    ValueError: a range is empty, or has too few different problems.
  """
  if not 2 <= min_terms <= max_terms or not 1 <= min_digits <= max_digits:
    raise ValueError(
      "terms must go from 2 or more, and digits from 1 or more, upwards."
    )
  train, test = load_reasoning_gym(
    task="chain_sum",
    task_args=dict(
      min_terms=min_terms,
      max_terms=max_terms,
      min_digits=min_digits,
      max_digits=max_digits,
    ),
    train_size=train_size,
    test_size=test_size,
    seed=0,
    data_dir=data_dir,
  )
  return Task(
    train=train,
    test=test,
    tokenizer=CharTokenizer(CHARACTERS),
    prompt=prompt,
    trace=trace,
    reward_fn=answer_and_format(score_answer),
    label=difficulty,
    judge_steps=judge_steps,
    answer_key=stated,
  )
