"""Thinking budgets: the state machine against a loop, and in the sampler."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_jax.sampling import decode
from grpo_jax.sampling.budgets import (
  UNLIMITED,
  ThinkingRule,
  with_budget,
)
from grpo_jax.sampling.decode import DecodeState, SamplingOptions
from grpo_jax.sampling.generate import completion_keys
from grpo_jax.types import EOS, RUNNING

END, OPEN, CLOSE, WAIT, PLEASE = 1, 2, 3, 4, 5
RULE = ThinkingRule(
  open_id=OPEN,
  close_id=CLOSE,
  wait_ids=(WAIT, WAIT),
  close_ids=(PLEASE, CLOSE),
  stop_ids=(END,),
)
T = 16


def _forced_by_loop(script, most, least, waits, opened):
  """The definition, one token at a time; the script is what is sampled."""
  out, thinking, thought, queue = [], opened, 0, []
  for sampled in script:
    if thinking and thought >= most and (queue or sampled not in (CLOSE, END)):
      if "closing" not in queue:
        queue = ["closing", *RULE.close_ids]
    elif thinking and not queue and sampled in (CLOSE, END):
      if thought < most and (waits > 0 or thought < least):
        queue, waits = ["waiting", *RULE.wait_ids], waits - 1
    if queue:
      token = queue.pop(1)
      out.append((token, True))
      if queue[0] == "waiting":
        thought += 1
      if len(queue) == 1:
        thinking = queue[0] == "waiting"
        queue = []
      continue
    out.append((sampled, False))
    if sampled == END:
      break
    if thinking and sampled == CLOSE:
      thinking = False
    elif thinking:
      thought += 1
    elif sampled == OPEN:
      thinking = True
  return out, thought


@jax.jit
def _forced_by_rule(script, most, least, waits, opened):
  """The rule alone, without a model, on one row."""
  one = jnp.zeros(1, jnp.int32)
  state = DecodeState(
    cache=(),
    hidden=jnp.zeros((1, 1)),
    prompt_lengths=one,
    keys=None,
    tokens=jnp.zeros((1, T), jnp.int32),
    logp=jnp.zeros((1, T)),
    lengths=one,
    stop_reason=one,
  )
  state = with_budget(state, most=most, least=least, waits=waits, opened=opened)

  def step(state, sampled):
    running = state.stop_reason == RUNNING
    token, _, memory = RULE(state, sampled[None])
    return state.replace(
      tokens=state.tokens.at[0, state.lengths[0]].add(
        jnp.where(running, token, 0)[0], mode="drop"
      ),
      lengths=state.lengths + running,
      stop_reason=jnp.where(
        running & (token == END), EOS, state.stop_reason
      ).astype(jnp.int32),
      memory=memory,
    ), None

  return jax.lax.scan(step, state, script)[0]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
  st.lists(
    st.sampled_from([END, OPEN, CLOSE, CLOSE, 7, 7, 7]), min_size=T, max_size=T
  ),
  st.sampled_from([0, 1, 2, 3, 5, 9, UNLIMITED]),
  st.integers(0, 6),
  st.integers(0, 3),
  st.booleans(),
)
def test_the_state_machine_is_the_loop(script, most, least, waits, opened):
  expected, thought = _forced_by_loop(script, most, least, waits, opened)
  state = _forced_by_rule(
    jnp.array(script),
    *(jnp.array([x]) for x in (most, least, waits, opened)),
  )
  state = jax.device_get(state)
  n = int(state.lengths[0])
  found = zip(state.tokens[0, :n], state.memory.forced[0, :n], strict=True)
  assert [(int(t), bool(f)) for t, f in found] == expected
  assert state.memory.thought[0] == thought <= most


OPTIONS = SamplingOptions(
  max_completion_tokens=24, temperature=1.0, top_k=0, top_p=1.0, stop_ids=(END,)
)
PROMPTS = jnp.array([[5, 6, 7, 0], [9, 10, 0, 0]], jnp.int32)
GROUP = 32


@pytest.fixture(scope="module")
def sample(model, params):
  """Sampling under budgets, one per row, as one function."""

  @chex.assert_max_traces(n=2)  # with a rule and without
  def run(budgets, opened, force, steps=(24,)):
    state = decode.prefill(
      params, model, PROMPTS, jnp.array([3, 2]), max_completion_tokens=24
    )
    keys = completion_keys(jax.random.key(0), jnp.arange(2), GROUP)
    state = decode.fork(
      state, jnp.repeat(jnp.arange(2), GROUP), keys.reshape(-1)
    )
    if force is not None:
      most, least, waits = budgets
      state = with_budget(
        state, most=most, least=least, waits=waits, opened=opened
      )
    for count in steps:
      state = decode.decode(
        params, model, state, OPTIONS, steps=count, force=force
      )
    return state.replace(cache=(), keys=None)

  compiled = jax.jit(run, static_argnames=("force", "steps"))
  rows = jnp.zeros(2 * GROUP, jnp.int32)
  return lambda most=UNLIMITED, least=0, waits=0, force=RULE, **kwargs: (
    jax.device_get(
      compiled(
        (rows + most, rows + least, rows + waits),
        jnp.ones(2 * GROUP, bool),
        force,
        **kwargs,
      )
    )
  )


def test_without_limits_it_is_plain_sampling(sample):
  plain, unlimited = sample(force=None), sample()
  for name in ("tokens", "logp", "lengths", "stop_reason"):
    np.testing.assert_array_equal(plain[name], unlimited[name])
  assert not unlimited.memory.forced.any()
  assert plain.memory == ()


@pytest.mark.parametrize("most", [0, 3, 6])
def test_thinking_ends_at_its_budget_and_not_before(sample, most):
  """A row is as without a budget until that is spent; then comes the end."""
  plain, limited = sample(), sample(most)
  assert limited.memory.thought.max() <= most
  cut = 0
  for before, tokens, forced, length in zip(
    plain.tokens,
    limited.tokens,
    limited.memory.forced,
    plain.lengths,
    strict=True,
  ):
    # The first stretch: random parameters open their thinking again.
    ends = np.flatnonzero(np.isin(before[:length], [CLOSE, END]))
    first = ends[0] if ends.size else length
    if first > most:
      cut += 1
      np.testing.assert_array_equal(tokens[:most], before[:most])
      np.testing.assert_array_equal(tokens[most : most + 2], RULE.close_ids)
      np.testing.assert_array_equal(
        forced[: most + 3], [False] * most + [True, True, False]
      )
    else:
      np.testing.assert_array_equal(tokens[: first + 1], before[: first + 1])
  assert cut > 5


def test_thinking_goes_on_until_it_may_end(sample):
  waited, long = sample(waits=1), sample(least=8)
  assert waited.memory.waited.max() == 1
  put_in = waited.memory.forced
  assert (waited.tokens[put_in] == WAIT).all()
  assert put_in.sum() > 10
  ended = long.stop_reason == EOS
  assert ended.any()
  assert long.memory.thought[ended].min() >= 8


def test_forced_tokens_have_no_log_probability(sample):
  out = sample(4, waits=1)
  there = np.arange(24) < out.lengths[:, None]
  forced = out.memory.forced
  assert (out.logp[forced] == 0).all()
  assert (out.logp[there & ~forced] < 0).all()
  assert not forced[~there].any()


def test_a_sweep_of_budgets_is_one_compiled_program(sample):
  for most in range(8):
    sample(most)  # the third trace would raise


def test_rows_have_budgets_of_their_own(model, sample):
  mixed = sample(jnp.arange(2 * GROUP) % 3 * 3)
  for i, most in enumerate((0, 3, 6)):
    alone = sample(most)
    np.testing.assert_array_equal(mixed.tokens[i::3], alone.tokens[i::3])


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"wait_ids": ()}, "has no token"),
    ({"close_ids": (PLEASE,)}, "must hold </think>"),
    ({"wait_ids": (END,)}, "ends the completion"),
  ],
)
def test_phrases_that_cannot_work_are_refused(fields, message):
  whole = {
    "open_id": OPEN,
    "close_id": CLOSE,
    "wait_ids": (WAIT,),
    "close_ids": (CLOSE,),
    "stop_ids": (END,),
  }
  with pytest.raises(ValueError, match=message):
    ThinkingRule(**whole | fields)
