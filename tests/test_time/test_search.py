"""Search by steps, against its definitions and against plain sampling."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from grpo_jax.models.decoder import init_params
from grpo_jax.test_time.branching import beam_children, rebase_children
from grpo_jax.test_time.generator import sample
from grpo_jax.test_time.search import Steps, delimiter_ids, search
from grpo_jax.test_time.signature import Budget, encode_questions
from grpo_jax.test_time.step_scorers import Step, text_scorer, value_scorer
from grpo_jax.types import RUNNING

KEY = jax.random.key(3)
N = 8
BUDGET = Budget(N)
BEAM = {m: functools.partial(beam_children, branching=m) for m in (1, 4, 8)}


def taste(question_id, text):
  """An opinion on any text: no two texts tie but by chance."""
  return float((sum(ord(c) * 7**i for i, c in enumerate(text)) % 997) / 997)


@pytest.fixture(scope="module")
def steps(generator):
  """Steps of at most 4 tokens that end at any of three characters."""
  found = [delimiter_ids(generator.tokenizer, d)[0] for d in ";:?"]
  return Steps(tuple(found), max_step_tokens=4, max_steps=4)


@pytest.fixture(scope="module")
def run(generator, questions, steps):
  """A search with a beam of 4 unless told otherwise."""

  def run(
    children=BEAM[4],
    verifier=None,
    questions=questions,
    budget=BUDGET,
    **kwargs,
  ):
    arguments = {
      "steps": steps,
      "rows_per_tree": None,
      "lookahead": 0,
      "aggregate": "last",
      "combine": "none",
    }
    return search(
      generator,
      verifier or text_scorer(taste, generator.tokenizer),
      questions,
      budget,
      KEY,
      children=children,
      **arguments | kwargs,
    )

  return run


COUNTS = (
  "generated_tokens",
  "discarded_tokens",
  "thinking_tokens",
  "judge_calls",
  "sequential_depth_tokens",
  "policy_flops",
  "verifier_tokens",
  "verifier_flops",
  "peak_cache_bytes",
)


@pytest.fixture(scope="module")
def beam(run):
  return run()


def _same(one, other):
  np.testing.assert_array_equal(one.candidates.tokens, other.candidates.tokens)
  for a, b in zip(one.selections, other.selections, strict=True):
    np.testing.assert_array_equal(a.chances, b.chances)


@pytest.mark.parametrize("trees", [{}, {"rows_per_tree": 1}])
def test_a_beam_of_one_child_is_independent_samples(
  run, generator, questions, trees
):
  out = run(BEAM[1], **trees)
  plain, cost = sample(generator, questions, Budget(N), KEY)
  np.testing.assert_array_equal(out.candidates.tokens, plain.tokens)
  np.testing.assert_array_equal(out.candidates.stop_reason, plain.stop_reason)
  np.testing.assert_array_equal(out.candidates.logp, plain.logp)
  best = [
    int(np.argmax([taste(0, text) for text in texts])) for texts in plain.texts
  ]
  assert [s.index for s in out.selections] == best
  for name in ("generated_tokens", "policy_flops", "thinking_tokens"):
    np.testing.assert_allclose(out.cost[name], cost[name])
  assert not out.cost.discarded_tokens.any()


def test_rebase_of_any_score_is_independent_samples_when_hot(
  run, generator, questions
):
  hot = functools.partial(rebase_children, temperature=1e9)
  plain, _ = sample(generator, questions, Budget(N), KEY)
  np.testing.assert_array_equal(run(hot).candidates.tokens, plain.tokens)


def _first_steps(tokens, lengths, steps):
  """Where each completion's first step ends, and which end with it."""
  ends = []
  for row, length in zip(tokens, lengths, strict=True):
    found = np.flatnonzero(np.isin(row[:length], steps.delimiter_ids))
    ends.append(min([*found + 1, steps.max_step_tokens, length]))
  return np.array(ends)


