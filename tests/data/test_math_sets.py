"""Published sets are read as their publishers write them, or refused."""

import functools
import http.server
import json
import os
import re
import threading
from pathlib import Path

import pytest

from grpo_jax.data import math_sources
from grpo_jax.data.example import Example
from grpo_jax.data.math_sets import load_math, load_math_split
from grpo_jax.data.math_sources import SOURCES
from grpo_jax.data.prompts import check_disjoint
from tests.published import Publisher, encoded, gsm8k_row


def _dapo(question, answer, index="a"):
  prompt = (
    f"Solve this. End with the line Answer: $Answer.\n\n{question}\n\n"
    'Put it on its own line after "Answer:".'
  )
  return {
    "data_source": "math_dapo",
    "prompt": [{"role": "user", "content": prompt}],
    "reward_model": {"ground_truth": answer, "style": "rule"},
    "extra_info": {"index": index},
  }


_MATH = {
  "solution": r"It is $\boxed{\frac12}$.",
  "subject": "Algebra",
  "level": 2,
  "unique_id": "test/algebra/1.json",
}

# What each publisher's format holds, and the example that it becomes.
ROWS = {
  ("gsm8k", "train"): (
    gsm8k_row("Ann has 1,200 jars and buys 3. How many? ", "1,203"),
    Example(
      "Ann has 1,200 jars and buys 3. How many?",
      "1203",
      {"solution": "Count #### them.\n#### 1,203"},
    ),
  ),
  ("gsm8k", "test"): (
    gsm8k_row("Bo has 2 coins and owes 5. What is left?", "-3"),
    Example(
      "Bo has 2 coins and owes 5. What is left?",
      "-3",
      {"solution": "Count #### them.\n#### -3"},
    ),
  ),
  ("math500", "test"): (
    {"problem": "Halve $1$.", "answer": r"\frac12", **_MATH},
    Example("Halve $1$.", r"\frac12", _MATH),
  ),
  ("math_train", "train"): (
    {"problem": "Halve $2$.", "answer": "1", **_MATH},
    Example("Halve $2$.", "1", _MATH),
  ),
  ("aime24", "test"): (
    {"id": 60, "problem": "Find $5^2$.", "answer": "025", "url": "u"},
    Example("Find $5^2$.", "25", {"id": 60, "url": "u"}),
  ),
  ("aime25", "test"): (
    {"problem": "Find $6^2$.", "answer": "36", "id": "0"},
    Example("Find $6^2$.", "36", {"id": "0"}),
  ),
  ("amc", "test"): (
    {"id": 0, "problem": "Find $12^2$.", "answer": 144.0, "url": "u"},
    Example("Find $12^2$.", "144", {"id": 0, "url": "u"}),
  ),
  ("dapo_math_17k", "train"): (
    _dapo("Find $m$.\n\nGive $m + 1$.", "-40"),
    Example("Find $m$.\n\nGive $m + 1$.", "-40", {"index": "a"}),
  ),
}


@pytest.fixture
def publisher(tmp_path, monkeypatch):
  return Publisher(tmp_path, monkeypatch)


@pytest.fixture
def served(publisher):
  """The address of the publisher's folder on this machine."""
  publisher.manual_dir.mkdir()
  handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {})
  handler.log_message = lambda *_: None
  server = http.server.ThreadingHTTPServer(
    ("127.0.0.1", 0),
    functools.partial(handler, directory=str(publisher.manual_dir)),
  )
  serve = functools.partial(server.serve_forever, poll_interval=0.01)
  threading.Thread(target=serve, daemon=True).start()
  yield f"http://127.0.0.1:{server.server_port}"
  server.shutdown()
  server.server_close()


@pytest.mark.parametrize("name", SOURCES)
def test_a_row_becomes_an_example(publisher, name):
  splits = [split for known, split in ROWS if known == name]
  assert splits == list(SOURCES[name].files)
  for split in splits:
    publisher.publish(name, split, [ROWS[name, split][0]])
  for split in splits:
    assert publisher.load(name, split) == [ROWS[name, split][1]]


