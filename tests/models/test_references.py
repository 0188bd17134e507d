"""The decoder against transformers, as scripts/make_model_references.py ran it.

Logits, gradients and greedy continuations of a tiny model of each family and
option; what is compared here is committed, so that no torch is needed.
"""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.config_keys import ConfigKeys
from grpo_jax.models.huggingface import LAYOUT
from grpo_jax.models.layout import arrays_of
from grpo_jax.models.pretrained import load_pretrained
from grpo_jax.models.published_rope import read_rope
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.sampling.generate import completion_keys, make_generate

REFERENCES = Path(__file__).parent / "references"
MODELS = sorted(path.parent.name for path in REFERENCES.glob("*/outputs.npz"))
NO_STOP = (64,)  # no token has this id


@functools.cache
def _reference(name):
  with np.load(REFERENCES / name / "outputs.npz") as file:
    return dict(file)


@functools.partial(jax.jit, static_argnames="config")
def _score(params, config, tokens, mask, positions):
  """Mean log-probability of the tokens, logits, and gradients."""
  index = jnp.arange(tokens.shape[1])
  seen = (index[:, None] >= index) & mask[:, None, :]

  def mean_logp(params):
    hidden, _ = decoder.trunk(params, config, tokens, positions, seen)
    logits = decoder.unembed(params, config, hidden)
    logp = jnp.take_along_axis(
      jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], axis=-1
    )[..., 0]
    counted = mask[:, :-1] & mask[:, 1:]
    return jnp.sum(logp * counted) / jnp.sum(counted), logits

  (mean, logits), gradients = jax.value_and_grad(mean_logp, has_aux=True)(
    params
  )
  return mean, logits, gradients


@functools.partial(jax.jit, static_argnames="config")
def _logits(params, config, tokens, positions):
  mask = decoder.causal_mask(positions, tokens.shape[1])
  hidden, _ = decoder.trunk(params, config, tokens, positions, mask)
  return decoder.unembed(params, config, hidden)


@functools.cache
def _outputs(name, scan_layers=False):
  config, params = load_pretrained(REFERENCES / name, scan_layers=scan_layers)
  reference = _reference(name)
  inputs = (reference[key] for key in ("tokens", "mask", "positions"))
  return config, *_score(params, config, *inputs)


def _assert_close(ours, theirs, relative):
  """Within a part of the largest value: what rounding is relative to."""
  np.testing.assert_allclose(
    ours, theirs, rtol=relative, atol=relative * np.abs(theirs).max()
  )


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_log_probs_are_those_of_transformers(name):
  reference, (_, mean, logits, _) = _reference(name), _outputs(name)
  mask = reference["mask"]
  # Rows are padded left, right and not at all; by any token.
  ours, theirs = np.asarray(logits)[mask], reference["logits"][mask]
  _assert_close(ours, theirs, 1e-4)
  np.testing.assert_allclose(
    jax.nn.log_softmax(ours), jax.nn.log_softmax(theirs), rtol=0, atol=1e-4
  )
  np.testing.assert_allclose(mean, reference["mean_logp"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_transformers(name):
  config, _, _, gradients = _outputs(name)
  ours = {
    key: array.read() for key, array in arrays_of(config, LAYOUT, gradients)
  }
  theirs = {
    key.removeprefix("gradient/"): value
    for key, value in _reference(name).items()
    if key.startswith("gradient/")
  }
  assert ours.keys() == theirs.keys()
  for key in theirs:
    assert np.abs(theirs[key]).max() > 0, key
    _assert_close(ours[key], theirs[key], 1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_continuations_are_those_of_transformers(name):
  config, params = load_pretrained(REFERENCES / name)
  reference = _reference(name)
  expected = reference["continuations"]
  assert expected.shape[1] == 64
  generate = make_generate(
    config, SamplingOptions(expected.shape[1], 0.0, 0, 1.0, NO_STOP)
  )
  prompts = reference["prompts"]
  keys = completion_keys(jax.random.key(0), jnp.arange(len(prompts)), 1)
  out = generate(params, prompts, reference["prompt_lengths"], keys)
  np.testing.assert_array_equal(out.tokens[:, 0], expected)


@pytest.mark.parametrize("name", ["qwen2_windows", "qwen3_moe"])
def test_scanned_layers_are_those_of_transformers(name):
  mask = _reference(name)["mask"]
  _, mean, logits, _ = _outputs(name, scan_layers=True)
  _assert_close(
    np.asarray(logits)[mask], _reference(name)["logits"][mask], 1e-4
  )
  np.testing.assert_allclose(mean, _reference(name)["mean_logp"], atol=1e-4)


@pytest.mark.parametrize(
  ("name", "change"),
  [
    ("llama_untied_llama3", {"rope_scaling": None}),
    ("llama_untied_llama3", {"rope_theta": 400.0}),
    ("qwen3_yarn", {"rope_scaling": None}),
    ("qwen2_windows", {"windows": ()}),
    ("qwen2_windows", {"windows": (0, 9)}),
    ("qwen3_moe_unnormalised_windows", {"normalise_experts": True}),
    ("qwen3_moe_unnormalised_windows", {"experts_per_token": 2}),
    ("llama_tied", {"norm_eps": 1e-2}),
  ],
)
def test_each_option_is_seen_in_the_logits(name, change):
  # Else the agreement above would say nothing about it.
  config, params = load_pretrained(REFERENCES / name)
  reference = _reference(name)
  tokens, positions = (
    jnp.asarray(reference[key][:1]) for key in ("tokens", "positions")
  )
  logits = _logits(
    params, dataclasses.replace(config, **change), tokens, positions
  )
  assert np.abs(logits - reference["logits"][:1]).max() > 1e-2


def test_rotary_embeddings_are_those_of_transformers():
  cases = json.loads((REFERENCES / "ropes.json").read_text())
  for case in cases:
    options = case["config"]
    keys = ConfigKeys(options, "config.json")
    positions = options.get("max_position_embeddings", 0)
    theta, scaling = read_rope(keys, positions)
    half = options["head_dim"] // 2
    frequencies, scale = theta ** (-np.arange(half) / half), 1.0
    if scaling is not None:
      frequencies, scale = scaling(frequencies)
    np.testing.assert_allclose(
      frequencies, case["frequencies"], rtol=2e-6, err_msg=str(options)
    )
    np.testing.assert_allclose(scale, case["scale"], rtol=1e-6)
