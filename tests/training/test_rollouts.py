"""Sampling, verification, evaluation and warm start on the toy task."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.loss import prepare
from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.errors import UserError
from grpo_jax.reporting.estimators import mean_interval
from grpo_jax.rewards.verify import Outcome
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.training.collect import Collected
from grpo_jax.training.evaluate import (
  evaluate,
  evaluation_metrics,
  evaluation_summary,
)
from grpo_jax.training.metrics import mean_totals, rollout_metrics
from grpo_jax.training.rollouts import make_rollout, sample_rows
from grpo_jax.training.warm_start import WarmStartOptions, warm_start
from grpo_jax.types import EOS, LENGTH

KEY, NAN = jax.random.key(0), np.nan
OPTIONS = SamplingOptions(
  max_completion_tokens=8,
  temperature=1.0,
  top_k=0,
  top_p=1.0,
  stop_ids=(1,),
)


@pytest.fixture(scope="module")
def rollout(task, model):
  return make_rollout(
    task,
    model,
    OPTIONS,
    reward_functions=[("task", task.reward_fn)],
    reward_weights={"correctness": 1.0, "format": 0.5},
    prompts_per_call=4,
    group_size=3,
    max_prompt_tokens=5,
  )


@pytest.fixture(scope="module")
def sampled(rollout, task, params):
  ids = list(range(10, 16))
  return rollout(params, task.train[:6], ids, jax.random.key(0), 7)


def test_any_number_of_problems_is_sampled(sampled, rollout, task, params):
  assert sampled.rollouts.tokens.shape == (6, 3, 8)
  alone = rollout(params, task.train[4:5], [14], jax.random.key(0), 7)
  np.testing.assert_array_equal(
    alone.rollouts.tokens[0], sampled.rollouts.tokens[4]
  )


def test_rollouts_describe_what_was_sampled(sampled, task):
  r = sampled.rollouts
  assert (r.version == 7).all() and r.sample_mask.all()
  np.testing.assert_array_equal(r.loss_mask.sum(-1), r.lengths)
  np.testing.assert_array_equal(
    r.accuracy, sampled.scored.scores["correctness"]
  )
  np.testing.assert_allclose(
    r.outcome, r.accuracy + 0.5 * sampled.scored.scores["format"]
  )
  tokenizer = CharTokenizer("0123456789+=-;:?")
  for p, example in enumerate(task.train[:6]):
    prompt = r.prompt_tokens[p, : r.prompt_lengths[p]]
    assert tokenizer.decode(prompt) == example.question
    for g in range(3):
      tokens = r.tokens[p, g, : r.lengths[p, g]]
      assert tokenizer.decode(tokens) == sampled.texts[p][g]
      assert (tokens[-1] == 1) == (r.stop_reason[p, g] == EOS)
  assert len({tuple(t) for t in sampled.texts}) == 6


def test_too_long_a_prompt_is_refused(task, model, params, rollout):
  long = dataclasses.replace(task.train[0], question="1+2+3+4=")
  with pytest.raises(ValueError, match="max_prompt_tokens = 5"):
    rollout(params, [long], [0], jax.random.key(0), 0)


def test_sample_rows(sampled, task):
  rows = sample_rows(sampled, task, 2)
  assert len(rows) == 6
  assert rows[4]["completion"] == sampled.texts[1][1]
  assert rows[4]["prompt"] == task.train[1].question
  assert set(rows[4]["rewards"]) == {"correctness", "format"}
  assert rows[4]["stop_reason"] in ("eos", "length")


def _fails(example, completion):
  """Raises, or gives NaN, or nothing, or a number."""
  first = completion[:1]
  if first in "+-":
    raise ValueError(first)
  return None if first in "01234" else {"mood": NAN if first == "?" else -2.0}


def _verify(examples, texts):
  """Times out where a completion begins with an even digit."""
  return [
    Outcome.TIMED_OUT
    if text[:1] in tuple("02468")
    else Outcome.CORRECT
    if "=" in text
    else Outcome.WRONG
    for text in texts
  ]


@pytest.fixture(scope="module")
def partly(task, model, params):
  """Groups of which not everything could be scored."""
  task = task._replace(verify=_verify, reward_fn=None)
  rollout = make_rollout(
    task,
    model,
    OPTIONS,
    reward_functions=[("fails", _fails)],
    reward_weights={"correctness": 1.0, "mood": 0.5},
    prompts_per_call=4,
    group_size=8,
    max_prompt_tokens=5,
  )
  return task, rollout, rollout(params, task.train[:8], range(8), KEY, 0)


def test_what_could_not_be_scored_is_no_zero(partly):
  task, _, sampled = partly
  r, texts = sampled.rollouts, np.array(sampled.texts)
  outcomes = np.array(_verify(None, texts.ravel())).reshape(8, 8)
  late = outcomes == "timed_out"
  assert 5 < late.sum() < 50
  np.testing.assert_array_equal(sampled.scored.outcomes, outcomes)
  np.testing.assert_array_equal(r.sample_mask, ~late)
  np.testing.assert_array_equal(r.accuracy, outcomes == "correct")
  mood = sampled.scored.scores["mood"]
  some = (~np.isnan(mood) & ~late).any(axis=1)
  assert 0 < np.isnan(mood).sum() < 64 and some.sum() > 4
  expected = np.where(some[:, None], r.accuracy - 1.0, r.accuracy)
  np.testing.assert_array_equal(r.outcome[~late], expected[~late])
  assert r.components.shape == (8, 8, 2)
  assert np.isfinite(r.components).all() and np.isfinite(r.outcome).all()
  row = sample_rows(sampled, task, 8)[np.flatnonzero(late)[0]]
  assert row["outcome"] == "timed_out"
  assert np.isnan(row["rewards"]["correctness"])


def test_an_excluded_completion_has_no_gradient(partly):
  _, _, sampled = partly
  r = jax.tree.map(jnp.asarray, sampled.rollouts)
  for recipe in (recipes.grpo, recipes.gdpo):
    recipe = recipe(length_budget=8)
    prepared, _ = prepare(recipe, r, recipe.initial_memory)
    assert not prepared.loss_mask[~r.sample_mask].any()
    assert not prepared.advantage[~r.sample_mask].any()
    # Nor is it in the baseline of the others.
    other = r.replace(
      outcome=jnp.where(r.sample_mask, r.outcome, 99.0),
      components=jnp.where(r.sample_mask[..., None], r.components, 99.0),
    )
    again, _ = prepare(recipe, other, recipe.initial_memory)
    np.testing.assert_array_equal(prepared.advantage, again.advantage)
    assert np.asarray(prepared.advantage).any()


def test_what_was_excluded_is_counted(partly):
  _, _, sampled = partly
  collected = Collected(
    rollouts=sampled.rollouts,
    groups=8,
    sampled=[sampled, sampled],
    keep_rate=1.0,
    logp_difference=np.zeros(0),
    score_s=0.0,
  )
  metrics = rollout_metrics(collected, step=0)
  texts = np.array(sampled.texts).ravel()
  first = np.array([text[:1] for text in texts])
  shares = {
    "excluded/fails/raised": np.isin(first, ["+", "-", ""]),
    "excluded/fails/none": np.isin(first, list("01234")),
    "excluded/fails/not_finite": first == "?",
    "excluded/completions": np.isin(first, list("02468")),
    "verifier/timed_out": np.isin(first, list("02468")),
    "verifier/crashed": first == "x",
  }
  for name, where in shares.items():
    assert metrics[name] == pytest.approx(where.mean()), name
  outcomes = [metrics[f"verifier/{outcome}"] for outcome in Outcome]
  assert sum(outcomes) == pytest.approx(1)
  r = sampled.rollouts
  known = r.accuracy[r.sample_mask]
  assert metrics["rewards/correctness/mean"] == pytest.approx(known.mean())
  assert metrics["rewards/mood/mean"] == -2
  assert metrics["reward"] == pytest.approx(r.outcome[r.sample_mask].mean())
  assert metrics["reward_std"] == pytest.approx(r.outcome[r.sample_mask].std())
  groups = [r.accuracy[p][r.sample_mask[p]] for p in range(8)]
  assert metrics["groups/all_wrong"] == np.mean([g.max() == 0 for g in groups])
  assert metrics["groups/all_right"] == np.mean([g.min() == 1 for g in groups])


def test_metrics_where_nothing_could_be_verified(sampled):
  nothing = np.full((6, 3), NAN, np.float32)
  scored = sampled.scored._replace(scores={"correctness": nothing})
  rollouts = sampled.rollouts.replace(
    sample_mask=np.zeros((6, 3), bool), accuracy=np.zeros((6, 3), np.float32)
  )
  collected = Collected(
    rollouts=None,
    groups=0,
    sampled=[sampled._replace(rollouts=rollouts, scored=scored)],
    keep_rate=0.0,
    logp_difference=np.zeros(0),
    score_s=0.0,
  )
  metrics = rollout_metrics(collected, step=0)
  assert metrics["excluded/completions"] == 1
  assert metrics["groups/all_wrong"] == metrics["groups/all_right"] == 0
  assert "reward" not in metrics
  assert "completions/mean_length_wrong" not in metrics
  assert np.isfinite(list(metrics.values())).all()


def test_an_evaluation_does_not_gain_from_a_verifier_that_fails(partly, params):
  task, rollout, _ = partly
  evaluation = evaluate(params, task, rollout, seed=5)
  outcomes = np.array(evaluation.sampled.scored.outcomes)
  late = outcomes == "timed_out"
  assert late.any()
  np.testing.assert_allclose(
    evaluation.accuracy, (outcomes == "correct").mean(1)
  )
  assert evaluation.pass_at[8] == (outcomes == "correct").any(1).mean()
  summary = evaluation_summary(evaluation)
  assert summary["verifier/timed_out"] == pytest.approx(late.mean())
  assert summary["excluded/completions"] == pytest.approx(late.mean())


def test_metrics_of_a_step(sampled):
  collected = Collected(
    rollouts=sampled.rollouts,
    groups=6,
    sampled=[sampled],
    keep_rate=0.25,
    logp_difference=np.array([0.0, 0.25]),
    score_s=0.0,
  )
  metrics = rollout_metrics(collected, step=9)
  r = sampled.rollouts
  right, lengths = r.accuracy > 0, r.lengths
  expected = {
    "reward": r.outcome.mean(),
    "rewards/format/mean": sampled.scored.scores["format"].mean(),
    "groups/all_right": right.all(1).mean(),
    "groups/all_wrong": (~right).all(1).mean(),
    "groups/keep_rate": 0.25,
    "groups/max_age_steps": 2,  # sampled at version 7
    "frac_reward_zero_std": (r.outcome.std(1) == 0).mean(),
    "completions/mean_length": lengths.mean(),
    "completions/mean_length_right": lengths[right].mean(),
    "completions/mean_length_wrong": lengths[~right].mean(),
    "completions/clipped_ratio": (r.stop_reason == LENGTH).mean(),
    "sampling/sampling_logp_difference/max": 0.25,
    "sampling/sampling_logp_difference/mean": 0.125,
  }
  for name, value in expected.items():
    assert metrics[name] == pytest.approx(float(value), rel=1e-5), name


def test_means_are_divided_once():
  parts = [
    {"x": (np.float32(1), np.float32(1)), "y": (0.0, 0.0)},
    {"x": (np.float32(8), np.float32(4)), "y": (0.0, 0.0)},
  ]
  assert mean_totals(parts) == {"x": 9 / 5}
  assert mean_totals([]) == {}


def test_evaluation_is_the_same_each_time(task, params, rollout):
  one, again = (evaluate(params, task, rollout, seed=5) for _ in range(2))
  np.testing.assert_array_equal(one.accuracy, again.accuracy)
  other = evaluate(params, task, rollout, seed=6)
  assert (other.sampled.rollouts.tokens != one.sampled.rollouts.tokens).any()


def test_evaluation_figures(task, params, rollout):
  evaluation = evaluate(params, task, rollout, seed=5)
  right = evaluation.sampled.rollouts.accuracy
  assert right.shape == (6, 3)
  metrics = evaluation_metrics(evaluation)
  assert metrics["eval/pass@1"] == pytest.approx(right.mean())
  low = max(mean_interval(right.mean(1)).low, 0)
  assert metrics["eval/pass@1_low"] == pytest.approx(low)
  assert set(evaluation.pass_at) == {1, 2}  # 4 is more than 3 samples
  assert metrics["eval/pass@1/first=0"] == pytest.approx(right[::2].mean())
  summary = evaluation_summary(evaluation)
  assert summary["by_difficulty"]["first=1"]["questions"] == 3
  assert summary["pass@1"] == metrics["eval/pass@1"]


WARM = WarmStartOptions(
  max_steps=6,
  rows=2,
  row_tokens=40,
  learning_rate=1e-2,
  stop_at_pass_at_1=1.0,
  probe_every_steps=3,
)


def _warm_start(task, model, params, directory, *, options=WARM, **changed):
  settings = dict(
    probe=lambda params: 0.0,
    completion_width=10,
    seed=0,
    directory=directory,
    stop_requested=lambda: False,
  )
  return warm_start(params, task, model, options, **(settings | changed))


def test_a_warm_start_is_trained_once_and_resumed(
  task, model, params, tmp_path: Path, assert_trees_close
):
  whole = _warm_start(task, model, params, tmp_path / "whole")
  assert not np.array_equal(whole["embedding"], params["embedding"])

  asked = iter([False, False, True])
  stopped = _warm_start(
    task, model, params, tmp_path / "parts", stop_requested=lambda: next(asked)
  )
  assert stopped is None
  parts = _warm_start(task, model, params, tmp_path / "parts")
  assert_trees_close(parts, whole, 0, 0)

  def never(params):
    raise AssertionError("trained again")

  again = _warm_start(task, model, params, tmp_path / "parts", probe=never)
  assert_trees_close(again, whole, 0, 0)


def test_a_warm_start_ends_once_it_is_good_enough(
  task, model, params, tmp_path
):
  probed = []

  def probe(params):
    probed.append(1)
    return 0.5

  options = dataclasses.replace(WARM, stop_at_pass_at_1=0.5)
  _warm_start(task, model, params, tmp_path / "w", probe=probe, options=options)
  assert len(probed) == 1


def test_traces_that_never_fit_are_an_error(task, model, params, tmp_path):
  with pytest.raises(ValueError, match="none of 512 traces fits"):
    _warm_start(task, model, params, tmp_path / "w", completion_width=2)


def test_a_ruined_warm_start_is_not_kept(task, model, params, tmp_path):
  options = dataclasses.replace(WARM, learning_rate=1e38)
  with pytest.raises(UserError, match="no finite update"):
    _warm_start(task, model, params, tmp_path / "w", options=options)


def test_no_warm_start(task, model, params, tmp_path):
  options = dataclasses.replace(WARM, max_steps=0)
  out = _warm_start(task, model, params, tmp_path / "w", options=options)
  assert out is params