def test_order_is_the_files(publisher):
  rows = [{"problem": f"{i}?", "answer": str(i)} for i in range(200)]
  publisher.publish("aime25", "test", rows)
  answers = [e.answer for e in publisher.load("aime25", "test")]
  assert answers == [str(i) for i in range(200)]


def test_repeats_are_merged_and_disputed_questions_left_out(publisher):
  rows = [_dapo("1?", "1"), _dapo("2?", "2"), _dapo("1?", "1", index="b")]
  rows += [_dapo("3?", "3"), _dapo("2?", "4"), _dapo("2?", "2")]
  publisher.publish("dapo_math_17k", "train", rows)
  examples = publisher.load("dapo_math_17k", "train")
  assert [(e.question, e.answer) for e in examples] == [
    ("1?", "1"),
    ("3?", "3"),
  ]


def test_a_prompt_without_instructions_is_kept_whole(publisher):
  row = _dapo("?", "1")
  row["prompt"][0]["content"] = "Let $m = 1$.\n\nFind $m$."
  publisher.publish("dapo_math_17k", "train", [row])
  [example] = publisher.load("dapo_math_17k", "train")
  assert example.question == "Let $m = 1$.\n\nFind $m$."


def test_files_are_downloaded_once(publisher, served):
  row, example = ROWS["aime25", "test"]
  publisher.publish("aime25", "test", [row], f"{served}/aime25/test.jsonl")
  assert publisher.load("aime25", "test", manual_dir=None) == [example]
  publisher.path("aime25", "test").unlink()
  assert publisher.load("aime25", "test", manual_dir=None) == [example]


def test_another_file_at_the_address_is_refused_and_not_kept(publisher, served):
  row, example = ROWS["aime25", "test"]
  publisher.publish("aime25", "test", [row], f"{served}/aime25/test.jsonl")
  path = publisher.path("aime25", "test")
  content = path.read_bytes()
  path.write_text("<html>Sign in</html>")
  for verify_checksums in (True, False):  # of manual files only
    with pytest.raises(ValueError, match="is not the file that http"):
      publisher.load(
        "aime25",
        "test",
        manual_dir=None,
        verify_checksums=verify_checksums,
      )
  path.write_bytes(content)
  assert publisher.load("aime25", "test", manual_dir=None) == [example]


def test_a_failed_download_tells_the_address(publisher, served):
  row = ROWS["aime25", "test"][0]
  publisher.publish("aime25", "test", [row], f"{served}/none.jsonl")
  with pytest.raises(ValueError, match=r"none.jsonl could not be .*404"):
    publisher.load("aime25", "test", manual_dir=None)
  publisher.publish("aime25", "test", [row], "http://127.0.0.1:9/test.jsonl")
  with pytest.raises(ValueError, match="manual_dir"):
    publisher.load("aime25", "test", manual_dir=None)


def test_a_missing_manual_file_is_told_with_its_address(publisher):
  publisher.publish("gsm8k", "train", [ROWS["gsm8k", "train"][0]])
  expected = r"no file .*gsm8k/test\.jsonl\. Put https://.*data/test\.jsonl"
  with pytest.raises(ValueError, match=expected):
    publisher.load("gsm8k", "train")
  with pytest.raises(ValueError, match=r"no file .*nowhere/gsm8k/train\.jsonl"):
    publisher.load("gsm8k", "train", manual_dir="nowhere")


def test_a_rewritten_file_needs_leave_and_is_never_stale(publisher):
  publisher.publish("aime25", "test", [ROWS["aime25", "test"][0]])
  path = publisher.path("aime25", "test")
  for answer in ("7", "8"):
    path.write_text(json.dumps({"problem": "Find $x$.", "answer": answer}))
    with pytest.raises(ValueError, match="SHA-256"):
      publisher.load("aime25", "test")
    [example] = publisher.load("aime25", "test", verify_checksums=False)
    assert example.answer == answer


@pytest.mark.parametrize("rows", [1, 3])
def test_a_wrong_number_of_rows_is_refused(publisher, rows):
  some = [{"problem": f"{i}?", "answer": "1"} for i in range(3)]
  publisher.publish("aime25", "test", some[:2])
  path = publisher.path("aime25", "test")
  path.write_bytes(encoded(some[:rows], ".jsonl"))
  with pytest.raises(ValueError, match=f"has {rows} rows and should have 2"):
    publisher.load("aime25", "test", verify_checksums=False)


