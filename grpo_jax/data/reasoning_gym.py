"""Problems of the reasoning-gym library as a TFDS builder.

Source: the PyPI package `reasoning-gym` (Apache-2.0), which generates problems
of over a hundred tasks and scores answers to them. Nothing is downloaded.
Splits: `train` and `test`, of the sizes asked for, without a question in
common and without repeats within `test`; case and white space make no
difference.
"""

import functools
import json
from collections.abc import Iterator

import tensorflow_datasets as tfds

from grpo_jax.data.example import Example
from grpo_jax.data.prepared import builder_arguments, prepare
from grpo_jax.data.prompts import question_key

# A task that cannot give this many candidates per test question unseen
# questions is too small for the split asked for.
_MAX_TRIES_PER_EXAMPLE = 50


# Tasks whose scorer in the library runs the model's text through `eval`, or
# through SymPy's `parse_expr`, which does.
EVALUATES_ANSWERS = frozenset(
  (
    "binary_matrix",
    "countdown",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
  )
)


class ReasoningGym(tfds.core.GeneratorBasedBuilder):
  """`train` and `test` problems of one reasoning-gym task."""

  VERSION = tfds.core.Version("1.1.0")

  def __init__(
    self,
    *,
    task: str,
    task_args: dict,
    train_size: int,
    test_size: int,
    seed: int,
    data_dir: str,
  ):
    """Describes the problems; `download_and_prepare` generates them.

    Args:
      task: its name in reasoning-gym, such as "chain_sum".
      task_args: parameters of that task.
      train_size: problems in `train`; they may repeat one another.
      test_size: problems in `test`; all different.
      seed: of the generator.
      data_dir: folder that TFDS keeps prepared data in.
    """
    self._task, self._task_args, self._seed = task, task_args, seed
    self._sizes = {"train": train_size, "test": test_size}
    settings = json.dumps([task_args, self._sizes, seed], sort_keys=True)
    super().__init__(
      **builder_arguments(self, name=task, settings=settings, data_dir=data_dir)
    )

  def _info(self):
    text = tfds.features.Text()
    return tfds.core.DatasetInfo(
      builder=self,
      description=f"{self._task} {self._task_args}",
      features=tfds.features.FeaturesDict(
        {"question": text, "answer": text, "entry": text}
      ),
      homepage="https://github.com/open-thought/reasoning-gym",
    )

  def _split_generators(self, dl_manager):
    del dl_manager
    test, held_out = [], set()
    entries = self._entries(self._seed)
    for _ in range(_MAX_TRIES_PER_EXAMPLE * self._sizes["test"]):
      if len(test) == self._sizes["test"]:
        break
      entry = next(entries)
      question = question_key(entry["question"])
      if question not in held_out:
        held_out.add(question)
        test.append(entry)
    else:
      raise ValueError(
        f"{self._task} with {self._task_args} has fewer than"
        f" {self._sizes['test']} different questions: ask for a smaller test"
        " split or for larger task parameters."
      )
    return {"train": self._train(held_out), "test": self._keyed(test)}

  def _generate_examples(self):
    raise NotImplementedError("both splits come from _split_generators")

  def _train(self, held_out):
    unseen = (
      entry
      for entry in self._entries(self._seed + 2**31)
      if question_key(entry["question"]) not in held_out
    )
    return self._keyed(next(unseen) for _ in range(self._sizes["train"]))

  def _entries(self, seed) -> Iterator[dict]:
    import reasoning_gym  # takes 2 s, and not needed once data is prepared

    try:
      dataset = reasoning_gym.create_dataset(
        self._task, seed=seed, size=2**31 - 1, **self._task_args
      )
    except (AssertionError, TypeError, ValueError) as error:
      raise ValueError(
        f"reasoning-gym refuses {self._task} with {self._task_args}: {error}"
      ) from error
    index = 0
    while True:
      yield dataset[index]
      index += 1

  def _keyed(self, entries):
    for index, entry in enumerate(entries):
      yield (
        index,
        {
          "question": entry["question"],
          "answer": str(entry["answer"]),
          "entry": json.dumps(entry),
        },
      )


def _refuse_evaluation(task: str) -> None:
  if task in EVALUATES_ANSWERS:
    raise ValueError(
      f"reasoning-gym scores {task} by evaluating the model's text as Python,"
      " which may do anything that you may. Write a task with a scorer of its"
      " own for such problems, and name it by --config.task.name."
    )


def load_reasoning_gym(
  *,
  task: str,
  task_args: dict,
  train_size: int,
  test_size: int,
  seed: int,
  data_dir: str,
) -> tuple[list[Example], list[Example]]:
  """Train and test examples, generated at the first call and then read.

  Args:
    task: its name in reasoning-gym.
    task_args: its parameters.
    train_size: problems in train.
    test_size: problems in test, none of which is in train.
    seed: of the generator.
    data_dir: folder that TFDS keeps prepared data in.

  Returns:
    (train, test).

  Raises:
    ValueError: there is no such task, its parameters are out of range, it has
      too few different questions, or it is one of EVALUATES_ANSWERS.
  """
  _refuse_evaluation(task)
  builder = ReasoningGym(
    task=task,
    task_args=task_args,
    train_size=train_size,
    test_size=test_size,
    seed=seed,
    data_dir=data_dir,
  )
  prepare(builder)
  return tuple(
    [_example(row) for row in builder.as_data_source(split=split)]
    for split in ("train", "test")
  )


def _example(row) -> Example:
  return Example(
    question=row["question"].decode(),
    answer=row["answer"].decode(),
    info=json.loads(row["entry"]),
  )


@functools.cache
def _scorer(task: str):
  _refuse_evaluation(task)
  import reasoning_gym

  return reasoning_gym.get_score_answer_fn(task)


def score_answer(example: Example, answer: str) -> float:
  """The library's own score of an answer, between 0 and 1.

  Args:
    example: from `load_reasoning_gym`.
    answer: the model's, without its reasoning.

  Returns:
    1 for a right answer; some tasks give part of it for a near one.

  Raises:
    ValueError: the task is one of EVALUATES_ANSWERS.
  """
  task = example.info["metadata"]["source_dataset"]
  return float(_scorer(task)(answer, example.info))
