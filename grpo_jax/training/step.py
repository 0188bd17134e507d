"""The optimizer step: a sum over microbatches, one update."""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from grpo_jax.algorithms.loss import token_loss
from grpo_jax.algorithms.recipes import Recipe
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.logprobs import completion_rows, score
from grpo_jax.types import TrainState


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
  """AdamW with warm-up and gradient clipping.

  Attributes:
    learning_rate: after the warm-up.
    warmup_steps: optimizer updates of linear rise from 0.
    decay_steps: updates, warm-up included, over which a cosine then falls to
      zero; 0 keeps the rate constant.
    b1: decay of the mean gradient.
    b2: decay of the mean squared gradient.
    weight_decay: of all parameters, per unit of learning rate.
    max_grad_norm: larger global gradient norms are scaled down to it.
  """

  learning_rate: float
  warmup_steps: int
  decay_steps: int
  b1: float
  b2: float
  weight_decay: float
  max_grad_norm: float

  def __post_init__(self):
    if not self.learning_rate > 0:
      raise ValueError("learning_rate must be positive.")
    if self.max_grad_norm <= 0:
      raise ValueError("max_grad_norm must be positive.")
    if self.warmup_steps < 0 or self.weight_decay < 0:
      raise ValueError("warmup_steps and weight_decay must not be negative.")
    if not (0 <= self.b1 < 1 and 0 <= self.b2 < 1):
      raise ValueError("b1 and b2 must lie in [0, 1).")
    if self.decay_steps and self.decay_steps <= self.warmup_steps:
      raise ValueError("decay_steps must exceed warmup_steps, or be 0.")


def make_schedule(options: OptimizerOptions) -> optax.Schedule:
  """Learning rate of each update."""
  if options.decay_steps:
    return optax.warmup_cosine_decay_schedule(
      init_value=0.0,
      peak_value=options.learning_rate,
      warmup_steps=options.warmup_steps,
      decay_steps=options.decay_steps,
    )
  return optax.linear_schedule(
    0.0 if options.warmup_steps else options.learning_rate,
    options.learning_rate,
    options.warmup_steps,
  )


def make_optimizer(
  options: OptimizerOptions,
) -> optax.GradientTransformation:
  """Gradient clipping, then AdamW."""
  return optax.chain(
    optax.clip_by_global_norm(options.max_grad_norm),
    optax.adamw(
      make_schedule(options),
      b1=options.b1,
      b2=options.b2,
      weight_decay=options.weight_decay,
    ),
  )


def init_state(
  params: dict, optimizer: optax.GradientTransformation
) -> TrainState:
  """A state before its first update. It owns a copy of the parameters."""
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=jax.tree.map(jnp.copy, params),
    opt_state=optimizer.init(params),
    skipped=jnp.zeros((), jnp.int32),
    skipped_in_a_row=jnp.zeros((), jnp.int32),
  )


def make_train_step(
  recipe: Recipe,
  config: ModelConfig,
  optimizer: optax.GradientTransformation,
  *,
  temperature: float,
) -> Callable:
  """Compiles `train_step(state, batch) -> (state, metrics)`.

  Args:
    recipe: the algorithm.
    config: of the model.
    optimizer: of the state.
    temperature: that the completions were sampled at.

  Returns:
    A jitted function that takes over `state`'s buffers. `batch` is a
    `TrainBatch` whose leaves lead with a microbatch axis; the update is that
    of the whole batch, however it is split. An update whose loss, gradient or
    result is not finite leaves parameters and optimizer as they were.
    `metrics` are (total, weight) pairs.
  """

  def loss_fn(params, micro):
    scores = score(
      params, config, micro.rows, micro.tokens, temperature=temperature
    )
    return token_loss(recipe, scores, micro)

  def train_step(state, batch):
    def grads_and_metrics(micro):
      grads, metrics = jax.grad(loss_fn, has_aux=True)(state.params, micro)
      return grads, metrics

    def accumulate(total, micro):
      return jax.tree.map(jnp.add, total, grads_and_metrics(micro)), None

    first = jax.tree.map(lambda x: x[0], batch)
    zeros = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype),
      jax.eval_shape(grads_and_metrics, first),
    )
    (grads, metrics), _ = jax.lax.scan(accumulate, zeros, batch)

    one = jnp.ones(())
    grad_norm = optax.global_norm(grads)
    loss = metrics["loss"][0]
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    finite &= jnp.isfinite(optax.global_norm(params))

    def keep_if_finite(new, old):
      return jnp.where(finite, new, old)

    new_state = TrainState(
      step=state.step + 1,
      params=jax.tree.map(keep_if_finite, params, state.params),
      opt_state=jax.tree.map(keep_if_finite, opt_state, state.opt_state),
      skipped=state.skipped + (1 - finite.astype(jnp.int32)),
      skipped_in_a_row=jnp.where(finite, 0, state.skipped_in_a_row + 1),
    )
    metrics["loss"] = (loss, one)
    metrics["grad_norm"] = (grad_norm, one)
    metrics["update_skipped"] = (1.0 - finite, one)
    return new_state, metrics

  return jax.jit(train_step, donate_argnums=(0,))


def make_scorer(
  config: ModelConfig,
  *,
  temperature: float,
  groups_per_call: int,
  ref_params: dict | None,
) -> Callable:
  """A function that fills in the trainer's log-probabilities of groups.

  Args:
    config: of the model.
    temperature: that the completions were sampled at.
    groups_per_call: the one batch size that is compiled.
    ref_params: of the reference policy; None leaves `ref_logp` at zero and
      runs nothing.

  Returns:
    `scorer(params, rollouts) -> (rollouts, seconds)`, arrays on the host.
  """

  @jax.jit
  def score_groups(params, prompt_tokens, prompt_lengths, tokens):
    P, G, T = tokens.shape
    flat = tokens.reshape(P * G, T)
    rows = completion_rows(
      jnp.repeat(prompt_tokens, G, axis=0),
      jnp.repeat(prompt_lengths, G, axis=0),
      flat,
    )
    scores = score(params, config, rows, flat, temperature=temperature)
    return scores.logp.reshape(P, G, T)

  def logp_of(params, rollouts):
    inputs = (rollouts.prompt_tokens, rollouts.prompt_lengths, rollouts.tokens)
    parts = []
    for at in range(0, len(inputs[0]), groups_per_call):
      part = [x[at : at + groups_per_call] for x in inputs]
      missing = groups_per_call - len(part[0])
      filled = [np.concatenate([x, np.repeat(x[:1], missing, 0)]) for x in part]
      logp = np.asarray(score_groups(params, *filled))
      parts.append(logp[: len(part[0])])
    return np.concatenate(parts)

  def scorer(params, rollouts):
    start = time.perf_counter()
    rollouts = rollouts.replace(old_logp=logp_of(params, rollouts))
    if ref_params is not None:
      rollouts = rollouts.replace(ref_logp=logp_of(ref_params, rollouts))
    return rollouts, time.perf_counter() - start

  return scorer
