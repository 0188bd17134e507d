"""Scores of completions against a plain log-softmax, and in other layouts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder, logprobs
from grpo_jax.training.packing import Place, packed_rows


@pytest.fixture
def batch():
  rng = np.random.default_rng(0)
  return (
    jnp.asarray(rng.integers(0, 20, (3, 4), dtype=np.int32)),
    jnp.array([4, 2, 3], jnp.int32),
    jnp.asarray(rng.integers(0, 20, (3, 5), dtype=np.int32)),
  )


_trunk = jax.jit(decoder.trunk, static_argnames="config")


@functools.partial(jax.jit, static_argnames=("model", "temperature"))
def _score(params, model, batch, temperature=1.0):
  rows = logprobs.completion_rows(*batch)
  return logprobs.score(params, model, rows, batch[2], temperature=temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_are_those_of_each_sequence_alone(
  model, params, batch, temperature
):
  scores = _score(params, model, batch, temperature)
  for prompt, length, tokens, logp, entropy in zip(
    *batch, scores.logp, scores.entropy, strict=True
  ):
    sequence = jnp.concatenate([prompt[:length], tokens])[None]
    positions = jnp.arange(sequence.shape[1])[None]
    mask = decoder.causal_mask(positions, sequence.shape[1])
    hidden, _ = _trunk(params, model, sequence, positions, mask)
    logits = np.asarray(decoder.unembed(params, model, hidden)[0], np.float64)
    z = logits / temperature
    log_probs = z - np.log(np.exp(z).sum(-1, keepdims=True))
    before = log_probs[length - 1 : -1]  # the shift by one
    expected = before[np.arange(len(tokens)), tokens]
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
      entropy, -(np.exp(before) * before).sum(-1), rtol=1e-4, atol=1e-5
    )


def test_prompt_padding_changes_nothing(model, params, batch):
  prompts, lengths, tokens = batch
  wide = np.full((3, 9), 7, np.int32)
  for row, prompt, length in zip(wide, prompts, lengths, strict=True):
    row[:length] = prompt[:length]
  np.testing.assert_allclose(
    _score(params, model, (jnp.asarray(wide), lengths, tokens)).logp,
    _score(params, model, batch).logp,
    rtol=1e-5,
    atol=1e-5,
  )


def test_chunks_change_neither_values_nor_gradients(
  model, params, batch, monkeypatch
):
  def loss(params):
    scores = _score.__wrapped__(params, model, batch)
    return jnp.sum(scores.logp) + jnp.sum(scores.entropy**2)

  whole = jax.jit(jax.value_and_grad(loss))(params)
  monkeypatch.setattr(logprobs, "_LOGIT_ELEMENTS", 4 * model.vocab_size)
  chunked = jax.jit(jax.value_and_grad(lambda p: loss(p)))(params)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    whole,
    chunked,
  )


def test_all_logits_never_exist_at_once(model, params, batch, monkeypatch):
  monkeypatch.setattr(logprobs, "_LOGIT_ELEMENTS", 4 * model.vocab_size)
  program = jax.make_jaxpr(
    jax.grad(lambda p: jnp.sum(_score.__wrapped__(p, model, batch).logp))
  )(params)
  completion_tokens = batch[2].size
  assert f"[{completion_tokens},{model.vocab_size}]" not in str(program)
  assert f"[4,{model.vocab_size}]" in str(program)


def test_packed_rows_score_as_rows_of_their_own(model, params, batch):
  prompts, lengths, tokens = batch
  alone = _score(params, model, batch).logp
  places = [Place(0, 0), Place(1, 0), Place(0, 9)]
  rows, targets, mask = packed_rows(
    [p[:n].tolist() for p, n in zip(prompts, lengths, strict=True)],
    tokens.tolist(),
    places,
    rows=2,
    width=20,
    max_sequences=4,
    completion_width=6,
  )
  rows, targets = jax.tree.map(jnp.asarray, (rows, targets))
  packed = jax.jit(
    lambda: logprobs.score(params, model, rows, targets, temperature=1.0).logp
  )()
  np.testing.assert_array_equal(mask.sum(1), [5, 5, 5, 0])
  np.testing.assert_allclose(packed[:3, :5], alone, rtol=1e-4, atol=1e-5)
