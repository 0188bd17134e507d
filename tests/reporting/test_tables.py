"""The results as text, and what counts as a result."""

import json

import pytest

from grpo_jax.reporting.results import (
  difficulties,
  load_results,
  number,
  sampling_note,
  set_rows,
)
from grpo_jax.reporting.tables import results_table

RESULTS = {
  "before": {
    "pass@1": 0.33,
    "pass@1_low": 0.29,
    "pass@1_high": 0.371,
    "pass@8": 0.6,
    "mean_length": 44.04,
    "by_difficulty": {
      "terms=10": {"pass@1": 0.1, "questions": 64},
      "terms=2": {"pass@1": 0.5, "questions": 32},
    },
  },
  "after": {
    "pass@1": 0.66,
    "pass@8": 0.55,
    "mean_length": 40.0,
    "by_difficulty": {"terms=2": {"pass@1": 0.75}},
  },
  "difference": {"pass@1": 0.331, "low": 0.28, "high": 0.38},
}


def test_table():
  assert results_table(RESULTS).splitlines() == [
    "                 before              after  difference",
    "pass@1           0.330 [0.29, 0.37]  0.660  +0.331 [+0.28, +0.38]",
    "pass@8           0.600               0.550  -0.050",
    "mean tokens      44.0                40.0   -4.0",
    "pass@1 per difficulty (questions)",
    "  terms=2 (32)   0.500               0.750  +0.250",
    "  terms=10 (64)  0.100",
  ]


def _figures(right):
  return {
    "questions": 30,
    "samples": 32,
    "pass@1": right,
    "pass@1_low": right - 0.1,
    "pass@1_high": right + 0.1,
    "pass@4": 0.5,
    "pass@32": 0.7,
    "maj@1": right,
    "maj@32": 0.45,
    "truncated_fraction": 0.25,
  }


def test_evaluation_sets_have_rows_of_their_own():
  sides = {
    side: {"pass@1": 0.3, "maj@4": 0.4, "sets": {"aime24": _figures(right)}}
    for side, right in (("before", 0.2), ("after", 0.4))
  }
  gains = {"aime24": {"pass@1": 0.2, "low": 0.1, "high": 0.3}}
  results = sides | {"difference": {"sets": gains}}
  assert "evaluation set" not in results_table(results)  # it tells nothing new
  results["after"]["sets"]["math500"] = {"pass@1": 0.5}
  assert [tuple(row) for row in set_rows(results)] == [
    (
      "aime24 (30) avg@32",
      "0.200 [0.10, 0.30]",
      "0.400 [0.30, 0.50]",
      "+0.200 [+0.10, +0.30]",
    ),
    ("aime24 (30) pass@32", "0.700", "0.700", "+0.000"),
    ("aime24 (30) maj@32", "0.450", "0.450", "+0.000"),
    ("aime24 (30) truncated", "0.250", "0.250", "+0.000"),
    ("math500 pass@1", "", "0.500", ""),
  ]
  lines = results_table(results).splitlines()
  assert lines[3] == "evaluation set (questions)" and len(lines) == 9
  assert lines[2].split() == ["maj@4", "0.400", "0.400", "+0.000"]


@pytest.mark.parametrize(
  "results", [{}, {"before": None}, {"before": {"pass@1": "high"}}]
)
def test_no_results_make_no_table(results):
  assert results_table(results) == ""


def test_an_interrupted_run_compares_its_first_and_last_evaluation(tmp_path):
  rows = [
    {"step": 0, "eval/pass@1": 0.3, "eval/pass@1/terms=2": 0.5},
    {"step": 1, "reward": 0.4},
    {"step": 2, "eval/pass@1": 0.4, "eval/mean_length": 9.0},
    {"step": 3, "reward": 0.5},
  ]
  rows[2] |= {"eval_aime24/maj@2": 0.25, "eval_aime24/samples": 2}
  results = load_results(tmp_path, rows)
  assert results["steps"] == 3
  assert results["after"].pop("sets") == {
    "aime24": {"maj@2": 0.25, "samples": 2}
  }
  assert results["before"] == {
    "pass@1": 0.3,
    "by_difficulty": {"terms=2": {"pass@1": 0.5}},
  }
  assert results["after"]["mean_length"] == 9.0
  final = {"after": {"pass@1": 0.9}, "steps": 4}
  (tmp_path / "results.json").write_text(json.dumps(final))
  results = load_results(tmp_path, rows)
  assert (results["after"], results["steps"]) == ({"pass@1": 0.9}, 4)
  assert results["before"]["pass@1"] == 0.3


@pytest.mark.parametrize("text", ["", '{"before": ', "[1]", "\xff"])
def test_a_broken_results_file_counts_as_none(tmp_path, text):
  (tmp_path / "results.json").write_text(text, encoding="latin-1")
  assert load_results(tmp_path, []) == {}


def test_difficulties_are_in_numeric_order():
  sides = {"terms=10": {}, "hard": {}, "terms=2": {}, "3 terms": {}}
  found = difficulties({"after": {"by_difficulty": sides}})
  assert found == ["3 terms", "hard", "terms=2", "terms=10"]


def test_a_number_is_finite_or_none():
  values = {"a": {"b": 1}, "nan": float("nan"), "text": "1", "flag": True}
  assert number(values, "a", "b") == 1.0
  for keys in ("a", "ac", "abc"):
    assert number(values, *keys) is None
  for key in ("nan", "text", "flag", "missing"):
    assert number(values, key) is None


def test_how_completions_were_sampled_is_told():
  told = {"name": "r1", "samples": 64, "top_p": 0.95}
  note = "Sampling: name r1, samples 64, top p 0.95."
  assert sampling_note({"evaluation": told}) == note
  assert sampling_note({}) == sampling_note({"evaluation": 1}) == ""
