"""Tasks for models with a chat template: reasoning-gym, and mathematics.

A prompt is a conversation: a system message that asks for the answer's form,
solved problems as earlier turns, and the problem. Models that think do so
before the answer, by their own template.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_jax.data.example import Example
from grpo_jax.data.math_sets import load_math
from grpo_jax.data.pretrained_tokenizer import PretrainedTokenizer
from grpo_jax.data.prompts import check_disjoint
from grpo_jax.data.reasoning_gym import load_reasoning_gym, score_answer
from grpo_jax.rewards.equivalence import canonical
from grpo_jax.rewards.extraction import extract
from grpo_jax.rewards.functions import RewardFn
from grpo_jax.rewards.symbolic import symbolic_pool
from grpo_jax.rewards.thinking import thinking_prefix
from grpo_jax.rewards.verify import reference_verifier
from grpo_jax.training.rollouts import Task

SYSTEM = (
  "You solve short problems. Reply with one line: Answer: and the result."
)
MATHS = (
  "Solve the problem step by step. End with a line: Answer: and the result."
)


def reasoning_gym(
  *,
  tokenizer: PretrainedTokenizer,
  data_dir: str,
  train_size: int,
  test_size: int,
  problems: Mapping[str, Mapping[str, Any]],
  shots: int = 2,
  system: str = SYSTEM,
  enable_thinking: bool | None = None,
) -> Task:
  """Problems of several of the library's tasks, as many of each.

  Args:
    tokenizer: with a chat template.
    data_dir: folder for prepared data.
    train_size: problems to train on.
    test_size: held-out problems, none of which is among the former.
    problems: parameters of each task, by its name in reasoning-gym.
    shots: solved problems of the same task before each; they are not trained
      on.
    system: the system message.
    enable_thinking: Qwen3's switch; None leaves it to the template.

  Returns:
    The task; results are reported by name of the problems' task.

  Raises:
    ValueError: there is no such task, it has too few different problems, or
      fewer are asked for than there are tasks.
  """
  if min(train_size, test_size) < len(problems) or not problems:
    raise ValueError(
      f"{len(problems)} kinds of problems need at least as many of"
      " task.train_size and task.test_size, and there must be one."
    )
  train, test, solved = [], [], {}
  for place, (name, parameters) in enumerate(problems.items()):
    some, held_out = load_reasoning_gym(
      task=name,
      task_args=dict(parameters),
      train_size=shots + _share(train_size, place, len(problems)),
      test_size=_share(test_size, place, len(problems)),
      seed=0,
      data_dir=data_dir,
    )
    solved[name] = some[:shots]
    train += some[shots:]
    test += held_out
  check_disjoint([*train, *(e for s in solved.values() for e in s)], test)
  return _chat_task(
    train,
    test,
    tokenizer,
    solved=lambda example: solved[_kind(example)],
    system=system,
    enable_thinking=enable_thinking,
    score=score_answer,
    label=_kind,
  )


def mathematics(
  *,
  tokenizer: PretrainedTokenizer,
  data_dir: str,
  train_size: int,
  test_size: int,
  train: str | Mapping[str, float],
  test: str | Sequence[str],
  manual_dir: str | None = None,
  verify_checksums: bool = True,
  system: str = MATHS,
  enable_thinking: bool | None = None,
  verifier_workers: int = 4,
  verifier_limit_s: float = 5.0,
) -> Task:
  r"""Published problems, as `data.math_sources` lists them; none is solved.

  An answer is right if either tier of `rewards.verify` finds it equal to the
  reference.

  Args:
    tokenizer: with a chat template.
    data_dir: folder for prepared data.
    train_size: problems of each set to train on; a smaller set is taken whole.
    test_size: held-out problems of each set, likewise.
    train: the set to train on, or several with the weights that they are drawn
      with: {"math_train": 2, "gsm8k": 1}.
    test: the set that is held out, or several, which are reported apart.
    manual_dir: folder with the publishers' files, such as gsm8k/train.jsonl;
      None downloads them.
    verify_checksums: False also takes files of manual_dir that differ from the
      published ones.
    system: the system message. A completion answers in a line, or in
      \boxed{}.
    enable_thinking: Qwen3's switch; None leaves it to the template.
    verifier_workers: processes for what the exact tier does not decide; they
      are started when there is something.
    verifier_limit_s: wall-clock seconds for one such comparison.

  Returns:
    The task; results are reported by set, and by level where there are some.

  Raises:
    ValueError: there is no such set, files are missing or not the published
      ones, or several sets to train on have no weights.
    UserError: Math-Verify is not installed.
  """
  if not isinstance(train, str | Mapping):
    raise ValueError(
      f"train must be a set, or weights of sets like {{'gsm8k': 1}}, not"
      f" {train!r}."
    )
  pool = symbolic_pool(workers=verifier_workers, limit_s=verifier_limit_s)
  problems, held_out = load_math(
    train=[train] if isinstance(train, str) else list(train),
    test=[test] if isinstance(test, str) else test,
    train_size=train_size,
    test_size=test_size,
    seed=0,
    data_dir=data_dir,
    manual_dir=manual_dir,
    verify_checksums=verify_checksums,
  )
  task = _chat_task(
    problems,
    held_out,
    tokenizer,
    solved=lambda example: (),
    system=system,
    enable_thinking=enable_thinking,
    score=None,
    label=_level,
  )
  return task._replace(
    verify=reference_verifier(pool, prompt=task.prompt),
    close=pool.close,
    set_of=_set,
    mixture=None if isinstance(train, str) else dict(train),
  )


def _set(example: Example) -> str:
  return example.info["set"]


def _level(example: Example) -> str:
  level = example.info.get("level")
  return _set(example) if level is None else f"{_set(example)} level={level}"


def _kind(example: Example) -> str:
  return example.info["metadata"]["source_dataset"]


def _share(total: int, place: int, parts: int) -> int:
  """Sizes of parts that differ by one at most: 7 in 3 are 3, 2 and 2."""
  return total // parts + (place < total % parts)


def _chat_task(
  train: Sequence[Example],
  test: Sequence[Example],
  tokenizer: PretrainedTokenizer,
  *,
  solved: Callable[[Example], Sequence[Example]],
  system: str,
  enable_thinking: bool | None,
  score: Callable[[Example, str], float] | None,
  label: Callable[[Example], str],
) -> Task:
  def prompt(example):
    messages = [{"role": "system", "content": system}] if system else []
    for shot in solved(example):
      messages += [
        {"role": "user", "content": shot.question},
        {"role": "assistant", "content": f"Answer: {shot.answer}"},
      ]
    messages.append({"role": "user", "content": example.question})
    return tokenizer.render(messages, enable_thinking=enable_thinking)

  return Task(
    train=train,
    test=test,
    tokenizer=tokenizer,
    prompt=prompt,
    trace=None,
    reward_fn=stated_answer(score, prompt),
    label=label,
    answer_key=stated_key(prompt),
  )


def stated_answer(
  score: Callable[[Example, str], float] | None,
  prompt: Callable[[Example], str],
) -> RewardFn:
  """Correctness of the answer that a completion states, and that it does.

  Args:
    score: (example, answer) -> between 0 and 1; None leaves `correctness` to
      the task's verifier.
    prompt: the task's, which may have begun the thinking.

  Returns:
    A reward function with `correctness` and `format`: 1 for a closed box, or a
    line that starts with `Answer:`, after any thinking.
  """

  def reward(example, completion):
    found = extract(thinking_prefix(prompt(example)) + completion)
    scores = {"format": float(bool(found.answer))}
    if score is None:
      return scores
    correctness = score(example, found.answer) if found.answer else 0.0
    return {"correctness": correctness, **scores}

  return reward


def stated_key(prompt: Callable[[Example], str]):
  """What a completion votes for: the canonical key of the answer it states.

  Args:
    prompt: the task's, which may have begun the thinking.

  Returns:
    A function (example, completion) -> key, or None without an answer.
  """

  def key(example, completion):
    found = extract(thinking_prefix(prompt(example)) + completion)
    return canonical(found.answer).key if found.answer else None

  return key
