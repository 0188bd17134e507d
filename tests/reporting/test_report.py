"""The report: from whole, partial and no data, and safe with any text."""

import base64
import html.parser
import json
import re
import subprocess
import sys

import pytest

from grpo_jax.reporting.report import write_report
from grpo_jax.reporting.samples_view import pair_samples
from grpo_jax.reporting.sinks import MetricsLog, SamplesLog

PLOTS = {
  "pass_at_k",
  "reward",
  "difficulty",
  "length",
  "truncated",
  "groups",
  "entropy",
  "clip",
  "gradient",
  "mismatch",
  "throughput",
  "time",
}


class Page(html.parser.HTMLParser):
  """Collects a page's text, and fails on tags that do not match."""

  def __init__(self, source: str):
    super().__init__()
    self.open, self.tags, self.text, self.links = [], [], [], []
    self.feed(source)
    self.close()
    assert not self.open

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    self.links += [v for k, v in attrs if k in ("src", "href")]
    if tag not in ("meta", "img"):
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    if self.open and self.open[-1] != "style":
      self.text.append(data)


def report_of(workdir) -> tuple[Page, set[str]]:
  """The parsed page, and the names of the plots beside it."""
  path = write_report(workdir)
  assert path == workdir / "report" / "index.html"
  names = {png.stem for png in path.parent.glob("*.png")}
  page = Page(path.read_text(encoding="utf-8"))
  assert page.tags.count("img") == len(names)
  return page, names


def write_rows(workdir, rows) -> None:
  with MetricsLog(workdir, resume_step=None) as log:
    for row in rows:
      log.write(row["step"], row)


def test_a_finished_run(finished_run):
  page, names = report_of(finished_run)
  assert names == PLOTS
  text = "\n".join(page.text)
  for shown in (
    "dapo · run",
    "40 steps · seed 0 · cpu (2 cores)",
    "0.330 → 0.653",
    "95 %: 0.29\u20130.37 → 0.61\u20130.69",
    "95 %: +0.27 to +0.37, paired",
    "44.0 → 38.3",
    "2 min 19 s",
    "train 46 s, warm start 41 s, sample 38 s",
    "terms=4 (64)",
    '"max_length_tokens": 64',
    "jax 0.9",
  ):
    assert shown in text
  assert "no final results" not in text


def test_the_page_stands_alone(finished_run):
  page, names = report_of(finished_run)
  directory = finished_run / "report"
  pngs = {(directory / f"{name}.png").read_bytes() for name in names}
  kind = "data:image/png;base64,"
  assert all(link.startswith(kind) for link in page.links)
  embedded = {base64.b64decode(link.removeprefix(kind)) for link in page.links}
  assert embedded == pngs
  source = (directory / "index.html").read_text()
  assert not re.search(r"https?:|url\(|@import|<script|<link", source)


def test_completions_of_the_same_prompts_stand_side_by_side(finished_run):
  page, _ = report_of(finished_run)
  assert page.text.count("What is 17 + 25 + 8?") == 1
  text = "\n".join(page.text)
  shown = text[text.index("What is 17 + 25 + 8?") :]
  assert shown.index("step 1") < shown.index("17+25+8 is about")
  assert shown.index("17+25+8 is about") < shown.index("step 40")
  assert shown.index("step 40") < shown.index("17+25=42\n42+8=50")


def test_an_interrupted_run_says_so(finished_run):
  (finished_run / "results.json").unlink()
  path = finished_run / "metrics.jsonl"
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b"".join(lines[:35]) + lines[35][:20])
  page, names = report_of(finished_run)
  text = "\n".join(page.text)
  assert "no final results. What is shown ends at step 34" in text
  assert "0.330 → 0.634" in text  # evaluations at steps 0 and 30
  assert "training steps" in text
  assert names == PLOTS


def test_a_run_of_one_step(make_run):
  page, names = report_of(make_run(steps=1))
  assert names == PLOTS - {"groups", "time"}  # an area needs two steps
  assert "0.330 → 0.653" in page.text


def test_an_empty_directory(tmp_path):
  page, names = report_of(tmp_path)
  assert names == set()
  assert "There are no metrics" in "\n".join(page.text)


