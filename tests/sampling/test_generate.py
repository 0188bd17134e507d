"""Sampling: what it draws, from which distribution, and what it depends on."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.logprobs import completion_rows, score
from grpo_jax.sampling import decode
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.sampling.generate import completion_keys, make_generate
from grpo_jax.types import EOS, LENGTH

OPTIONS = SamplingOptions(
  max_completion_tokens=12, temperature=1.0, top_k=0, top_p=1.0, stop_ids=(1,)
)
PROMPTS = jnp.array([[5, 6, 7, 0], [9, 0, 0, 0], [3, 2, 8, 11]], jnp.int32)
LENGTHS = jnp.array([3, 1, 4], jnp.int32)


# Compiled: op by op, every test would compile dozens of small programs.
_trunk = jax.jit(decoder.trunk, static_argnames="config")
_decode = jax.jit(decode.decode, static_argnames=("config", "options", "steps"))
_prefill = jax.jit(
  decode.prefill, static_argnames=("config", "max_completion_tokens")
)
_score = jax.jit(score, static_argnames=("config", "temperature"))


def _keys(group_size, ids=(0, 1, 2), seed=0):
  return completion_keys(jax.random.key(seed), jnp.array(ids), group_size)


def _generator(model, options):
  """Results on the host: slicing them must not compile a program each."""
  compiled = make_generate(model, options)
  return lambda *args: jax.device_get(compiled(*args))


@pytest.fixture(scope="module")
def generate(model):
  return _generator(model, OPTIONS)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("scan_layers", [False, True])
def test_sampler_and_trainer_agree_on_log_probabilities(
  variant, temperature, scan_layers
):
  config, params = variant(scan_layers=scan_layers)
  options = dataclasses.replace(OPTIONS, temperature=temperature)
  out = _generator(config, options)(params, PROMPTS, LENGTHS, _keys(8))
  flat = jnp.asarray(out.tokens.reshape(24, 12))
  rows = completion_rows(
    jnp.repeat(PROMPTS, 8, 0), jnp.repeat(LENGTHS, 8, 0), flat
  )
  scores = _score(params, config, rows, flat, temperature=temperature)
  mask = np.arange(12) < out.lengths.reshape(24, 1)
  difference = np.abs(scores.logp - out.logp.reshape(24, 12))[mask]
  assert difference.max() < 1e-4
  assert out.logp.reshape(24, 12)[mask].max() < 0


def test_filtered_sampling_reports_the_filtered_log_probability(model, params):
  options = dataclasses.replace(OPTIONS, top_k=1)
  out = _generator(model, options)(params, PROMPTS, LENGTHS, _keys(2))
  np.testing.assert_array_equal(out.logp, 0.0)
  np.testing.assert_array_equal(out.tokens[:, 0], out.tokens[:, 1])


def test_greedy_follows_the_largest_logit(model, params):
  options = dataclasses.replace(OPTIONS, temperature=0.0)
  out = _generator(model, options)(params, PROMPTS, LENGTHS, _keys(1))
  positions = jnp.arange(16)[None]
  mask = decoder.causal_mask(positions, 16)
  for p in range(3):
    sequence = PROMPTS[p, : LENGTHS[p]].tolist()
    for token in out.tokens[p, 0, : out.lengths[p, 0]]:
      padded = jnp.array([sequence + [0] * (16 - len(sequence))])
      hidden, _ = _trunk(params, model, padded, positions, mask)
      logits = decoder.unembed(params, model, hidden)[0, len(sequence) - 1]
      assert int(jnp.argmax(logits)) == token
      sequence.append(int(token))


def test_completions_end_with_their_stop_token_or_at_the_limit(
  generate, params
):
  out = generate(params, PROMPTS, LENGTHS, _keys(64))
  reasons = np.asarray(out.stop_reason)
  assert set(np.unique(reasons)) == {EOS, LENGTH}
  for tokens, length, reason in zip(
    out.tokens.reshape(-1, 12),
    out.lengths.ravel(),
    reasons.ravel(),
    strict=True,
  ):
    assert (tokens[length - 1] == 1) == (reason == EOS)
    assert 1 not in tokens[: length - 1]
    assert length == 12 or reason == EOS
    assert not tokens[length:].any()


def test_samples_follow_the_models_distribution(generate, params, model):
  out = generate(params, PROMPTS[:1], LENGTHS[:1], _keys(4096, ids=(0,)))
  positions = jnp.arange(3)[None]
  hidden, _ = _trunk(
    params,
    model,
    PROMPTS[:1, :3],
    positions,
    decoder.causal_mask(positions, 3),
  )
  p = np.asarray(jax.nn.softmax(decoder.unembed(params, model, hidden[0, -1])))
  counts = np.bincount(out.tokens[0, :, 0], minlength=20)
  chi_square = ((counts - 4096 * p) ** 2 / (4096 * p)).sum()
  assert chi_square < 43.8  # 99.9 % quantile at 19 degrees of freedom


def test_eight_samples_are_the_first_of_sixty_four(generate, params):
  few = generate(params, PROMPTS, LENGTHS, _keys(8))
  many = generate(params, PROMPTS, LENGTHS, _keys(64))
  np.testing.assert_array_equal(few.tokens, many.tokens[:, :8])
  np.testing.assert_array_equal(few.lengths, many.lengths[:, :8])


def test_samples_do_not_depend_on_the_batch(generate, params):
  together = generate(params, PROMPTS, LENGTHS, _keys(8))
  order = np.array([2, 0])
  others = generate(
    params, PROMPTS[order], LENGTHS[order], _keys(8, ids=(2, 0))
  )
  np.testing.assert_array_equal(others.tokens, together.tokens[order])
  wide = jnp.pad(PROMPTS, ((0, 0), (0, 3)), constant_values=13)
  padded = generate(params, wide, LENGTHS, _keys(8))
  np.testing.assert_array_equal(padded.tokens, together.tokens)


def test_other_keys_give_other_samples(generate, params):
  one = generate(params, PROMPTS, LENGTHS, _keys(8))
  other = generate(params, PROMPTS, LENGTHS, _keys(8, seed=1))
  again = generate(params, PROMPTS, LENGTHS, _keys(8))
  assert (one.tokens != other.tokens).any()
  np.testing.assert_array_equal(one.tokens, again.tokens)


def test_decoding_in_parts_equals_decoding_at_once(model, params):
  state = _prefill(params, model, PROMPTS, LENGTHS, max_completion_tokens=12)
  state = decode.fork(state, jnp.array([0, 0, 1, 2]), _keys(4)[0])
  whole = _decode(params, model, state, OPTIONS, steps=12)
  parts = state
  for steps in (5, 1, 6):
    parts = _decode(params, model, parts, OPTIONS, steps=steps)
  np.testing.assert_array_equal(parts.tokens, whole.tokens)
  np.testing.assert_array_equal(parts.stop_reason, whole.stop_reason)


def test_decoding_ends_when_all_rows_have_stopped(model, params):
  everything = dataclasses.replace(OPTIONS, stop_ids=tuple(range(20)))
  state = _prefill(params, model, PROMPTS, LENGTHS, max_completion_tokens=12)
  state = decode.fork(state, jnp.arange(3), _keys(1)[:, 0])
  out = _decode(params, model, state, everything, steps=12)
  np.testing.assert_array_equal(out.lengths, 1)
  np.testing.assert_array_equal(out.stop_reason, EOS)


def test_the_decode_loop_compiles_once(model, params):
  chex.clear_trace_counter()
  traced = chex.assert_max_traces(n=1)(
    lambda *args: decode.decode(args[0], model, args[1], OPTIONS, steps=12)
  )
  compiled = jax.jit(traced)
  for seed in range(3):
    state = _prefill(params, model, PROMPTS, LENGTHS, max_completion_tokens=12)
    state = decode.fork(state, jnp.arange(3), _keys(1, seed=seed)[:, 0])
    compiled(params, state)


@pytest.mark.parametrize(
  "fields",
  [
    {"max_completion_tokens": 0},
    {"temperature": -1.0},
    {"top_k": -1},
    {"top_p": 0.0},
    {"stop_ids": ()},
  ],
)
def test_impossible_options_are_refused(fields):
  with pytest.raises(ValueError, match=next(iter(fields))):
    dataclasses.replace(OPTIONS, **fields)
