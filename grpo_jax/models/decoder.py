"""A Llama-style decoder in flax.linen, used as notation only.

The KV cache is an argument and a result; everything else in the repository
sees `params` (nested dicts) and the two pure functions at the end of the file.
Axis letters are those of `grpo_jax.types`; B stands for any number of rows.
"""

import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.models.config import ModelConfig


class LayerCache(NamedTuple):
  """Keys (already rotated) and values; slot j of a row holds its position j."""

  k: Float[Array, "... B K Z C"]
  v: Float[Array, "... B K Z C"]


Cache = tuple[LayerCache, ...] | LayerCache  # stacked when layers are scanned


def rms_norm(x, scale, eps):
  """x / sqrt(mean x^2 + eps) * scale, in float32."""
  y = x.astype(jnp.float32)
  y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
  return (y * scale).astype(x.dtype)


def dense(x, weight, *, in_axes=1):
  """Contracts the last axes of x with the first axes of weight.

  As one matrix product over all tokens: XLA's CPU backend runs the gradient
  of the equivalent einsum, which contracts two axes, at less than half speed.
  """
  rows, outputs = x.shape[: x.ndim - in_axes], weight.shape[in_axes:]
  fan_in = math.prod(weight.shape[:in_axes])
  y = x.reshape(-1, fan_in) @ weight.reshape(fan_in, -1)
  return y.reshape(rows + outputs)


def rotate(x: Float[Array, "B S H C"], positions, theta):
  """Rotary embedding (arXiv:2104.09864), pairing channel c with c + C/2."""
  half = x.shape[-1] // 2
  wavelength = theta ** (jnp.arange(half, dtype=jnp.float32) / half)
  angle = positions[..., None, None].astype(jnp.float32) / wavelength
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
  return rotated.astype(x.dtype)