def test_missing_and_broken_values_are_left_out(tmp_path):
  write_rows(
    tmp_path,
    [
      {"step": 0},
      {"step": 1, "reward": float("nan"), "eval/pass@1_low": 0.2},
      {"step": 2, "groups/all_right": 0.5, "time/sample_s": 1.0},
      {"step": 3, "clip_ratio/low_mean": 0.0},
      {"step": 4, "sampling/sampling_logp_difference/mean": 0.0},
    ],
  )
  broken = {"before": {"pass@1": "?"}, "seconds": 3, "versions": [], "seed": 1}
  (tmp_path / "results.json").write_text(json.dumps(broken))
  (tmp_path / "config.json").write_text("{")
  (tmp_path / "samples.jsonl.gz").write_bytes(b"not gzip")
  page, names = report_of(tmp_path)
  assert names == {"clip"}
  assert "Configuration" not in page.text


@pytest.mark.parametrize("missing", ["prompt", "completion", "rewards"])
def test_completions_without_a_key(tmp_path, missing):
  row = {"prompt": "p", "completion": "c", "rewards": {"r": None}}
  del row[missing]
  with SamplesLog(tmp_path, resume_step=None) as log:
    log.write(1, [row])
    log.write(2, [row])
  page, _ = report_of(tmp_path)
  assert page.text.count("step 1") == page.text.count("step 2") == 1


def test_text_of_the_model_and_the_user_is_escaped(tmp_path):
  evil = "<think>&amp;</think><script>alert('x')</script>\"$\\frac$\ud83d"
  row = {"prompt": evil, "completion": evil, "rewards": {evil: 1.0}}
  with SamplesLog(tmp_path, resume_step=None) as log:
    log.write(1, [row | {"stop_reason": evil}])
    log.write(2, [row | {"prompt": "another " + evil}])
  results = {"recipe": evil, "device": evil, "versions": {evil: evil}}
  results["after"] = {"by_difficulty": {evil: {"pass@1": 0.5}}}
  (tmp_path / "results.json").write_text(json.dumps(results))
  (tmp_path / "config.json").write_text(json.dumps({evil: evil}))
  page, _ = report_of(tmp_path)
  assert not {"think", "script"} & set(page.tags)
  assert evil.replace("\ud83d", "?") in page.text


def test_a_long_completion_is_cut(tmp_path):
  with SamplesLog(tmp_path, resume_step=None) as log:
    for step in (1, 2):
      log.write(step, [{"prompt": "p", "completion": "x" * 5000}])
  page, _ = report_of(tmp_path)
  assert page.text.count("x" * 4000 + " ... 1000 more") == 2


def test_pairs_are_of_the_same_prompt_and_not_picked():
  first = [{"prompt": p, "n": n} for n, p in enumerate(["a", "b", "b", "c"])]
  last = [{"prompt": p, "n": n} for n, p in enumerate(["c", "b", "b", "d"])]
  pairs = pair_samples(first, last, count=2)
  assert [(a["n"], b["n"]) for a, b in pairs] == [(1, 1), (3, 0)]


def test_pairs_without_a_shared_prompt_are_alike_in_length():
  first = [{"prompt": p} for p in ("aa", "aaaaa", "aaa")]
  last = [{"prompt": p} for p in ("bbbbbb", "b")]
  pairs = pair_samples(first, last, count=3)
  assert [(len(a["prompt"]), len(b["prompt"])) for a, b in pairs] == [
    (2, 1),
    (5, 6),
  ]


def test_a_long_run_is_smoothed_over_a_25th_of_its_steps(tmp_path):
  from matplotlib.figure import Figure

  from grpo_jax.reporting import charts

  rows = [{"step": i, "x": float(i % 2)} for i in range(125)]
  axes = Figure().subplots()
  assert charts.lines(axes, rows, unit="u", keys={"x": ("x", "red")})
  raw, mean = axes.get_lines()
  assert raw.get_ydata().tolist() == [row["x"] for row in rows]
  assert mean.get_ydata()[:2].tolist() == [1 / 3, 0.5]
  assert set(mean.get_ydata()[2:-2].round(6)) == {0.4, 0.6}


def test_importing_the_package_loads_no_drawing_library(finished_run):
  code = f"""
import sys
from grpo_jax.reporting import progress, report, sinks, tables
heavy = {{"matplotlib", "rich", "tensorboardX", "jax"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
report.write_report({str(finished_run)!r})
assert "matplotlib.pyplot" not in sys.modules
import matplotlib
assert matplotlib.rcParams["font.size"] == 10.0  # the default, put back
"""
  subprocess.run([sys.executable, "-c", code], check=True)
