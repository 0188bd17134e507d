"""Rollouts with the tokenizer and the template of a checkpoint."""

import dataclasses
from pathlib import Path

import jax

from grpo_jax.data.tokenizer_files import load_tokenizer
from grpo_jax.rewards.functions import answer_and_format
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.training.rollouts import make_rollout
from grpo_jax.types import EOS, LENGTH

_FOLDER = Path(__file__).parents[1] / "data/references/qwen_style"


def test_prompts_and_completions_are_whole(task, variant):
  tokenizer = load_tokenizer(_FOLDER)
  # Every fifth token ends a completion, so that random parameters find some.
  stops = tuple(range(4, tokenizer.vocab_size, 5))
  tokenizer = dataclasses.replace(tokenizer, stop_ids=stops)

  def prompt(example):
    question = [{"role": "user", "content": f"!{example.question}"}]
    return tokenizer.render(question, enable_thinking=False)

  task = task._replace(
    tokenizer=tokenizer,
    prompt=prompt,
    reward_fn=answer_and_format(lambda *_: 1.0, prompt=prompt),
  )
  # Embeddings of checkpoints have rows that are no token.
  model, params = variant(vocab_size=tokenizer.vocab_size + 9)
  rollout = make_rollout(
    task,
    model,
    SamplingOptions(
      max_completion_tokens=6,
      temperature=1.0,
      top_k=0,
      top_p=1.0,
      stop_ids=stops,
    ),
    reward_functions=[("task", task.reward_fn)],
    reward_weights={"correctness": 1.0},
    prompts_per_call=4,
    group_size=4,
    max_prompt_tokens=40,
  )
  sampled = rollout(params, task.train[:4], range(4), jax.random.key(0), 0)
  r = sampled.rollouts
  for p, example in enumerate(sampled.examples):
    ids = r.prompt_tokens[p, : r.prompt_lengths[p]]
    assert 0 in ids  # "!", no padding
    assert tokenizer.decode(ids) == prompt(example)
    for g, text in enumerate(sampled.texts[p]):
      ended = r.stop_reason[p, g] == EOS
      kept = r.tokens[p, g, : r.lengths[p, g] - ended]
      assert text == tokenizer.backend.decode(kept, skip_special_tokens=False)
      # The prompt closed the thinking: any text is an answer.
      assert sampled.scored.scores["correctness"][p, g] == bool(text.strip())
  assert {EOS, LENGTH} <= set(r.stop_reason.flat)
  assert sampled.scored.scores["correctness"].any()
