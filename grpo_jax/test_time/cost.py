"""What answering a question takes, so that strategies can be compared.

A `Cost` holds one number per question in each of its units. Costs of calls
that follow each other are added; FLOPs are of the tokens that a question
needs, wherever in a padded batch they were computed.
"""

import dataclasses

import chex
import jax
import numpy as np
from jaxtyping import Float, Int

from grpo_jax.models.config import ModelConfig

Amount = Float[np.ndarray, " Q"]


@chex.dataclass(frozen=True)
class Cost:
  """Per question; float64, so that sums of tokens and FLOPs are exact.

  Attributes:
    prompt_tokens_unique: prompt tokens that went through the policy once and
      were shared by all samples.
    prompt_tokens_processed: prompt tokens that the policy ran, each time that
      it ran them.
    generated_tokens: completion tokens that the policy ran, kept or not, the
      following three included.
    thinking_tokens: of those, between `<think>` and `</think>`.
    forced_tokens: of those, put in by a budget and not sampled.
    discarded_tokens: of those, in no returned candidate: pruned, or looked
      ahead.
    verifier_tokens: that a verifying model ran.
    judge_calls: completions that the policy, or a person, was asked to judge.
    sequential_depth_tokens: completion tokens of the longest chain in which
      each had to wait for the one before: what latency is made of.
    policy_flops: of the generating model, attention included.
    verifier_flops: of the verifying model, attention included.
    wall_s: seconds of a batch, shared out over its questions.
    peak_cache_bytes: keys and values that were held at once for a question;
      not the copy of them that exists while rows are forked.
  """

  prompt_tokens_unique: Amount
  prompt_tokens_processed: Amount
  generated_tokens: Amount
  thinking_tokens: Amount
  forced_tokens: Amount
  discarded_tokens: Amount
  verifier_tokens: Amount
  judge_calls: Amount
  sequential_depth_tokens: Amount
  policy_flops: Amount
  verifier_flops: Amount
  wall_s: Amount
  peak_cache_bytes: Amount

  def __add__(self, later: "Cost") -> "Cost":
    """The cost of both, one after the other: caches are not held together."""
    total = jax.tree.map(np.add, self, later)
    return total.replace(
      peak_cache_bytes=np.maximum(self.peak_cache_bytes, later.peak_cache_bytes)
    )

  def beside(self, other: "Cost") -> "Cost":
    """The cost of both at the same time: the longer one's depth, both caches.

    Seconds are added, because a batch's were shared out already.
    """
    total = jax.tree.map(np.add, self, other)
    return total.replace(
      sequential_depth_tokens=np.maximum(
        self.sequential_depth_tokens, other.sequential_depth_tokens
      )
    )

  @property
  def flops(self) -> Amount:
    """Of policy and verifier."""
    return self.policy_flops + self.verifier_flops


def no_cost(questions: int) -> Cost:
  """Zeros for so many questions; `replace` gives amounts `[Q]`."""
  names = [field.name for field in dataclasses.fields(Cost)]
  return Cost(**{name: np.zeros(questions) for name in names})


def prompt_cost(config: ModelConfig, lengths: Int[np.ndarray, " Q"]) -> Cost:
  """Of running the prompts once each, before any completion."""
  tokens = lengths.astype(np.float64)
  return no_cost(len(lengths)).replace(
    prompt_tokens_unique=tokens,
    prompt_tokens_processed=tokens,
    policy_flops=forward_flops(config, np.zeros_like(lengths), lengths),
  )


def forward_flops(
  config: ModelConfig,
  start: Int[np.ndarray, "..."],
  stop: Int[np.ndarray, "..."],
) -> Float[np.ndarray, "..."]:
  """FLOPs of running the tokens at positions start .. stop - 1 once, cached.

      2 n_block per token, and 4 L H C for each token that it sees

  where n_block are the parameters of the blocks' matrices that a token meets
  (of a mixture, the experts it is sent to), and a token sees itself and all
  before it, or its layer's window. A multiplication and an addition are two
  FLOPs. Left out: norms, rotations, softmax and activations, which are no
  matrix products; and the unembedding (`unembedding_flops`), which not every
  token needs.

  Args:
    config: of the model.
    start: first position, from 0, of each sequence.
    stop: one past the last, not below `start`, to which it is broadcast.
  """
  start, stop = np.asarray(start, np.float64), np.asarray(stop, np.float64)
  seen = sum(
    _seen(stop, window) - _seen(start, window)
    for window in config.windows or (0,) * config.layers
  )
  per_token = 2.0 * config.layers * _block_parameters(config)
  return (
    per_token * (stop - start) + 4.0 * config.heads * config.head_dim * seen
  )


def unembedding_flops(config: ModelConfig) -> float:
  """FLOPs of the logits of one token."""
  return 2.0 * config.width * config.vocab_size


def _seen(length: np.ndarray, window: int) -> np.ndarray:
  """sum_{i=1}^{length} min(i, window); a window of 0 is none."""
  inside = np.minimum(length, window) if window else length
  return inside * (inside + 1) / 2 + (length - inside) * window


def _block_parameters(config: ModelConfig) -> int:
  c = config
  attention = 2 * c.width * (c.heads + c.kv_heads) * c.head_dim
  mlp = 3 * c.width * c.mlp_width
  if c.experts:
    return attention + c.width * c.experts + c.experts_per_token * mlp
  return attention + mlp
