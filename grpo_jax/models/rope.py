"""Rotary position embeddings (arXiv:2104.09864) and how they are stretched."""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
  """Llama 3.1's: long wavelengths are divided by a factor, short ones kept.

  Attributes:
    factor: that frequencies far below the context are divided by.
    low_freq_factor: wavelengths above original_positions / this are divided.
    high_freq_factor: wavelengths below original_positions / this are kept;
      in between, the two are blended.
    original_positions: context of the pre-training, in tokens.
  """

  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_positions: int

  def __call__(self, frequencies: np.ndarray) -> tuple[np.ndarray, float]:
    """Frequencies in radians per token, and the factor of sines and cosines."""
    turns = self.original_positions * frequencies / (2 * math.pi)
    low, high = self.low_freq_factor, self.high_freq_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return frequencies * (kept + (1 - kept) / self.factor), 1.0


@dataclasses.dataclass(frozen=True)
class YarnScaling:
  """YaRN (arXiv:2309.00071): NTK-by-parts, and a temperature on attention.

  Attributes:
    factor: that the context grows by.
    original_positions: context of the pre-training, in tokens.
    beta_fast: channels that turn more often than this over the original
      context keep their frequency.
    beta_slow: channels that turn less often are divided by the factor.
    attention_factor: of sines and cosines; None for 0.1 ln(factor) + 1.
    truncate: whether the blended range of channels is widened to whole ones.
  """

  factor: float
  original_positions: int
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  attention_factor: float | None = None
  truncate: bool = True

  def __call__(self, frequencies: np.ndarray) -> tuple[np.ndarray, float]:
    """Frequencies in radians per token, and the factor of sines and cosines."""
    half = len(frequencies)
    # frequency[c] = base^-c/half, so a channel turns `turns` times at:
    log_base = -math.log(frequencies[1]) if half > 1 else 1.0

    def channel(turns):
      wavelength = self.original_positions / (turns * 2 * math.pi)
      return math.log(wavelength) / log_base

    low, high = channel(self.beta_fast), channel(self.beta_slow)
    if self.truncate:
      low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * half - 1)
    if low == high:
      high += 0.001  # a step, not a division by zero
    divided = np.clip((np.arange(half) - low) / (high - low), 0.0, 1.0)
    scale = self.attention_factor
    if scale is None:
      scale = 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0
    return frequencies * (1 - divided + divided / self.factor), scale


class Rotation(NamedTuple):
  """Of each token, for all layers; the same for every head; half is C / 2."""

  cos: Float[Array, "B S 1 half"]
  sin: Float[Array, "B S 1 half"]


def rotation(
  positions: Int[Array, "B S"],
  head_dim: int,
  theta: float,
  scaling: Llama3Scaling | YarnScaling | None = None,
) -> Rotation:
  """Cosine and sine of position * theta^(-2c/C), in float32."""
  half = head_dim // 2
  frequencies, scale = theta ** (-np.arange(half) / half), 1.0
  if scaling is not None:
    frequencies, scale = scaling(frequencies)
  angle = positions[..., None, None] * jnp.asarray(frequencies, jnp.float32)
  return Rotation(cos=scale * jnp.cos(angle), sin=scale * jnp.sin(angle))


def rotate(x: Float[Array, "B S H C"], by: Rotation) -> Float[Array, "B S H C"]:
  """Turns the pairs of channels (c, c + C/2), in float32."""
  a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(
    [a * by.cos - b * by.sin, b * by.cos + a * by.sin], axis=-1
  )
  return rotated.astype(x.dtype)
