"""The shape of a decoder: one frozen, hashable description."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A Llama-style decoder.

  Attributes:
    vocab_size: rows of the embedding, V.
    width: channels of the residual stream, D.
    layers: number of blocks, L.
    heads: query heads, H.
    kv_heads: key and value heads, K; each serves H / K query heads.
    head_dim: channels per head, C; even, because RoPE rotates pairs.
    mlp_width: channels of the gated MLP, F.
    tie_embeddings: use the embedding as the output projection too.
    scan_layers: one compiled block looped over stacked weights (compiles fast
      at any depth) instead of L unrolled ones (about 3x faster decoding on a
      CPU, where slicing the stack copies the weights at every step).
    dtype: of activations and matrix products; parameters stay float32.
    rope_theta: base of the rotary wavelengths (arXiv:2104.09864).
    norm_eps: added to the mean square in RMSNorm.
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
  rope_theta: float = 10_000.0
  norm_eps: float = 1e-6

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
    if self.dtype not in ("float32", "bfloat16"):
      raise ValueError(
        f"model.dtype must be float32 or bfloat16, not {self.dtype!r}."
      )
