"""Low-rank adapters (arXiv:2106.09685) as a pure transform of parameters."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array

from grpo_jax.models.decoder import INPUT_AXES

TARGETS = tuple(name for name in INPUT_AXES if name != "router")


@dataclasses.dataclass(frozen=True)
class LoraOptions:
  """Which weights get adapters, and of what size.

  Attributes:
    rank: r, columns of each adapter.
    alpha: the product of an adapter is scaled by alpha / rank.
    targets: names out of `TARGETS`, in every layer; all of them by default,
      as QLoRA (arXiv:2305.14314) found best. PEFT's own default for most
      models is query and value.
  """

  rank: int
  alpha: float
  targets: tuple[str, ...] = TARGETS

  def __post_init__(self):
    object.__setattr__(self, "targets", tuple(self.targets))
    if self.rank < 1 or not self.alpha > 0:
      raise ValueError("rank and alpha must be positive.")
    unknown = sorted(set(self.targets) - set(TARGETS))
    if unknown or not self.targets:
      raise ValueError(
        f"targets are {list(self.targets)}; they must be some of"
        f" {', '.join(TARGETS)}."
      )


def init_lora(params: dict, options: LoraOptions, key: Array) -> dict:
  """Adapters that change nothing yet: a is random, b is zero.

  Args:
    params: of the model; each weight W, inputs first, gets a: inputs x r,
      uniform in +-1/sqrt(inputs) as PEFT has it, and b: r x outputs.
    options: which, and how large.
    key: of the random numbers.

  Returns:
    `{block: {weight: {"a": ..., "b": ...}}}`, float32.

  Raises:
    ValueError: the model has a mixture of experts and its MLP is a target.
  """
  adapters = {}
  for block in (name for name in params if name.startswith("blocks")):
    weights, adapters[block] = params[block], {}
    mlp = {"gate", "up", "down"} & set(options.targets)
    if mlp and "router" in weights:
      raise ValueError(
        f"targets {sorted(mlp)} are experts of a mixture; adapters are for"
        " attention weights there."
      )
    stacked = weights["attention_norm"].ndim - 1
    for name in options.targets:
      key, used = jax.random.split(key)
      shape = weights[name].shape
      split = stacked + INPUT_AXES[name]
      layers, inputs, outputs = shape[:stacked], shape[:split], shape[split:]
      bound = 1 / math.sqrt(math.prod(inputs[stacked:]))
      adapters[block][name] = {
        "a": jax.random.uniform(
          used, (*inputs, options.rank), minval=-bound, maxval=bound
        ),
        "b": jnp.zeros((*layers, options.rank, *outputs)),
      }
  return adapters


def merge(base: dict, adapters: dict, options: LoraOptions) -> dict:
  """Parameters W + alpha / r * a b; base itself is only read.

  Differentiable in both. The sum is made in float32 and given W's dtype: a
  change below the rounding of bfloat16 parameters is lost in it.

  Args:
    base: parameters of the model.
    adapters: from `init_lora`.
    options: the same.

  Returns:
    Parameters of the model, sharing the arrays that have no adapter.
  """
  scale = options.alpha / options.rank

  def adapted(weight, a, b):
    rank = a.shape[-1]
    stacked = a.ndim + b.ndim - weight.ndim - 2  # 1 with a layer axis
    layers = weight.shape[:stacked]
    product = a.reshape(*layers, -1, rank) @ b.reshape(*layers, rank, -1)
    changed = weight.astype(jnp.float32) + scale * product.reshape(weight.shape)
    return changed.astype(weight.dtype)

  merged = dict(base)
  for block, weights in adapters.items():
    changed = {
      name: adapted(base[block][name], **pair) for name, pair in weights.items()
    }
    merged[block] = {**base[block], **changed}
  return merged
