"""The optimizer step: a sum over microbatches, one update."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from grpo_jax.algorithms.loss import token_loss
from grpo_jax.algorithms.recipes import Critic, Recipe
from grpo_jax.models import lora
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.logprobs import score
from grpo_jax.training.master_weights import with_master_weights
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
  critic: Critic | None = None,
  *,
  master_weights: bool = False,
) -> optax.GradientTransformation:
  """Gradient clipping, then AdamW, of (policy, critic) parameters.

  Each of the two is clipped alone, and has its own learning rate.

  Args:
    options: of both.
    critic: None without one.
    master_weights: whether the optimizer keeps a float32 copy of parameters
      that are bfloat16, as `with_master_weights` does.
  """

  def adamw(factor):
    schedule = make_schedule(options)
    optimizer = optax.chain(
      optax.clip_by_global_norm(options.max_grad_norm),
      optax.adamw(
        lambda count: factor * schedule(count),
        b1=options.b1,
        b2=options.b2,
        weight_decay=options.weight_decay,
      ),
    )
    return with_master_weights(optimizer) if master_weights else optimizer

  if critic is None:
    return adamw(1.0)
  return optax.partition(
    {"policy": adamw(1.0), "critic": adamw(critic.learning_rate_factor)},
    ("policy", "critic"),
  )


def init_state(
  params: dict,
  optimizer: optax.GradientTransformation,
  *,
  critic: dict | tuple = (),
  memory: dict | None = None,
) -> TrainState:
  """A state before its first update. It owns a copy of what it is given."""
  copied = jax.tree.map(jnp.array, (params, critic))
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=copied[0],
    critic=copied[1],
    memory=jax.tree.map(jnp.array, memory or {}),
    opt_state=optimizer.init(copied),
    skipped=jnp.zeros((), jnp.int32),
    skipped_in_a_row=jnp.zeros((), jnp.int32),
  )


def make_train_step(
  recipe: Recipe,
  config: ModelConfig,
  optimizer: optax.GradientTransformation,
  *,
  temperature: float,
  adapters: lora.LoraOptions | None = None,
) -> Callable:
  """Compiles `train_step(state, batch, base=None) -> (state, metrics)`.

  Args:
    recipe: the algorithm.
    config: of the model.
    optimizer: of the state.
    temperature: that the completions were sampled at.
    adapters: of the state's parameters, if these are adapters of `base`.

  Returns:
    A jitted function that takes over `state`'s buffers. `batch` is a
    `TrainBatch` whose leaves lead with a microbatch axis; the update is that
    of the whole batch, however it is split. An update whose loss, gradient or
    result is not finite leaves parameters and optimizer as they were.
    `metrics` are (total, weight) pairs.
  """

  def loss_fn(learned, base, micro):
    params, critic = learned
    if adapters is not None:
      params = lora.merge(base, params, adapters)
    scores = score(
      params,
      config,
      micro.rows,
      micro.tokens,
      temperature=temperature,
      critic=critic,
    )
    return token_loss(recipe, scores, micro)

  def train_step(state, batch, base=None):
    learned = (state.params, state.critic)

    def grads_and_metrics(micro):
      grads, metrics = jax.grad(loss_fn, has_aux=True)(learned, base, micro)
      return optax.tree.cast(grads, jnp.float32), metrics

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
    updates, opt_state = optimizer.update(grads, state.opt_state, learned)
    updated = optax.apply_updates(learned, updates)
    finite &= jnp.isfinite(optax.global_norm(updated))

    def keep_if_finite(new, old):
      return jnp.where(finite, new, old)

    if recipe.critic:
      updated, opt_state = _freeze_policy(
        ~jnp.any(batch.weight != 0), (updated, opt_state), state
      )
    params, critic = jax.tree.map(keep_if_finite, updated, learned)
    new_state = state.replace(
      step=state.step + 1,
      params=params,
      critic=critic,
      opt_state=jax.tree.map(keep_if_finite, opt_state, state.opt_state),
      skipped=state.skipped + (1 - finite.astype(jnp.int32)),
      skipped_in_a_row=jnp.where(finite, 0, state.skipped_in_a_row + 1),
    )
    metrics["loss"] = (loss, one)
    metrics["grad_norm"] = (grad_norm, one)
    metrics["update_skipped"] = (1.0 - finite, one)
    return new_state, metrics

  return jax.jit(train_step, donate_argnums=(0,))


def _freeze_policy(frozen, updated, state: TrainState):
  """Undoes an update of the policy while only the critic is warmed up.

  Its optimizer too: Adam would count updates without a gradient, and start
  with steps of another size.
  """
  (params, critic), opt_state = updated

  def keep(new, old):
    return jax.tree.map(lambda n, o: jnp.where(frozen, o, n), new, old)

  inner = opt_state.inner_states
  policy = keep(inner["policy"], state.opt_state.inner_states["policy"])
  opt_state = opt_state._replace(inner_states=inner | {"policy": policy})
  return (keep(params, state.params), critic), opt_state
