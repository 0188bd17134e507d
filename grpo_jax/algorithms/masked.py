"""Statistics of the values that a mask keeps.

The weight is such a mask, or a factor for each value: 0 leaves it out, whatever
it is, NaN included. Axes are kept, so that results broadcast; `axis` is -1 for
a group or a completion, None for the whole batch. Values and weights may have
any shapes that broadcast.
"""

import jax.numpy as jnp


def mean(values, weight, axis=-1):
  """sum(w x) / sum(w); 0 where nothing is kept."""
  kept = jnp.where(weight > 0, values, 0.0) * weight
  count = jnp.sum(weight, axis, keepdims=True)
  return jnp.sum(kept, axis, keepdims=True) / jnp.maximum(count, 1)


def std(values, weight, axis=-1, *, ddof: int):
  """sqrt(sum(w (x - mean)^2) / (sum(w) - ddof)).

  It is 1 where it vanishes, and nothing is to be scaled.
  """
  residue = jnp.where(weight > 0, values - mean(values, weight, axis), 0.0)
  count = jnp.sum(weight, axis, keepdims=True)
  square = jnp.sum(weight * residue**2, axis, keepdims=True)
  variance = square / jnp.maximum(count - ddof, 1)
  return jnp.sqrt(jnp.where(variance > 0, variance, 1.0))


def extremes(values, weight, axis=-1):
  """The smallest and the largest value; inf and -inf if none is kept."""
  kept = weight > 0
  smallest = jnp.min(jnp.where(kept, values, jnp.inf), axis, keepdims=True)
  largest = jnp.max(jnp.where(kept, values, -jnp.inf), axis, keepdims=True)
  return smallest, largest


def differ(values, weight, axis=-1):
  """Whether the kept values are not all equal: max > min.

  Not std > 0: in float32 the mean of equal rewards can differ from them, and
  dividing that residue by a tiny std makes an advantage out of nothing.
  """
  smallest, largest = extremes(values, weight, axis)
  return largest > smallest


def centred(values, weight, axis=-1):
  """x - mean x; exactly 0 where masked, and where all kept values tie."""
  signal = (weight > 0) & differ(values, weight, axis)
  return jnp.where(signal, values - mean(values, weight, axis), 0.0)


def normalised(values, weight, axis=-1, *, ddof: int, eps: float):
  """(x - mean x) / (std x + eps); 0 where `centred` is."""
  scale = std(values, weight, axis, ddof=ddof) + eps
  return centred(values, weight, axis) / scale
