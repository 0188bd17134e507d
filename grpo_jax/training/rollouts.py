"""Completions of problems, sampled, verified and ready for a recipe."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.data.example import Example
from grpo_jax.data.tokenizer import Tokenizer, pad_rows
from grpo_jax.models.config import ModelConfig
from grpo_jax.rewards.functions import (
  RewardFn,
  Scored,
  fill_excluded,
  mix,
  score_completions,
)
from grpo_jax.rewards.verify import Verifier
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.sampling.generate import completion_keys, make_generate
from grpo_jax.training.process import StepJudge, judged_steps
from grpo_jax.types import STOP_REASONS, Rollouts


class Task(NamedTuple):
  """What the model is trained on.

  Attributes:
    train: problems to draw from.
    test: held-out problems, in a fixed order.
    tokenizer: of prompts and completions.
    prompt: the text that a completion continues.
    trace: (example, random.Random) -> a completion to imitate, or None.
    reward_fn: (example, completion) -> named scores, as in
      `rewards.functions`; None if there are none.
    label: the group that results of a problem are reported under.
    judge_steps: (example, completion) -> (end, reward) of each step, as in
      `training.process`; None without process rewards.
    verify: (examples, completions) -> an outcome each, as in `rewards.verify`:
      the score `correctness`, which reward_fn then does not give. None if it
      does.
    close: ends what verify has started; called once, when the run ends.
  """

  train: Sequence[Example]
  test: Sequence[Example]
  tokenizer: Tokenizer
  prompt: Callable[[Example], str]
  trace: Callable | None
  reward_fn: RewardFn | None
  label: Callable[[Example], str]
  judge_steps: StepJudge | None = None
  verify: Verifier | None = None
  close: Callable[[], None] = lambda: None


class Sampled(NamedTuple):
  """P groups, on the host.

  Attributes:
    rollouts: with zeros for what the trainer's models will say.
    examples: P problems.
    texts: G completions of each.
    scored: what they are worth.
    sample_s: seconds of sampling.
    reward_s: seconds of verification.
  """

  rollouts: Rollouts
  examples: list[Example]
  texts: list[list[str]]
  scored: Scored
  sample_s: float
  reward_s: float


def make_rollout(
  task: Task,
  config: ModelConfig,
  options: SamplingOptions,
  *,
  reward_functions: Sequence[tuple[str, RewardFn]],
  reward_weights: Mapping[str, float],
  prompts_per_call: int,
  group_size: int,
  max_prompt_tokens: int,
  judge_steps: bool = False,
) -> Callable[..., Sampled]:
  """A function that samples and verifies any number of groups.

  Args:
    task: the problems' tokenizer, prompt and verifier.
    config: of the model.
    options: of sampling.
    reward_functions: the task's and others, with names to count them by.
    reward_weights: by name of score.
    prompts_per_call: P of the one shape that is compiled; more problems take
      several calls, fewer are filled up.
    group_size: G.
    max_prompt_tokens: Q.
    judge_steps: whether the task judges the steps of completions.

  Returns:
    `rollout(params, examples, prompt_ids, key, version)`. It raises ValueError
    for a prompt that is too long.
  """
  generate = make_generate(config, options)

  def sample(params, examples, prompt_ids, key):
    missing = prompts_per_call - len(examples)
    filled = [*examples, *[examples[0]] * missing]
    ids = np.pad(np.asarray(prompt_ids, np.int32), (0, missing))
    prompt_tokens, prompt_lengths = encode_prompts(
      task, filled, max_prompt_tokens
    )
    keys = completion_keys(key, jnp.asarray(ids), group_size)
    completions = generate(params, prompt_tokens, prompt_lengths, keys)
    host = jax.device_get((prompt_tokens, prompt_lengths, completions))
    return jax.tree.map(lambda x: x[: len(examples)], host)

  def rollout(params, examples, prompt_ids, key, version) -> Sampled:
    start = time.perf_counter()
    calls = [
      sample(params, examples[at:end], prompt_ids[at:end], key)
      for at in range(0, len(examples), prompts_per_call)
      for end in [at + prompts_per_call]
    ]
    prompt_tokens, prompt_lengths, c = jax.tree.map(
      lambda *parts: np.concatenate(parts), *calls
    )
    sampled = time.perf_counter()
    texts = [
      [
        task.tokenizer.decode(tokens[:length])
        for tokens, length in zip(group, lengths, strict=True)
      ]
      for group, lengths in zip(c.tokens, c.lengths, strict=True)
    ]
    scored = score_completions(
      reward_functions,
      examples,
      texts,
      names={"correctness", *reward_weights},
      verify=task.verify,
    )
    correctness = scored.scores["correctness"]
    counted = ~np.isnan(correctness)
    scores = fill_excluded(scored.scores, counted)
    in_completion = np.arange(c.tokens.shape[-1]) < c.lengths[..., None]
    zeros = np.zeros_like(c.logp)
    step_rewards, step_mask = zeros, np.zeros_like(in_completion)
    if judge_steps:
      step_rewards, step_mask = judged_steps(
        task.judge_steps, task.tokenizer, examples, texts, c.tokens, c.lengths
      )
    rollouts = Rollouts(
      prompt_tokens=prompt_tokens,
      prompt_lengths=prompt_lengths,
      tokens=c.tokens,
      lengths=c.lengths,
      stop_reason=c.stop_reason,
      loss_mask=in_completion,
      behaviour_logp=c.logp,
      sample_mask=counted,
      version=np.full(len(examples), version, np.int32),
      outcome=mix(scores, reward_weights),
      components=np.stack([scores[n] for n in sorted(reward_weights)], axis=-1),
      accuracy=(correctness >= 1.0).astype(np.float32),  # 0 where it is NaN
      step_rewards=step_rewards,
      step_mask=step_mask,
      old_logp=zeros,
      ref_logp=zeros,
      entropy=zeros,
      value=zeros,
      final_value=zeros[..., 0],
    )
    verified = time.perf_counter()
    return Sampled(
      rollouts,
      list(examples),
      texts,
      scored,
      sampled - start,
      verified - sampled,
    )

  return rollout


def encode_prompts(
  task: Task, examples: Sequence[Example], max_prompt_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
  """Right-padded prompts and their lengths.

  Raises:
    ValueError: a prompt is longer than max_prompt_tokens.
  """
  rows = [task.tokenizer.encode(task.prompt(e)) for e in examples]
  for row, example in zip(rows, examples, strict=True):
    if len(row) > max_prompt_tokens:
      raise ValueError(
        f"A prompt has {len(row)} tokens, more than max_prompt_tokens ="
        f" {max_prompt_tokens}: {task.prompt(example)[:200]!r}"
      )
  return pad_rows(rows, max_prompt_tokens)


def sample_rows(sampled: Sampled, task: Task, prompts: int) -> list[dict]:
  """Completions of the first prompts, as samples.jsonl.gz holds them.

  Scores that were excluded are NaN; `outcome` is there if the task verifies.
  """
  rows = []
  for p, example in enumerate(sampled.examples[:prompts]):
    for g, text in enumerate(sampled.texts[p]):
      reason = int(sampled.rollouts.stop_reason[p, g])
      scores, outcomes = sampled.scored.scores, sampled.scored.outcomes
      row = {
        "prompt": task.prompt(example),
        "completion": text,
        "rewards": {name: float(score[p, g]) for name, score in scores.items()},
        "stop_reason": STOP_REASONS[reason],
      }
      if outcomes is not None:
        row["outcome"] = str(outcomes[p, g])
      rows.append(row)
  return rows