def attend(
  q: Float[Array, "B H S C"],
  k: Float[Array, "B K Z C"],
  v: Float[Array, "B K Z C"],
  mask: Bool[Array, "B S Z"],
) -> Float[Array, "B H S C"]:
  """Grouped-query attention; scores and softmax are in float32."""
  B, H, S, C = q.shape
  K = k.shape[1]
  q = q.reshape(B, K, H // K * S, C) * C**-0.5
  scores = jnp.einsum(
    "BKXC,BKZC->BKXZ", q, k, preferred_element_type=jnp.float32
  )
  scores = scores.reshape(B, H, S, -1)
  scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
  weights = (
    jax.nn.softmax(scores, axis=-1)
    .astype(v.dtype)
    .reshape(B, K, H // K * S, -1)
  )
  out = jnp.einsum("BKXZ,BKZC->BKXC", weights, v)
  return out.reshape(B, H, S, C)


class Block(nn.Module):
  """Pre-norm attention and SwiGLU."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x, positions, mask, cache):
    c = self.config
    D, H, K, C, F = c.width, c.heads, c.kv_heads, c.head_dim, c.mlp_width

    def weight(name, shape, fan_in):
      init = nn.initializers.normal(fan_in**-0.5)
      return self.param(name, init, shape, jnp.float32).astype(x.dtype)

    def scale(name):
      return self.param(name, nn.initializers.ones, (D,), jnp.float32)

    h = rms_norm(x, scale("attention_norm"), c.norm_eps)
    q = dense(h, weight("query", (D, H, C), D))
    k = dense(h, weight("key", (D, K, C), D))
    v = dense(h, weight("value", (D, K, C), D))
    q = rotate(q, positions, c.rope_theta).swapaxes(1, 2)
    k = rotate(k, positions, c.rope_theta).swapaxes(1, 2)
    v = v.swapaxes(1, 2)
    if cache is not None:  # row b writes its new tokens at slots positions[b]
      write = jax.vmap(
        lambda old, new, at: old.at[:, at].set(new.astype(old.dtype))
      )
      k, v = write(cache.k, k, positions), write(cache.v, v, positions)
    attended = attend(q, k, v, mask)
    x = x + dense(
      attended.swapaxes(1, 2), weight("out", (H, C, D), H * C), in_axes=2
    )

    h = rms_norm(x, scale("mlp_norm"), c.norm_eps)
    gate = jax.nn.silu(dense(h, weight("gate", (D, F), D)))
    up = dense(h, weight("up", (D, F), D))
    x = x + dense(gate * up, weight("down", (F, D), F))
    return x, LayerCache(k, v)


class Decoder(nn.Module):
  """Tokens to normalised hidden states; `unembed` turns those into logits."""

  config: ModelConfig

  def setup(self):
    c = self.config
    init = nn.initializers.normal(c.width**-0.5)
    self.embedding = self.param("embedding", init, (c.vocab_size, c.width))
    if not c.tie_embeddings:
      self.output = self.param("output", init, (c.vocab_size, c.width))
    self.final_norm = self.param("final_norm", nn.initializers.ones, (c.width,))
    if c.scan_layers:
      scanned = nn.scan(
        Block,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=(nn.broadcast, nn.broadcast, 0),
        length=c.layers,
      )
      self.blocks = scanned(c)
    else:
      self.blocks = [Block(c) for _ in range(c.layers)]

  def __call__(self, tokens, positions, mask, cache):
    c = self.config
    x = self.embedding[tokens].astype(c.dtype)
    if c.scan_layers:
      x, cache = self.blocks(x, positions, mask, cache)
    else:
      caches = cache if cache is not None else (None,) * c.layers
      new = []
      for block, layer_cache in zip(self.blocks, caches, strict=True):
        x, layer_cache = block(x, positions, mask, layer_cache)
        new.append(layer_cache)
      cache = tuple(new)
    return rms_norm(x, self.final_norm, c.norm_eps), cache

  def unembed(self, hidden):
    table = self.embedding if self.config.tie_embeddings else self.output
    return jnp.einsum(
      "...D,VD->...V",
      hidden,
      table.astype(hidden.dtype),
      preferred_element_type=jnp.float32,
    )


def init_params(config: ModelConfig, key: Array) -> dict:
  """Random float32 parameters."""
  tokens = jnp.zeros((1, 1), jnp.int32)
  mask = jnp.ones((1, 1, 1), bool)

  def everything(module):
    return module.unembed(module(tokens, tokens, mask, None)[0])

  # Compiled as one: op by op, each weight's shape would be compiled alone.
  return jax.jit(nn.init(everything, Decoder(config)))(key)["params"]


def trunk(
  params: dict,
  config: ModelConfig,
  tokens: Int[Array, "B S"],
  positions: Int[Array, "B S"],
  mask: Bool[Array, "B S Z"],
  cache: Cache | None = None,
) -> tuple[Float[Array, "B S D"], Cache]:
  """Hidden states, and the cache with these tokens in it.

  Args:
    params: from `init_params`.
    config: the same.
    tokens: any ids below V.
    positions: of each token in its own sequence; also its cache slot.
    mask: which of the Z slots (the S tokens themselves without a cache) each
      token may see.
    cache: keys and values of earlier tokens, with room for these.

  Returns:
    Normalised hidden states, and keys and values of all Z slots.
  """
  return Decoder(config).apply(
    {"params": params}, tokens, positions, mask, cache
  )


def unembed(params: dict, config: ModelConfig, hidden: Float[Array, "*B D"]):
  """Float32 logits `[*B, V]` of the token after each hidden state."""
  return Decoder(config).apply(
    {"params": params}, hidden, method=Decoder.unembed
  )


def causal_mask(
  positions: Int[Array, "B S"], slots: int
) -> Bool[Array, "B S {slots}"]:
  """A token sees the slots up to its own position: [[1,0,0],[1,1,0], ...]."""
  return jnp.arange(slots) <= positions[..., None]


def segment_mask(segments: Int[Array, "B S"]) -> Bool[Array, "B S S"]:
  """Causal within each segment: 0 0 1 gives [[1,0,0],[1,1,0],[0,0,1]]."""
  index = jnp.arange(segments.shape[1])
  same = segments[:, :, None] == segments[:, None, :]
  return same & (index[:, None] >= index[None, :])
