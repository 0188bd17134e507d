"""What is thinking: a tokenizer's phrases, a batch's tokens, s1's metrics."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from grpo_jax.data.tokenizer import END_THINK, THINK, Tokenizer
from grpo_jax.errors import UserError
from grpo_jax.sampling.budgets import ThinkingRule
from grpo_jax.test_time.signature import Generator, Questions


def thinking_rule(
  tokenizer: Tokenizer, *, wait: str, stop_phrase: str
) -> ThinkingRule:
  """How this tokenizer's thinking is ended or made to go on.

  Args:
    tokenizer: in which `<think>` and `</think>` are one token each.
    wait: put in instead of an end that comes too early; s1 has "Wait".
    stop_phrase: put in when the budget is spent, up to and without `</think>`
      or with it and what comes after; it says that there is no time left, so
      that the model does not go on to think in its answer.

  Raises:
    UserError: a tag is not one token, or a phrase is empty or cannot be
      encoded.
  """
  tags = []
  for tag in (THINK, END_THINK):
    ids = tokenizer.encode(tag)
    if len(ids) != 1:
      raise UserError(
        f"Thinking budgets need a tokenizer in which {tag} is one token; here"
        f" it is {len(ids)}. Use a model that was made to think, such as Qwen3."
      )
    tags += ids
  closing = stop_phrase if END_THINK in stop_phrase else stop_phrase + END_THINK
  try:
    return ThinkingRule(
      open_id=tags[0],
      close_id=tags[1],
      wait_ids=tuple(tokenizer.encode(wait)),
      close_ids=tuple(tokenizer.encode(closing)),
      stop_ids=tuple(tokenizer.stop_ids),
    )
  except ValueError as error:
    raise UserError(f"{error} wait={wait!r}, stop_phrase={closing!r}") from None


def inside_thinking(
  generator: Generator, questions: Questions, tokens: Int[np.ndarray, "Q N T"]
) -> Bool[np.ndarray, "Q N T"]:
  """Tokens between `<think>` and `</think>`; none without a rule."""
  rule = generator.thinking
  if rule is None:
    return np.zeros(tokens.shape, bool)
  at = np.arange(1, tokens.shape[-1] + 1)
  opened = thinking_opened(questions, rule)[:, None, None]
  opens = np.where(tokens == rule.open_id, at, np.where(opened, 0, -1))
  closes = np.where(tokens == rule.close_id, at, -1)
  after = np.maximum.accumulate(opens, -1) > np.maximum.accumulate(closes, -1)
  first = np.broadcast_to(opened, (*tokens.shape[:2], 1))
  before = np.concatenate([first, after[..., :-1]], axis=-1)
  ends = np.isin(tokens, (rule.close_id, *rule.stop_ids))
  return before & ~ends


def thinking_opened(
  questions: Questions, rule: ThinkingRule
) -> Bool[np.ndarray, " Q"]:
  """Questions whose prompt ends within its thinking."""
  at = np.arange(questions.tokens.shape[1])
  there = at < questions.lengths[:, None]

  def last(token):
    found = (questions.tokens == token) & there
    return np.where(found, at, -1).max(axis=1)

  return last(rule.open_id) > last(rule.close_id)


class BudgetMetrics(NamedTuple):
  """How well a method obeys, and uses, thinking budgets (arXiv:2501.19393).

  Attributes:
    control: share of completions whose thinking lies within its limits.
    scaling: mean slope of accuracy over all pairs of budgets, per 1,000
      tokens.
    performance: the highest accuracy.
  """

  control: float
  scaling: float
  performance: float


def budget_metrics(
  thought: Sequence[Shaped[np.ndarray, " C"]],
  limits: Sequence[tuple[float, float]],
  mean_tokens: Float[np.ndarray, " B"],
  accuracy: Float[np.ndarray, " B"],
) -> BudgetMetrics:
  """Control, Scaling and Performance of s1.

  Args:
    thought: for each of at least two budgets the thinking tokens of each
      completion.
    limits: least and most tokens that each budget asks for.
    mean_tokens: thinking tokens of each budget on average, no two the same.
    accuracy: at each budget.

  Raises:
    ValueError: there are fewer than two budgets, or two of the same tokens.
  """
  if len(mean_tokens) < 2 or len(set(mean_tokens)) < len(mean_tokens):
    raise ValueError("Scaling is a slope: it needs budgets of unequal tokens.")
  kept = [
    (low <= own) & (own <= high)
    for own, (low, high) in zip(thought, limits, strict=True)
  ]
  first, second = np.triu_indices(len(mean_tokens), 1)
  slopes = (accuracy[second] - accuracy[first]) / (
    mean_tokens[second] - mean_tokens[first]
  )
  return BudgetMetrics(
    control=float(np.concatenate(kept).mean()),
    scaling=float(1000 * slopes.mean()),
    performance=float(accuracy.max()),
  )
