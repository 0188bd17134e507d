"""Grouped-query attention, by the kernel that suits the backend."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# xla: two matrix products and a softmax, right everywhere; cudnn: a fused
# kernel on NVIDIA GPUs; auto: cudnn where it can be used.
KERNELS = ("auto", "xla", "cudnn")
_CUDNN_MAX_HEAD_DIM = 128


def choose_kernel(
  kernel: Literal["auto", "xla", "cudnn"],
  *,
  backend: str,
  dtype: jnp.dtype,
  head_dim: int,
  queries: int,
) -> Literal["xla", "cudnn"]:
  """What `attend` runs.

  Args:
    kernel: as configured.
    backend: of JAX: cpu, gpu or tpu.
    dtype: of the activations; cuDNN takes 16-bit ones only.
    head_dim: channels per head.
    queries: S; one query at a time is a matrix-vector product, which a fused
      kernel has nothing to add to.
  """
  if kernel != "auto":
    return kernel
  fused = (
    backend == "gpu"
    and jnp.dtype(dtype).itemsize == 2
    and head_dim <= _CUDNN_MAX_HEAD_DIM
    and head_dim % 8 == 0
    and queries > 1
  )
  return "cudnn" if fused else "xla"


def attend(
  q: Float[Array, "B H S C"],
  k: Float[Array, "B K Z C"],
  v: Float[Array, "B K Z C"],
  mask: Bool[Array, "B S Z"],
  *,
  kernel: Literal["auto", "xla", "cudnn"],
) -> Float[Array, "B H S C"]:
  """softmax(q k / sqrt(C)) v; each key-value head serves H / K query heads.

  Scores and softmax are in float32, whatever the inputs are.
  """
  chosen = choose_kernel(
    kernel,
    backend=jax.default_backend(),
    dtype=q.dtype,
    head_dim=q.shape[-1],
    queries=q.shape[2],
  )
  if chosen == "cudnn":
    out = jax.nn.dot_product_attention(
      *(x.swapaxes(1, 2) for x in (q, k, v)),
      mask=mask[:, None],
      implementation="cudnn",
    )
    return out.swapaxes(1, 2)
  B, H, S, C = q.shape
  K = k.shape[1]
  q = q.reshape(B, K, H // K * S, C) * C**-0.5
  scores = jnp.einsum(
    "BKXC,BKZC->BKXZ", q, k, preferred_element_type=jnp.float32
  )
  scores = scores.reshape(B, H, S, -1)
  scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
  weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  weights = weights.reshape(B, K, H // K * S, -1)
  out = jnp.einsum("BKXZ,BKZC->BKXC", weights, v)
  return out.reshape(B, H, S, C)
