"""Thinking budgets, as a state machine of each row inside the decode loop.

Budget forcing of s1 (arXiv:2501.19393) and of Qwen3 (arXiv:2505.09388): at its
most a completion's thinking is ended by a phrase, at its least it is made to
go on. Budgets are arrays, one number per row: one compiled loop serves all.
"""

import dataclasses

import chex
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from grpo_jax.sampling.decode import DecodeState
from grpo_jax.types import RUNNING

UNLIMITED = 2**30  # tokens; of a budget that never ends the thinking

# Where a row is: before, after or without thinking; inside it; or inside a
# phrase that is put in.
OUTSIDE, THINKING, WAITING, CLOSING = range(4)


@chex.dataclass(frozen=True)
class ThinkingState:
  """Budgets of rows, and how much of them is spent.

  Attributes:
    most: thinking tokens after which the thinking is ended.
    least: thinking tokens before which it may not end.
    waits: how many times an end of the thinking is not accepted, whatever its
      length.
    phase: OUTSIDE, THINKING, WAITING or CLOSING.
    pointer: next token of the phrase that is being put in.
    thought: thinking tokens so far, sampled or put in to go on; those of the
      phrase that ends the thinking are not counted.
    waited: ends that were not accepted; each is a sampled token that was
      thrown away.
    forced: tokens that were put in, and are to be masked in any loss.
  """

  most: Int[Array, " B"]
  least: Int[Array, " B"]
  waits: Int[Array, " B"]
  phase: Int[Array, " B"]
  pointer: Int[Array, " B"]
  thought: Int[Array, " B"]
  waited: Int[Array, " B"]
  forced: Bool[Array, "B T"]


def with_budget(
  state: DecodeState,
  *,
  most: Int[Array, " B"],
  least: Int[Array, " B"],
  waits: Int[Array, " B"],
  opened: Bool[Array, " B"],
) -> DecodeState:
  """A forked state whose rows have these budgets, from their next token on.

  Args:
    state: from `fork`, before its first token.
    most: thinking tokens, or UNLIMITED.
    least: thinking tokens, or 0.
    waits: ends of the thinking that are not accepted.
    opened: rows whose prompt ends within its thinking.
  """
  zeros = jnp.zeros_like(state.lengths)
  memory = ThinkingState(
    most=most,
    least=least,
    waits=waits,
    phase=jnp.where(opened, THINKING, OUTSIDE),
    pointer=zeros,
    thought=zeros,
    waited=zeros,
    forced=jnp.zeros(state.tokens.shape, bool),
  )
  return state.replace(memory=memory)


@dataclasses.dataclass(frozen=True)
class ThinkingRule:
  """What `decode` takes as `force`: hashable, so that it compiles once.

  A row inside its thinking whose budget is spent gets `close_ids`. One that
  samples the end of its thinking, or of the completion, before it may gets
  `wait_ids` instead; these count as thinking, and the budget ends them too.
  Outside its thinking a row is left alone; thinking that is opened again has
  what is left of the budget.

  Attributes:
    open_id: the token `<think>`.
    close_id: the token `</think>`.
    wait_ids: what makes the thinking go on, such as "Wait".
    close_ids: what ends it; its last token is close_id, or it comes before.
    stop_ids: that end a completion.
  """

  open_id: int
  close_id: int
  wait_ids: tuple[int, ...]
  close_ids: tuple[int, ...]
  stop_ids: tuple[int, ...]

  def __post_init__(self):
    if not self.wait_ids:
      raise ValueError("The phrase that makes thinking go on has no token.")
    if self.close_id not in self.close_ids:
      raise ValueError("The phrase that ends thinking must hold </think>.")
    if set(self.stop_ids) & {*self.wait_ids, *self.close_ids}:
      raise ValueError("A phrase of a thinking budget ends the completion.")

  def __call__(
    self, state: DecodeState, token: Int[Array, " B"]
  ) -> tuple[Int[Array, " B"], Bool[Array, " B"], ThinkingState]:
    """The tokens to go on with, which are forced, and the rows after them."""
    m = state.memory
    thinking, spent = m.phase == THINKING, m.thought >= m.most
    closes = token == self.close_id
    ends = closes | jnp.isin(token, jnp.asarray(self.stop_ids))
    early = (m.waited < m.waits) | (m.thought < m.least)
    to_wait = thinking & ends & early & ~spent
    to_close = spent & ((thinking & ~ends) | (m.phase == WAITING))
    waiting = to_wait | ((m.phase == WAITING) & ~spent)
    closing = to_close | (m.phase == CLOSING)
    forced = waiting | closing

    pointer = jnp.where(to_wait | to_close, 0, m.pointer)
    wait_ids, close_ids = jnp.array(self.wait_ids), jnp.array(self.close_ids)
    token = jnp.where(waiting, wait_ids[pointer], token)
    token = jnp.where(closing, close_ids[pointer], token).astype(jnp.int32)
    pointer = pointer + forced

    inside = waiting | (thinking & ~closing & ~ends)
    reopened = (m.phase == OUTSIDE) & (token == self.open_id)
    phase = jnp.where(inside | reopened, THINKING, OUTSIDE)
    phase = jnp.where(waiting & (pointer < len(self.wait_ids)), WAITING, phase)
    phase = jnp.where(closing & (pointer < len(self.close_ids)), CLOSING, phase)
    running = state.stop_reason == RUNNING

    def keep(new, old):
      return jnp.where(running, new, old)

    rows = jnp.arange(token.shape[0])
    return (
      token,
      forced,
      m.replace(
        phase=keep(phase, m.phase),
        pointer=keep(pointer, m.pointer),
        thought=keep(m.thought + inside, m.thought),
        waited=keep(m.waited + to_wait, m.waited),
        forced=m.forced.at[rows, state.lengths].max(
          forced & running, mode="drop"
        ),
      ),
    )
