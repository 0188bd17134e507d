"""A generator with random parameters, and questions for it."""

import pytest

from grpo_jax.data.tokenizer import CharTokenizer
from grpo_jax.rewards.thinking import split_thinking
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.test_time.signature import Generator, encode_questions
from grpo_jax.test_time.thinking import thinking_rule

PROMPTS = ["1+2=", "3+4+5=", "7=", "<think>8-6="]


def read_answer(text):
  """The first character after the thinking, if there is one."""
  return split_thinking(text).answer[:1] or text[:1] or None


@pytest.fixture(scope="session")
def generator(model, params):
  tokenizer = CharTokenizer("0123456789+-=;:?")
  return Generator(
    params=params,
    config=model,
    tokenizer=tokenizer,
    options=SamplingOptions(
      max_completion_tokens=12,
      temperature=1.0,
      top_k=0,
      top_p=1.0,
      stop_ids=tokenizer.stop_ids,
    ),
    read_answer=read_answer,
    thinking=thinking_rule(tokenizer, wait="?", stop_phrase=""),
  )


@pytest.fixture(scope="session")
def questions(generator):
  return encode_questions(
    generator.tokenizer, [4, 9, 2, 7], PROMPTS, max_prompt_tokens=6
  )
