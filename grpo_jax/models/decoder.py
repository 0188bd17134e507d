"""A decoder of the Llama and Qwen families in flax.linen, as notation only.

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

from grpo_jax.models.attention import attend
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.experts import mixture
from grpo_jax.models.rope import rotate, rotation

_UNLIMITED = 2**30  # tokens; of a window that is none

# Axes of a block's weight that are summed over, after those of layers and
# experts; the others are outputs.
INPUT_AXES = {
  "query": 1,
  "key": 1,
  "value": 1,
  "out": 2,
  "router": 1,
  "gate": 1,
  "up": 1,
  "down": 1,
}


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


class Block(nn.Module):
  """Pre-norm attention and SwiGLU, or a mixture of SwiGLU experts."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x, positions, turn, mask, window, cache):
    c = self.config
    D, H, K, C, F = c.width, c.heads, c.kv_heads, c.head_dim, c.mlp_width

    def weight(name, shape, fan_in):
      init = nn.initializers.normal(fan_in**-0.5)
      return self.param(name, init, shape, c.param_dtype).astype(x.dtype)

    def norm(x, name):
      init = nn.initializers.ones
      scale = self.param(name, init, x.shape[-1:], c.param_dtype)
      return rms_norm(x, scale, c.norm_eps)

    def heads(x, name, count):
      y = dense(x, weight(name, (D, count, C), D))
      if c.qkv_bias:
        init = nn.initializers.zeros
        bias = self.param(f"{name}_bias", init, (count, C), c.param_dtype)
        y = y + bias.astype(x.dtype)
      return y

    h = norm(x, "attention_norm")
    q, k, v = heads(h, "query", H), heads(h, "key", K), heads(h, "value", K)
    if c.qk_norm:
      q, k = norm(q, "query_norm"), norm(k, "key_norm")
    q, k = rotate(q, turn).swapaxes(1, 2), rotate(k, turn).swapaxes(1, 2)
    v = v.swapaxes(1, 2)
    if cache is None:
      seen_positions = positions
    else:  # row b writes its new tokens at slots positions[b]
      write = jax.vmap(
        lambda old, new, at: old.at[:, at].set(new.astype(old.dtype))
      )
      k, v = write(cache.k, k, positions), write(cache.v, v, positions)
      seen_positions = jnp.arange(k.shape[2])[None]
    if c.windows:
      distance = positions[:, :, None] - seen_positions[:, None, :]
      mask = mask & (distance < window)
    attended = attend(q, k, v, mask, kernel=c.attention)
    x = x + dense(
      attended.swapaxes(1, 2), weight("out", (H, C, D), H * C), in_axes=2
    )

    h = norm(x, "mlp_norm")
    if c.experts:
      E = c.experts
      y = mixture(
        h.reshape(-1, D),
        weight("router", (D, E), D),
        weight("gate", (E, D, F), D),
        weight("up", (E, D, F), D),
        weight("down", (E, F, D), F),
        chosen=c.experts_per_token,
        normalise=c.normalise_experts,
      ).reshape(h.shape)
    else:
      gate = jax.nn.silu(dense(h, weight("gate", (D, F), D)))
      up = dense(h, weight("up", (D, F), D))
      y = dense(gate * up, weight("down", (F, D), F))
    return x + y, LayerCache(k, v)


def _rematerialised(config: ModelConfig) -> type[Block]:
  """The block, with what its backward pass computes again."""
  if config.remat == "none":
    return Block
  policy = None
  if config.remat == "dots":
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
  return nn.remat(Block, policy=policy, prevent_cse=not config.scan_layers)


class Decoder(nn.Module):
  """Tokens to normalised hidden states; `unembed` turns those into logits."""

  config: ModelConfig

  def setup(self):
    c = self.config
    shape = (c.vocab_size, c.width)
    init = nn.initializers.normal(c.width**-0.5)
    self.embedding = self.param("embedding", init, shape, c.param_dtype)
    if not c.tie_embeddings:
      self.output = self.param("output", init, shape, c.param_dtype)
    self.final_norm = self.param(
      "final_norm", nn.initializers.ones, (c.width,), c.param_dtype
    )
    block = _rematerialised(c)
    if c.scan_layers:
      scanned = nn.scan(
        block,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=(nn.broadcast, nn.broadcast, nn.broadcast, 0, 0),
        length=c.layers,
      )
      self.blocks = scanned(c)
    else:
      self.blocks = [block(c) for _ in range(c.layers)]

  def __call__(self, tokens, positions, mask, cache):
    c = self.config
    x = self.embedding[tokens].astype(c.dtype)
    turn = rotation(positions, c.head_dim, c.rope_theta, c.rope_scaling)
    # Kept from being computed again in every layer that it would be fused into.
    turn = jax.lax.optimization_barrier(turn)
    windows = [w or _UNLIMITED for w in c.windows or (0,) * c.layers]
    if c.scan_layers:
      x, cache = self.blocks(
        x, positions, turn, mask, jnp.asarray(windows), cache
      )
    else:
      caches = cache if cache is not None else (None,) * c.layers
      new = []
      for block, window, layer_cache in zip(
        self.blocks, windows, caches, strict=True
      ):
        x, layer_cache = block(x, positions, turn, mask, window, layer_cache)
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
  """Random parameters."""
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


def segment_mask(
  segments: Int[Array, "B S"], prompts: Int[Array, "B S"]
) -> Bool[Array, "B S S"]:
  """Causal within a token's own segment, and within that of its prompt.

  Segments 0 1 2, all with prompt 0, give [[1,0,0],[1,1,0],[1,0,1]].

  Args:
    segments: of each token.
    prompts: the segment that a token sees besides its own; or its own.
  """
  index = jnp.arange(segments.shape[1])
  seen = segments[:, None, :]
  visible = (seen == segments[..., None]) | (seen == prompts[..., None])
  return visible & (index[:, None] >= index[None, :])
