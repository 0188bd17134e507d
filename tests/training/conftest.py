"""Random rollouts, and a task that a random model solves at times."""

import dataclasses

import jax
import numpy as np
import pytest

from grpo_jax.models.config import ModelConfig
from grpo_jax.models.decoder import init_params
from grpo_jax.training.rollouts import Task
from grpo_jax.training.step import OptimizerOptions
from grpo_jax.types import EOS, LENGTH, Rollouts
from tests.toy_task import make_task

OPTIONS = OptimizerOptions(
  learning_rate=1e-2,
  warmup_steps=0,
  decay_steps=0,
  b1=0.9,
  b2=0.99,
  weight_decay=0.0,
  max_grad_norm=1.0,
)


@pytest.fixture(scope="session")
def model(model) -> ModelConfig:
  """One layer: what is tested here goes on around the decoder."""
  return dataclasses.replace(model, layers=1)


@pytest.fixture(scope="session")
def params(model):
  return init_params(model, jax.random.key(1))


@pytest.fixture(scope="session")
def task() -> Task:
  """Twelve problems to train on, six held-out ones."""
  return make_task()


@pytest.fixture(scope="session")
def random_rollouts():
  """Rollouts of random tokens and ragged lengths."""

  def make(P=4, G=4, T=6, Q=3, seed=0, accuracy=None):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, T + 1, (P, G)).astype(np.int32)
    mask = np.arange(T) < lengths[..., None]
    if accuracy is None:
      accuracy = rng.integers(0, 2, (P, G))
    accuracy = np.asarray(accuracy, np.float32)
    logp = np.where(mask, -rng.exponential(size=(P, G, T)), 0)
    return Rollouts(
      prompt_tokens=rng.integers(2, 20, (P, Q)).astype(np.int32),
      prompt_lengths=rng.integers(1, Q + 1, P).astype(np.int32),
      tokens=np.where(mask, rng.integers(1, 20, (P, G, T)), 0).astype(np.int32),
      lengths=lengths,
      stop_reason=np.where(lengths == T, LENGTH, EOS).astype(np.int32),
      loss_mask=mask,
      behaviour_logp=logp.astype(np.float32),
      sample_mask=np.ones((P, G), bool),
      version=np.zeros(P, np.int32),
      outcome=accuracy + rng.normal(size=(P, G)).astype(np.float32) / 8,
      components=np.stack([accuracy, logp.sum(-1)], -1).astype(np.float32),
      accuracy=accuracy,
      step_rewards=np.zeros_like(logp, np.float32),
      step_mask=np.zeros_like(mask),
      entropy=np.zeros_like(logp, np.float32),
      value=np.zeros_like(logp, np.float32),
      final_value=np.zeros((P, G), np.float32),
      old_logp=logp.astype(np.float32),
      ref_logp=(logp - 0.1).astype(np.float32),
    )

  return make


@pytest.fixture
def assert_trees_close():
  """Compares all leaves of two pytrees."""

  def check(one, other, rtol, atol=1e-7):
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol),
      one,
      other,
    )

  return check
