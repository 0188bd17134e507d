"""Axis letters, and the values that travel between the parts.

P prompts, G completions per prompt, N = P * G completions, T completion
positions, S positions of a row (prompt and completion), V vocabulary, D width,
L layers, H query heads, K key-value heads, C channels per head, F MLP width,
Z cache slots, R named scores, B any number of rows.

Groups are a grid [P, G]. A per-token array sits on the token that it scores:
logp[n, t] = log p(tokens[n, t] | everything before). Masks are bool, True
means keep; they come from lengths or from the sampler, never from token ids.
"""

import dataclasses
from typing import Any

import chex
from jaxtyping import Array, Bool, Float, Int

# Why a completion ended, as `Rollouts.stop_reason` holds it.
RUNNING, EOS, LENGTH = 0, 1, 2
STOP_REASONS = ("running", "eos", "length")

# What the algorithms take. Before the loss: a grid of completions in groups,
# one number for each completion, or for each of its tokens.
Grid = Float[Array, "P G"]
GridMask = Bool[Array, "P G"]
Lengths = Int[Array, "P G"]
GroupMask = Bool[Array, " P"]
TokenGrid = Float[Array, "P G T"]
TokenGridMask = Bool[Array, "P G T"]
# In the loss: one number for each token of N completions.
PerToken = Float[Array, "N T"]
TokenMask = Bool[Array, "N T"]
Scalar = Float[Array, ""]


@chex.dataclass(frozen=True)
class Rollouts:
  """Groups of completions, with what was measured of them.

  Every array leads with the prompt axis, so that groups can be filtered,
  joined, padded and carried to the next step by one `jax.tree.map`; only
  `memory`, which is empty then, does not.

  Attributes:
    prompt_tokens: right-padded.
    prompt_lengths: tokens of each prompt.
    tokens: completions, right-padded, EOS included.
    lengths: tokens of each completion, EOS included.
    stop_reason: one of RUNNING, EOS, LENGTH.
    loss_mask: tokens that the policy chose: up to EOS, none that were forced.
    behaviour_logp: log-probability under the distribution sampled from
      (temperature, top-k and top-p applied), in nats.
    sample_mask: completions that count; False where a group only fills up a
      batch, and where correctness could not be found.
    version: training step whose parameters sampled the group.
    outcome: reward before shaping, in reward units.
    components: the named scores that it mixes, in the order of their names;
      the group's mean where a score was excluded (see `rewards.functions`).
    accuracy: 1 where the answer is right, before any shaping.
    step_rewards: process rewards, on the last token of each step of a
      completion; zeros without.
    step_mask: where steps end.
    old_logp: the trainer's log-probability at the time of sampling, in nats,
      at the sampling temperature.
    ref_logp: the same under the reference policy; zeros without one.
    entropy: of the trainer's policy before each token, in nats.
    value: the critic's expected reward before each token; zeros without one.
    final_value: the same after the last token.
    memory: what the recipe remembers of earlier batches, by name; set while
      advantages are prepared, and empty otherwise.
  """

  prompt_tokens: Int[Array, "P Q"]
  prompt_lengths: Int[Array, "P"]
  tokens: Int[Array, "P G T"]
  lengths: Int[Array, "P G"]
  stop_reason: Int[Array, "P G"]
  loss_mask: Bool[Array, "P G T"]
  behaviour_logp: Float[Array, "P G T"]
  sample_mask: Bool[Array, "P G"]
  version: Int[Array, "P"]
  outcome: Float[Array, "P G"]
  components: Float[Array, "P G R"]
  accuracy: Float[Array, "P G"]
  step_rewards: Float[Array, "P G T"]
  step_mask: Bool[Array, "P G T"]
  old_logp: Float[Array, "P G T"]
  ref_logp: Float[Array, "P G T"]
  entropy: Float[Array, "P G T"]
  value: Float[Array, "P G T"]
  final_value: Float[Array, "P G"]
  memory: dict[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def truncated(self) -> Bool[Array, "P G"]:
    """Completions that were cut at the length limit."""
    return self.stop_reason == LENGTH


@chex.dataclass(frozen=True)
class Rows:
  """Token rows for the model, and where completion tokens lie in them.

  Attributes:
    tokens: prompts and completions.
    segments: which part of its row a token belongs to; it sees this part, and
      its prompt's.
    prompts: the segment of a token's prompt, which may be its own segment.
    positions: of each token in its own sequence of prompt and completion.
    places: for each completion token, its index into the flattened rows.
    predecessor: the same of the token before it, whose hidden state predicts
      it: the prompt's last one for a completion's first.
  """

  tokens: Int[Array, "B S"]
  segments: Int[Array, "B S"]
  prompts: Int[Array, "B S"]
  positions: Int[Array, "B S"]
  places: Int[Array, "N T"]
  predecessor: Int[Array, "N T"]


@chex.dataclass(frozen=True)
class CriticBatch:
  """What a critic learns from; everything in reward units.

  Attributes:
    weight: of each token in the critic's loss, as in `TrainBatch`.
    target: the return that the value should be.
    old_value: the value when the completions were sampled.
  """

  weight: Float[Array, "N T"]
  target: Float[Array, "N T"]
  old_value: Float[Array, "N T"]


@chex.dataclass(frozen=True)
class TrainBatch:
  """What one optimizer step needs of N completions.

  Attributes:
    rows: the model's input.
    tokens: the completions, the targets.
    loss_mask: tokens that are trained on.
    weight: of each token in the loss; holds the denominator of the whole
      optimizer batch, so that sums over any split of it are exact.
    advantage: in reward units, or normalised.
    old_logp: denominator of the ratio, in nats.
    ref_logp: of the reference policy, in nats.
    scales: factors of the recipe's penalties, one array for each of them.
    critic: None without one.
  """

  rows: Rows
  tokens: Int[Array, "N T"]
  loss_mask: Bool[Array, "N T"]
  weight: Float[Array, "N T"]
  advantage: Float[Array, "N T"]
  old_logp: Float[Array, "N T"]
  ref_logp: Float[Array, "N T"]
  scales: tuple[Float[Array, "N T"], ...] = ()
  critic: CriticBatch | None = None


@chex.dataclass(frozen=True)
class TokenScores:
  """What the models say of the completion tokens.

  Attributes:
    logp: of the token, in nats.
    entropy: of the distribution that it was drawn from, in nats.
    value: expected reward before the token; None without a critic.
    next_value: the same after it.
  """

  logp: Float[Array, "N T"]
  entropy: Float[Array, "N T"]
  value: Float[Array, "N T"] | None = None
  next_value: Float[Array, "N T"] | None = None


@chex.dataclass(frozen=True)
class TrainState:
  """Everything that a device holds between steps.

  Attributes:
    step: optimizer updates so far, skipped ones included.
    params: that are trained: of the model, or of its adapters.
    critic: parameters of the critic; () without one.
    memory: what the recipe remembers of earlier rollout batches, by name.
    opt_state: of the optimizer.
    skipped: updates without a finite loss and gradient, which changed nothing.
    skipped_in_a_row: of those, the ones since the last finite update.
  """

  step: Int[Array, ""]
  params: Any
  critic: Any
  memory: dict[str, Any]
  opt_state: Any
  skipped: Int[Array, ""]
  skipped_in_a_row: Int[Array, ""]
