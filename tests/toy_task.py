"""One-digit sums whose answers even random parameters hit by chance.

And a recipe that has all there is to save: pending groups, critic and memory.
"""

import math

from grpo_jax.algorithms import recipes
from grpo_jax.data.example import Example
from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.rewards.symbolic import symbolic_pool
from grpo_jax.rewards.verify import parse_gold, verify_all
from grpo_jax.training.rollouts import Task


def make_task(
  *, data_dir: str = "", train_size: int = 12, test_size: int = 6
) -> Task:
  """Problems to train on and held-out ones; the vocabulary has 20 tokens."""
  del data_dir
  return Task(
    train=[_example(i // 3 % 9, i % 3) for i in range(train_size)],
    test=[_example(i, 7) for i in range(test_size)],
    tokenizer=CharTokenizer("0123456789+=-;:?"),
    prompt=lambda example: example.question,
    trace=_trace,
    reward_fn=_reward,
    label=lambda example: f"first={example.info['first'] % 2}",
  )


def make_hopeless_task(
  *, data_dir: str = "", train_size: int = 12, test_size: int = 6
) -> Task:
  """The same with a verifier that finds every answer wrong."""
  del data_dir
  return make_task(train_size=train_size, test_size=test_size)._replace(
    reward_fn=lambda example, completion: {"correctness": 0.0, "format": 0.0}
  )


def make_verified_task(
  *, data_dir: str = "", train_size: int = 12, test_size: int = 6
) -> Task:
  """The same with both tiers, and answers that only the second may decide."""
  del data_dir
  task = make_task(train_size=train_size, test_size=test_size)
  pool = symbolic_pool(workers=1, limit_s=5.0)
  gold = parse_gold(r"\cot x")

  def verify(examples, completions):
    answers = [
      rf"\boxed{{{'1/' if '=' in text else ''}\tan x}}" for text in completions
    ]
    verdicts = verify_all([gold] * len(answers), answers, pool)
    return [verdict.outcome for verdict in verdicts]

  return task._replace(reward_fn=None, verify=verify, close=pool.close)


def mood(example, completion, *, raises_on=3):
  """A user's reward, which fails on some completions in each way."""
  kind = len(completion) % 4
  if kind == raises_on:
    raise ValueError(f"no {raises_on}")
  return {0: {"mood": len(completion)}, 1: {"mood": math.nan}, 2: None}[kind]


def at_once(example, completion):
  """Raises whatever it is given."""
  raise RuntimeError("boom")


def number(example, completion):
  """Gives a number instead of a dict."""
  return 1.0


def again(example, completion):
  """Gives a score that the task gives already."""
  return {"format": 1.0}


def _example(a, b):
  return Example(f"{a}+{b}=", str(a + b), {"first": a})


def _trace(example, rng):
  thought = "+" * rng.randint(0, 3)
  return f"<think>{thought}</think>{example.answer}"


def _reward(example, completion):
  """Right by a single character: groups are mixed from the first step on."""
  right = sum(digit in completion[:2] for digit in "12345") > 0
  return {"correctness": float(right), "format": float("<think>" in completion)}


def everything(*, length_budget: int):
  """PPO with dynamic sampling, and a moving average that nothing reads."""
  moving = recipes.reinforce_moving_average(length_budget=length_budget)
  return recipes.ppo(length_budget=length_budget)._replace(
    keep_groups=recipes.dapo(length_budget=length_budget).keep_groups,
    memories=moving.memories,
  )