@pytest.mark.parametrize(
  "name, split, damaged, told",
  [
    ("gsm8k", "train", b'{"question": "1?", "ans', "JSONDecodeError"),
    ("gsm8k", "train", b'{"question": "\xff"}', "UnicodeDecodeError"),
    ("gsm8k", "train", b'{"question": "1?"}', "KeyError: 'answer'"),
    ("gsm8k", "train", b'["1?", "1"]', "TypeError"),
    ("gsm8k", "train", b'{"question": "1?", "answer": "1"}', "####"),
    ("gsm8k", "train", b'{"question": " ", "answer": "#### 1"}', "not empty"),
    ("math_train", "train", b'{"problem": "1?", "answer": ""}', "not empty"),
    ("aime25", "test", b'{"problem": "1?", "answer": "1.5"}', "an integer"),
    ("aime25", "test", b'{"problem": "1?", "answer": "A"}', "ValueError"),
  ],
)
def test_a_damaged_line_is_told_by_its_number(
  publisher, name, split, damaged, told
):
  row = ROWS[name, split][0]
  for known, other in ROWS:
    if known == name:
      publisher.publish(name, other, [row])
  publisher.publish(name, split, [row, row])
  path = publisher.path(name, split)
  path.write_bytes(encoded([row], ".jsonl") + damaged)
  with pytest.raises(ValueError, match="Row 2 of .*" + re.escape(told)):
    publisher.load(name, split, verify_checksums=False)


def test_a_damaged_parquet_file_is_told(publisher):
  publisher.publish("amc", "test", [ROWS["amc", "test"][0]])
  publisher.path("amc", "test").write_bytes(b"PAR1 is how it begins")
  with pytest.raises(ValueError, match=r"Row 1 of .*test\.parquet .*Arrow"):
    publisher.load("amc", "test", verify_checksums=False)


def test_unknown_sets_and_splits_are_told(publisher):
  with pytest.raises(ValueError, match="no set 'gsm9k'; known are"):
    publisher.load("gsm9k", "test")
  with pytest.raises(ValueError, match=r"no split 'train'.*'gsm8k'"):
    publisher.load("aime24", "train")


@pytest.fixture
def two_splits(publisher):
  """Train: 0 to 29; held out: 25 to 34."""
  rows = [gsm8k_row(f"{i}?", i) for i in range(35)]
  publisher.publish("gsm8k", "train", rows[:30])
  publisher.publish("gsm8k", "test", rows[25:])

  def load(**changed):
    settings = dict(train_size=None, test_size=None, seed=0)
    splits = publisher.load_math(
      train=["gsm8k"], test=["gsm8k"], **(settings | changed)
    )
    return tuple([int(e.answer) for e in split] for split in splits)

  return load


def test_nothing_held_out_is_trained_on(two_splits):
  assert two_splits() == (list(range(25)), list(range(25, 35)))
  # Nor what another size would hold out.
  assert two_splits(test_size=1)[0] == list(range(25))


def test_smaller_draws_are_parts_of_larger_ones(two_splits):
  drawn = {
    (size, seed): two_splits(train_size=size, test_size=4, seed=seed)
    for size in (8, 20)
    for seed in (0, 1)
  }
  for (size, _), (train, test) in drawn.items():
    assert train == sorted(set(train)) and len(train) == size
    assert test == sorted(set(test)) and len(test) == 4
  assert set(drawn[8, 0][0]) < set(drawn[20, 0][0])
  assert drawn[8, 0] != drawn[8, 1]
  assert two_splits(train_size=8, test_size=4) == drawn[8, 0]


def test_smaller_sets_are_taken_whole(two_splits):
  assert two_splits(train_size=26, test_size=11) == two_splits()


def test_sizes_are_positive(two_splits):
  for changed in ({"train_size": 0}, {"test_size": 0}, {"test_size": -1}):
    with pytest.raises(ValueError, match="at least 1"):
      two_splits(**changed)
  with pytest.raises(ValueError, match="seed"):
    two_splits(seed=-1)


