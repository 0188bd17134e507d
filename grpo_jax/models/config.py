"""The shape of a decoder: one frozen, hashable description."""

import dataclasses

from grpo_jax.models.attention import KERNELS
from grpo_jax.models.rope import Llama3Scaling, YarnScaling

DTYPES = ("float32", "bfloat16")

# What the backward pass computes again, instead of keeping it: nothing; all
# but the matrix products of each block; or each block as a whole.
REMAT = ("none", "dots", "full")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A decoder of the Llama, Qwen2 and Qwen3 families.

  Attributes:
    vocab_size: rows of the embedding, V.
    width: channels of the residual stream, D.
    layers: number of blocks, L.
    heads: query heads, H.
    kv_heads: key and value heads, K; each serves H / K query heads.
    head_dim: channels per head, C; even, because RoPE rotates pairs.
    mlp_width: channels of the gated MLP, F; of each expert, if there are any.
    tie_embeddings: use the embedding as the output projection too.
    scan_layers: one compiled block looped over stacked weights (compiles fast
      at any depth) instead of L unrolled ones (about 3x faster decoding on a
      CPU, where slicing the stack copies the weights at every step).
    dtype: of activations and matrix products.
    param_dtype: of the parameters; with bfloat16 the optimizer keeps a float32
      copy of them.
    remat: one of `REMAT`.
    attention: one of `attention.KERNELS`.
    rope_theta: base of the rotary wavelengths (arXiv:2104.09864).
    rope_scaling: how they are stretched to longer contexts.
    norm_eps: added to the mean square in RMSNorm.
    qkv_bias: whether queries, keys and values have one (Qwen2).
    qk_norm: whether queries and keys are normalised per head (Qwen3).
    windows: for each layer how many tokens back, itself included, a token
      sees; 0 sees all; () for all layers that see all.
    experts: of each block's mixture, E; 0 for one MLP (Qwen3-MoE).
    experts_per_token: how many of them a token is sent to.
    normalise_experts: whether their probabilities are made to sum to 1.
    max_positions: tokens of the longest sequence that the model is made for;
      0 for no limit.
  """

  vocab_size: int
  width: int
  layers: int
  heads: int
  kv_heads: int
  head_dim: int
  mlp_width: int
  tie_embeddings: bool
  scan_layers: bool
  dtype: str
  param_dtype: str = "float32"
  remat: str = "none"
  attention: str = "auto"
  rope_theta: float = 10_000.0
  rope_scaling: Llama3Scaling | YarnScaling | None = None
  norm_eps: float = 1e-6
  qkv_bias: bool = False
  qk_norm: bool = False
  windows: tuple[int, ...] = ()
  experts: int = 0
  experts_per_token: int = 0
  normalise_experts: bool = False
  max_positions: int = 0

  def __post_init__(self):
    for field in (
      "vocab_size",
      "width",
      "layers",
      "heads",
      "kv_heads",
      "mlp_width",
    ):
      if getattr(self, field) < 1:
        raise ValueError(f"model.{field} must be at least 1.")
    if self.heads % self.kv_heads:
      raise ValueError(
        f"model.heads ({self.heads}) must be a multiple of model.kv_heads"
        f" ({self.kv_heads}): each key-value head serves as many query heads."
      )
    if self.head_dim < 2 or self.head_dim % 2:
      raise ValueError(
        f"model.head_dim must be even and positive, not {self.head_dim}:"
        " rotary embeddings rotate pairs of channels."
      )
    for field, values in (
      ("dtype", DTYPES),
      ("param_dtype", DTYPES),
      ("remat", REMAT),
      ("attention", KERNELS),
    ):
      if getattr(self, field) not in values:
        raise ValueError(
          f"model.{field} must be one of {', '.join(values)}, not"
          f" {getattr(self, field)!r}."
        )
    if self.windows and len(self.windows) != self.layers:
      raise ValueError("model.windows needs one entry for each layer.")
    if self.experts and not 0 < self.experts_per_token <= self.experts:
      raise ValueError(
        "model.experts_per_token must lie between 1 and model.experts."
      )
