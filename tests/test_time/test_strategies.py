"""Strategies on independent samples: what they choose and what they cost."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from grpo_jax.errors import UserError
from grpo_jax.reporting.estimators import pass_at_k
from grpo_jax.test_time.cost import forward_flops, unembedding_flops
from grpo_jax.test_time.estimators import best_of_k
from grpo_jax.test_time.generator import sample
from grpo_jax.test_time.selection import expected_accuracy
from grpo_jax.test_time.signature import Budget, encode_questions
from grpo_jax.test_time.strategies import (
  accuracy_of,
  best_of,
  greedy,
  majority_vote,
  text_verifier,
)
from grpo_jax.test_time.thinking import budget_metrics, thinking_rule

KEY = jax.random.key(0)
BEST = functools.partial(best_of, combine="none")
RIGHT = text_verifier(lambda i, text: float(text[:1] in "12345"))


def _right(questions, candidates):
  return RIGHT(questions, candidates)[0]


def test_best_of_n_with_a_perfect_verifier_is_pass_at_n(generator, questions):
  out = BEST(generator, RIGHT, questions, Budget(8), KEY)
  right = _right(questions, out.candidates)
  np.testing.assert_array_equal(
    accuracy_of(out, right), pass_at_k(right.sum(axis=1), 8, 8)
  )
  own = out.candidates
  for k in (1, 3, 8):
    np.testing.assert_allclose(
      [best_of_k(r, r, [k])[0] for r in right],
      pass_at_k(right.sum(axis=1), own.lengths.shape[1], k),
    )


def test_a_scorer_without_opinion_is_a_vote(generator, questions):
  flat = text_verifier(lambda i, text: 0.5)
  vote = majority_vote(generator, None, questions, Budget(8), KEY)
  weighted = best_of(generator, flat, questions, Budget(8), KEY, combine="sum")
  for a, b in zip(vote.selections, weighted.selections, strict=True):
    np.testing.assert_allclose(a.chances, b.chances)
  assert vote.answers == weighted.answers
  blind = BEST(generator, flat, questions, Budget(8), KEY)
  right = _right(questions, blind.candidates)
  np.testing.assert_allclose(accuracy_of(blind, right), right.mean(axis=1))


def test_greedy_is_one_completion_whatever_the_key(generator, questions):
  one = greedy(generator, None, questions, Budget(8), KEY)
  other = greedy(generator, None, questions, Budget(8), jax.random.key(1))
  assert one.candidates.texts == other.candidates.texts
  assert one.candidates.lengths.shape == (4, 1)
  assert one.answers == [a[0] for a in one.candidates.answers]


def test_few_samples_are_the_first_of_many(generator, questions):
  few, _ = sample(generator, questions, Budget(2), KEY)
  many, _ = sample(generator, questions, Budget(8), KEY)
  np.testing.assert_array_equal(few.tokens, many.tokens[:, :2])
  assert few.texts == [texts[:2] for texts in many.texts]


def test_a_question_is_answered_alike_in_any_batch(generator, questions):
  together = BEST(generator, RIGHT, questions, Budget(8), KEY)
  for i in (0, 3):
    alone = encode_questions(
      generator.tokenizer,
      questions.ids[i : i + 1],
      questions.prompts[i : i + 1],
      max_prompt_tokens=6,
    )
    one = BEST(generator, RIGHT, alone, Budget(8), KEY)
    assert one.candidates.texts[0] == together.candidates.texts[i]
    assert one.selections[0].index == together.selections[i].index
    for name in ("generated_tokens", "policy_flops", "peak_cache_bytes"):
      assert one.cost[name][0] == together.cost[name][i]


def test_cost_is_what_was_sampled(generator, questions):
  out = BEST(generator, RIGHT, questions, Budget(8), KEY)
  cost, lengths = out.cost, out.candidates.lengths
  np.testing.assert_array_equal(cost.generated_tokens, lengths.sum(axis=1))
  np.testing.assert_array_equal(
    cost.sequential_depth_tokens, lengths.max(axis=1)
  )
  np.testing.assert_array_equal(cost.prompt_tokens_unique, questions.lengths)
  np.testing.assert_array_equal(cost.judge_calls, 8)
  np.testing.assert_array_equal(cost.forced_tokens, 0)
  assert (cost.wall_s > 0).all()
  assert (lengths <= 12).all()  # the promise of the options
  # The prompt once, then each token of each sample after what precedes it.
  config, prompt = generator.config, int(questions.lengths[1])
  flops = forward_flops(config, np.array([0]), np.array([prompt]))[0]
  for length in lengths[1]:
    for at in range(prompt, prompt + length):
      flops += forward_flops(config, np.array([at]), np.array([at + 1]))[0]
      flops += unembedding_flops(config)
  assert cost.flops[1] == pytest.approx(flops, rel=1e-12)
  # Two arrays of [rows, kv heads, slots, channels] per layer, float32.
  assert cost.peak_cache_bytes[0] == 2 * 2 * 8 * 2 * (6 + 12) * 8 * 4


def test_cost_grows_with_the_budget(generator, questions):
  costs = [
    sample(generator, questions, Budget(n), KEY)[1].flops for n in (1, 2, 8)
  ]
  assert (np.diff(costs, axis=0) > 0).all()


def _thinking_by_loop(text_ids, opened):
  inside, count = opened, 0
  for token in text_ids:
    if inside and token not in (1, 3):
      count += 1
    inside = (inside or token == 2) and token != 3
  return count


def test_thinking_is_counted_between_its_tags(generator, questions):
  candidates, cost = sample(generator, questions, Budget(8), KEY)
  expected = [
    sum(
      _thinking_by_loop(row[:n], prompt.startswith("<think>"))
      for row, n in zip(rows, own, strict=True)
    )
    for rows, own, prompt in zip(
      candidates.tokens, candidates.lengths, questions.prompts, strict=True
    )
  ]
  np.testing.assert_array_equal(cost.thinking_tokens, expected)
  assert cost.thinking_tokens[3] > cost.thinking_tokens[:3].max()


def test_a_thinking_budget_is_kept_and_its_phrase_counted(generator, questions):
  free, _ = sample(generator, questions, Budget(8), KEY)
  limited, cost = sample(generator, questions, Budget(8, most_thinking=2), KEY)
  assert cost.thinking_tokens.max() <= 8 * 2
  np.testing.assert_array_equal(
    cost.forced_tokens, limited.forced.sum(axis=(1, 2))
  )
  assert cost.forced_tokens[3] > 0  # whose prompt opens its thinking
  np.testing.assert_array_equal(limited.tokens[..., 0], free.tokens[..., 0])
  _, waiting = sample(generator, questions, Budget(8, waits=2), KEY)
  assert waiting.forced_tokens.sum() > 0


def test_a_vote_over_bounded_thinking_keeps_the_budget_too(
  generator, questions
):
  budget = Budget(4, most_thinking=1)
  out = majority_vote(generator, None, questions, budget, KEY)
  assert out.cost.thinking_tokens.max() <= 4


def test_budgets_that_cannot_be_kept_are_refused(generator, questions):
  with pytest.raises(ValueError, match="at least 1 sample"):
    sample(generator, questions, Budget(0), KEY)
  with pytest.raises(ValueError, match="ThinkingRule"):
    sample(
      generator._replace(thinking=None), questions, Budget(1, waits=1), KEY
    )
  with pytest.raises(ValueError, match="needs a verifier"):
    BEST(generator, None, questions, Budget(2), KEY)


def test_a_tokenizer_without_tags_has_no_thinking_budget(generator):
  class Letters:
    stop_ids = (1,)

    def encode(self, text):
      return [ord(c) for c in text]

  with pytest.raises(UserError, match="one token"):
    thinking_rule(Letters(), wait="?", stop_phrase="")
  with pytest.raises(UserError, match="has no token"):
    thinking_rule(generator.tokenizer, wait="", stop_phrase="")
  with pytest.raises(UserError, match="not in the vocabulary"):
    thinking_rule(generator.tokenizer, wait="Wait", stop_phrase="")


def test_the_stop_phrase_stands_before_the_tag_or_around_it(generator):
  rule = thinking_rule(generator.tokenizer, wait="?", stop_phrase=";")
  assert rule.close_ids == (*generator.tokenizer.encode(";"), rule.close_id)
  whole = thinking_rule(generator.tokenizer, wait="?", stop_phrase=";</think>0")
  assert whole.close_ids[1] == rule.close_id
  assert len(whole.close_ids) == 3


def test_metrics_of_budgets():
  metrics = budget_metrics(
    [np.array([3, 5]), np.array([8, 11])],
    [(0, 4), (0, 10)],
    np.array([4.0, 9.5]),
    np.array([0.5, 0.4]),
  )
  assert metrics.control == 0.5
  assert metrics.scaling == pytest.approx(1000 * -0.1 / 5.5)
  assert metrics.performance == 0.5
  three = budget_metrics(
    [np.zeros(1)] * 3,
    [(0, 1)] * 3,
    np.array([1.0, 2.0, 4.0]),
    np.array([0.0, 0.1, 0.0]),
  )
  assert three.scaling == pytest.approx(1000 * (0.1 + 0.0 - 0.05) / 3)
  with pytest.raises(ValueError, match="slope"):
    budget_metrics([], [], np.array([1.0]), np.array([1.0]))


def test_an_outcome_without_answers_is_wrong(generator, questions):
  mute = generator._replace(read_answer=lambda text: None)
  out = majority_vote(mute, None, questions, Budget(2), KEY)
  assert out.answers == [None] * 4
  np.testing.assert_array_equal(accuracy_of(out, np.ones((4, 2))), 0)
  assert expected_accuracy(out.selections[0], np.ones(2)) == 0


def test_options_are_the_generators(generator, questions):
  short = dataclasses.replace(generator.options, max_completion_tokens=3)
  candidates, _ = sample(
    generator._replace(options=short), questions, Budget(2), KEY
  )
  assert candidates.lengths.max() <= 3
