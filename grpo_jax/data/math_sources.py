"""Where sets of mathematical problems are published, and what their rows hold.

| set | splits: rows | final answers | publisher | licence |
|---|---|---|---|---|
| gsm8k | train 7,473, test 1,319 | integers | OpenAI (arXiv:2110.14168) | MIT |
| math500 | test 500 | LaTeX | OpenAI (arXiv:2305.20050) | MIT |
| math_train | train 12,000 | LaTeX | OpenAI (arXiv:2305.20050) | MIT |
| aime24 | test 30 | 0 to 999 | Hugging Face H4 | not told |
| aime25 | test 30 | 0 to 999 | math-ai | Apache-2.0 |
| amc | test 83 | integers | AI-MO | Apache-2.0 |
| dapo_math_17k | train 1,791,700 | integers | arXiv:2503.14476 | Apache-2.0 |

The licence is what the publisher declares for the file; the problems of AIME
and AMC are the competitions'. `math500` and `math_train` split MATH
(arXiv:2103.03874) anew: 500 of its 5,000 test problems are held out, the others
join its 7,500 to train on. `amc` are AMC 12 of 2022 and 2023, put as questions
for an integer; the 40 of 2023 are also known as amc23. `dapo_math_17k` repeats
some 17 thousand problems about a hundred times; others counted 17,398 prompts,
7 of them with two answers.

What is verified of a file: its SHA-256, and its number of rows. GSM8K's were
computed from the files; of `math500` and `math_train` they are what OpenAI's
repository records of its large files; of the others, what users of the same
revision published (that of `amc` in one place only). Nothing was fetched from
these addresses when this was written.
"""

from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.data.example import Example
from grpo_jax.data.math_files import MathSource, SourceFile


def _text(value: Any) -> str:
  if not isinstance(value, str) or not value.strip():
    raise ValueError(f"{value!r} should be a text that is not empty")
  return value.strip()


def _integer(value: Any) -> str:
  """'025' and 25.0 are 25."""
  number = float(value)
  if not number.is_integer():
    raise ValueError(f"the answer {value!r} should be an integer")
  return str(int(number))


def _gsm8k_example(row: Mapping[str, Any]) -> Example:
  """'... = 1,080 ... #### 1,080' is answered by 1080."""
  solution = _text(row["answer"])
  _, marked, answer = solution.rpartition("####")
  if not marked:
    raise ValueError("the solution states no final answer after ####")
  return Example(
    question=_text(row["question"]),
    answer=_text(answer).replace(",", ""),
    info={"solution": solution},
  )


def _with_answer(read_answer: Callable[[Any], str]):
  """For rows with a problem and an answer; the other fields become info."""

  def to_example(row: Mapping[str, Any]) -> Example:
    info = {
      name: value
      for name, value in row.items()
      if name not in ("problem", "answer")
    }
    return Example(_text(row["problem"]), read_answer(row["answer"]), info)

  return to_example


def _dapo_example(row: Mapping[str, Any]) -> Example:
  """Takes off the paragraphs that ask for a last line `Answer: ...`."""
  [message] = row["prompt"]
  question = _text(message["content"])
  first, _, rest = question.partition("\n\n")
  if "Answer:" in first:
    question = rest
  rest, _, last = question.rpartition("\n\n")
  if "Answer:" in last:
    question = rest
  return Example(
    question=_text(question),
    answer=_text(row["reward_model"]["ground_truth"]),
    info={"index": row["extra_info"]["index"]},
  )


_GSM8K = (
  "https://raw.githubusercontent.com/openai/grade-school-math"
  "/3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data"
)
_PRM800K = (
  "https://media.githubusercontent.com/media/openai/prm800k"
  "/7ecc794703b2877f63226f2477a49b34f9b25163/prm800k/math_splits"
)
_HUB = "https://huggingface.co/datasets"

SOURCES = {
  "gsm8k": MathSource(
    homepage="https://github.com/openai/grade-school-math",
    files={
      "train": SourceFile(
        f"{_GSM8K}/train.jsonl",
        "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        7_473,
      ),
      "test": SourceFile(
        f"{_GSM8K}/test.jsonl",
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        1_319,
      ),
    },
    to_example=_gsm8k_example,
  ),
  "math500": MathSource(
    homepage="https://github.com/openai/prm800k",
    files={
      "test": SourceFile(
        f"{_PRM800K}/test.jsonl",
        "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        500,
      )
    },
    to_example=_with_answer(_text),
  ),
  "math_train": MathSource(
    homepage="https://github.com/openai/prm800k",
    files={
      "train": SourceFile(
        f"{_PRM800K}/train.jsonl",
        "90d96daeac3fe343ebb1e22ce93dd99690f75983e957f88de42f87cffe1e8076",
        12_000,
      )
    },
    to_example=_with_answer(_text),
  ),
  "aime24": MathSource(
    homepage=f"{_HUB}/HuggingFaceH4/aime_2024",
    files={
      "test": SourceFile(
        f"{_HUB}/HuggingFaceH4/aime_2024/resolve"
        "/2fe88a2f1091d5048c0f36abc874fb997b3dd99a"
        "/data/train-00000-of-00001.parquet",
        "26139847601a5037c237d5928b195e7260ca8074cf4f264b794af42847f79ccf",
        30,
      )
    },
    to_example=_with_answer(_integer),
  ),
  "aime25": MathSource(
    homepage=f"{_HUB}/math-ai/aime25",
    files={
      "test": SourceFile(
        f"{_HUB}/math-ai/aime25/resolve"
        "/563bb8404243c5f09de6ec262f2db674fe5bce9b/test.jsonl",
        "b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331",
        30,
      )
    },
    to_example=_with_answer(_integer),
  ),
  "amc": MathSource(
    homepage=f"{_HUB}/AI-MO/aimo-validation-amc",
    files={
      "test": SourceFile(
        f"{_HUB}/AI-MO/aimo-validation-amc/resolve"
        "/69d78a4a2c840e82d69af6bc742bda09005f6316"
        "/data/train-00000-of-00001.parquet",
        "4de056fd006062cee46e3900727dd5d00094b8592ed0bfd6b5dfae2267f72dd7",
        83,
      )
    },
    to_example=_with_answer(_integer),
  ),
  "dapo_math_17k": MathSource(
    homepage=f"{_HUB}/BytedTsinghua-SIA/DAPO-Math-17k",
    files={
      "train": SourceFile(
        f"{_HUB}/BytedTsinghua-SIA/DAPO-Math-17k/resolve"
        "/65877096c24ffa7abc4e4fa5edb95cf3413a5674/data/dapo-math-17k.parquet",
        "534375d6bb8630d22ab46a56e11f2ffec1d288d8f7d04099bc82d68948705941",
        1_791_700,
      )
    },
    to_example=_dapo_example,
  ),
}


def source_of(name: str) -> MathSource:
  """The set of that name; ValueError if there is none."""
  if name not in SOURCES:
    raise ValueError(f"There is no set {name!r}; known are {sorted(SOURCES)}.")
  return SOURCES[name]