def test_sets_are_kept_apart_from_one_another(publisher):
  """By question, whatever its case and white space."""
  publisher.publish(
    "gsm8k", "train", [gsm8k_row(f"g {i}?", i) for i in range(4)]
  )
  publisher.publish("gsm8k", "test", [gsm8k_row("G  1?", 1)])
  publisher.publish(
    "math_train",
    "train",
    [{"problem": f"{p}?", "answer": "1"} for p in ("m0", "G 2", "M1", "a 25")],
  )
  publisher.publish("aime25", "test", [{"problem": "A\t25?", "answer": 5}])
  publisher.publish("math500", "test", [{"problem": "m1?", "answer": "1"}])
  train, test = publisher.load_math(
    train=["gsm8k", "math_train"],
    test=["gsm8k", "aime25", "math500"],
    train_size=None,
    test_size=None,
    seed=0,
  )
  assert [(e.info["set"], e.question) for e in train] == [
    ("gsm8k", "g 0?"),
    ("gsm8k", "g 2?"),
    ("gsm8k", "g 3?"),
    ("math_train", "m0?"),  # G 2? is gsm8k's, M1? and a 25? are held out
  ]
  assert [e.info["set"] for e in test] == ["gsm8k", "aime25", "math500"]
  check_disjoint(train, test)
  train, test = publisher.load_math(
    train=["gsm8k", "math_train"],
    test=["gsm8k"],
    train_size=2,
    test_size=1,
    seed=0,
  )
  names = [e.info["set"] for e in train]
  assert names == ["gsm8k", "gsm8k", "math_train", "math_train"]


def test_the_table_of_the_docstring_is_the_sources():
  told = {}
  for line in math_sources.__doc__.splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if cells[0] in SOURCES:
      told[cells[0]] = cells[1]
  assert told == {
    name: ", ".join(f"{s} {f.rows:,}" for s, f in source.files.items())
    for name, source in SOURCES.items()
  }


@pytest.mark.parametrize("name", SOURCES)
def test_addresses_name_a_revision(name):
  for file in SOURCES[name].files.values():
    assert re.search(r"/[0-9a-f]{40}/", file.url)
    assert re.fullmatch("[0-9a-f]{64}", file.sha256)
    assert file.suffix in (".jsonl", ".parquet")


@pytest.fixture(scope="module")
def originals():
  """A manual_dir with files of publishers; the test skips without."""
  beside = Path(__file__).parents[3] / "shared" / "data"
  folder = Path(os.environ.get("GRPO_JAX_MATH_DATA", beside)).expanduser()
  if not folder.is_dir():
    pytest.skip(
      f"there is no folder {folder}; GRPO_JAX_MATH_DATA names another"
    )
  return folder


def test_gsm8k_as_published(originals, tmp_path):
  if not (originals / "gsm8k").is_dir():
    pytest.skip(f"{originals} has no gsm8k")
  train, test = load_math(
    train=["gsm8k"],
    test=["gsm8k"],
    train_size=None,
    test_size=None,
    seed=0,
    data_dir=str(tmp_path),
    manual_dir=originals,
  )
  assert (len(train), len(test)) == (7_473, 1_319)
  check_disjoint(train, test)
  assert all(re.fullmatch(r"-?\d+", e.answer) for e in train + test)
  stated = [e.info["solution"].split("#### ")[1] for e in train + test]
  assert [e.answer for e in train + test] == [
    s.replace(",", "") for s in stated
  ]
  assert test[0].answer == "18"
  assert train[0].question.startswith("Natalia sold clips to 48")


def test_math500_as_copied(originals, tmp_path):
  if not (originals / "math500").is_dir():
    pytest.skip(f"{originals} has no math500")
  test = load_math_split(
    "math500",
    "test",
    data_dir=str(tmp_path),
    manual_dir=originals,
    verify_checksums=False,  # it may lack the solutions
  )
  assert len({example.question for example in test}) == 500
  assert test[0].answer == r"\left( 3, \frac{\pi}{2} \right)"