@pytest.mark.parametrize("kept, trees", [(2, {}), (1, {"rows_per_tree": 4})])
def test_the_best_first_steps_are_continued(
  run, generator, questions, steps, kept, trees
):
  """Beam: the best 2 of 8. Diverse trees: the best of each 4."""
  out = run(steps=steps._replace(max_steps=2), **trees).candidates
  plain, _ = sample(generator, questions, Budget(N), KEY)
  for q in range(len(questions.ids)):
    tokens, lengths = plain.tokens[q], plain.lengths[q]
    ends = _first_steps(tokens, lengths, steps)
    done = ends == lengths
    for tree in np.split(np.arange(N), N // trees.get("rows_per_tree", N)):
      running = [i for i in tree if not done[i]]
      running.sort(
        key=lambda i: taste(
          0, generator.tokenizer.decode(tokens[i, : ends[i]])
        ),
        reverse=True,
      )
      best = [tokens[i, : ends[i]] for i in running[: -(-len(running) // 4)]]
      assert len(best) <= kept
      for i in tree:
        final = out.tokens[q, i]
        if done[i]:
          np.testing.assert_array_equal(final, tokens[i])
        else:
          assert any((final[: len(b)] == b).all() for b in best)


def test_children_of_one_parent_differ(beam):
  assert all(len(set(texts)) > N // 2 for texts in beam.candidates.texts)


def test_one_tree_of_all_rows_is_a_beam_that_keeps_one(run):
  _same(run(BEAM[8]), run(BEAM[8], rows_per_tree=8))


def test_diverse_trees_do_not_touch_each_other(run):
  trees = run(rows_per_tree=4)
  assert (trees.candidates.tokens != run().candidates.tokens).any()
  assert trees.cost.peak_cache_bytes[0] == run().cost.peak_cache_bytes[0]


def test_lookahead_changes_who_is_kept_and_is_paid_for(run, beam):
  ahead = run(lookahead=1)
  first = run(lookahead=0)
  _same(first, beam)
  assert (ahead.candidates.tokens != beam.candidates.tokens).any()
  assert (ahead.cost.discarded_tokens > beam.cost.discarded_tokens).all()
  assert ahead.cost.peak_cache_bytes[0] == 2 * beam.cost.peak_cache_bytes[0]


def test_lookahead_prunes_by_the_end_of_a_greedy_step(
  run, generator, questions, steps
):
  """Every text that is scored twice as long is the greedy continuation."""
  judged = []

  def note(question_id, text):
    judged.append((question_id, text))
    return taste(question_id, text)

  verifier = text_scorer(note, generator.tokenizer)
  out = run(
    verifier=verifier, steps=steps._replace(max_steps=2), lookahead=1
  ).candidates
  rows = N * len(questions.ids)
  now, ahead = judged[:rows], judged[rows:]
  plain, _ = sample(generator, questions, Budget(N), KEY)
  at = 0
  for q in range(len(questions.ids)):
    ends = _first_steps(plain.tokens[q], plain.lengths[q], steps)
    running = np.flatnonzero(ends < plain.lengths[q])
    values = {}
    for i in running:
      before, after = now[q * N + i][1], ahead[at][1]
      assert ahead[at][0] == questions.ids[q]
      assert after.startswith(before)
      values[i] = taste(0, after)
      at += 1
    best = sorted(values, key=values.get, reverse=True)
    best = best[: -(-len(best) // 4)]
    for i in running:
      assert any(
        (out.tokens[q, i, : ends[b]] == plain.tokens[q, b, : ends[b]]).all()
        for b in best
      )


def test_a_question_is_searched_alike_in_any_batch(run, generator, questions):
  together = run()
  alone = encode_questions(
    generator.tokenizer,
    questions.ids[1:2],
    questions.prompts[1:2],
    max_prompt_tokens=6,
  )
  one = run(questions=alone)
  np.testing.assert_array_equal(
    one.candidates.tokens[0], together.candidates.tokens[1]
  )
  for name in COUNTS:
    np.testing.assert_allclose(one.cost[name][0], together.cost[name][1])


def test_tokens_of_a_search_are_in_its_candidates_or_discarded(beam):
  """Distinct beginnings of a question's candidates are its tree."""
  for q, (tokens, lengths) in enumerate(
    zip(beam.candidates.tokens, beam.candidates.lengths, strict=True)
  ):
    tree = {
      tuple(row[: i + 1])
      for row, length in zip(tokens, lengths, strict=True)
      for i in range(length)
    }
    kept = beam.cost.generated_tokens[q] - beam.cost.discarded_tokens[q]
    assert 0 < len(tree) <= kept  # two samples may begin alike by chance
    assert kept <= lengths.sum()
    assert lengths.max() <= 12
  assert beam.cost.discarded_tokens.all()


@pytest.fixture(scope="module")
def value(variant_model):
  config, params = variant_model
  head = {
    "weight": np.linspace(-1, 1, config.width).astype(np.float32),
    "bias": np.float32(0.1),
  }
  return value_scorer(params, config, head)


@pytest.fixture(scope="module")
def variant_model(model):
  config = dataclasses.replace(model, layers=1, width=24)
  return config, init_params(config, jax.random.key(5))


def test_incremental_scores_are_those_of_the_whole_text(
  run, value, generator, questions
):
  """Aggregated over a search with forks, by the score after the last step."""
  seen = {}

  def noting(memory, questions, step):
    scores, memory, cost = value.score(memory, questions, step)
    for row in np.flatnonzero(step.stop > step.start):
      text = tuple(step.tokens[row, : step.stop[row]])
      seen[questions.ids[row // N], text] = scores[row]
    return scores, memory, cost

  out = run(verifier=value._replace(score=noting))
  memory, _ = value.begin(questions, N, 12)
  flat = out.candidates.tokens.reshape(-1, 12)
  lengths = out.candidates.lengths.reshape(-1)
  whole, _, _ = value.score(
    memory, questions, Step(flat, np.zeros_like(lengths), lengths)
  )
  found = [
    seen[questions.ids[row // N], tuple(flat[row, : lengths[row]])]
    for row in range(len(flat))
  ]
  assert np.std(found) > 0.01
  np.testing.assert_allclose(found, whole, atol=1e-5)
  best = whole.reshape(-1, N).argmax(axis=1)
  assert [s.index for s in out.selections] == best.tolist()


def test_no_prefix_is_scored_twice(run, value, questions):
  out = run(verifier=value)
  expected = questions.lengths + out.cost.generated_tokens
  np.testing.assert_array_equal(out.cost.verifier_tokens, expected)
  assert (out.cost.verifier_flops > 0).all()
  assert not out.cost.judge_calls.any()


def test_searching_keeps_a_thinking_budget(run):
  out = run(budget=Budget(N, most_thinking=2))
  assert out.cost.forced_tokens[3] > 0  # whose prompt opens its thinking
  for row, length in zip(
    out.candidates.tokens[3], out.candidates.lengths[3], strict=True
  ):
    inside = np.flatnonzero(np.isin(row[:length], [1, 3]))
    assert inside[0] <= 2


def test_aggregates_are_of_the_rows_own_steps(run, generator):
  """A product over steps of constant scores tells how many there were."""
  half = text_scorer(lambda i, text: 0.5, generator.tokenizer)
  out = run(verifier=half, aggregate="prod", children=BEAM[1])
  for selection, lengths in zip(
    out.selections, out.candidates.lengths, strict=True
  ):
    assert lengths[selection.chances > 0].min() == lengths.min()


def test_searches_that_cannot_be_made_are_refused(run, generator, questions):
  with pytest.raises(ValueError, match="at least as many candidates"):
    run(budget=Budget(2))
  with pytest.raises(ValueError, match="trees of 3"):
    run(rows_per_tree=3)
  with pytest.raises(ValueError, match="needs a verifier"):
    search(
      generator,
      None,
      questions,
      Budget(N),
      KEY,
      steps=Steps((9,), 4, 4),
      children=BEAM[4],
      rows_per_tree=None,
      lookahead=0,
      aggregate="last",
      combine="none",
    )


def test_delimiters_are_all_tokens_that_hold_them(generator):
  class Words:
    vocab_size = 5
    stop_ids = (0,)

    def decode(self, ids):
      return "".join(["<end>;", "a", ";", ");", ";;"][i] for i in ids)

  assert delimiter_ids(Words(), ";") == (2, 3, 4)
  with pytest.raises(ValueError, match="holds '!'"):
    delimiter_ids(generator.tokenizer, "!")


def test_all_rows_have_stopped_in_the_end(beam):
  assert (beam.candidates.stop_reason != RUNNING).all()
