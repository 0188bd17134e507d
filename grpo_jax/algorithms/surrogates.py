"""Per-token losses of log-ratio, advantage and log-probability.

Each returns the loss and what it counts on the way: bool arrays per token,
named as TRL names its metrics. Only a surrogate knows where it clips.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Counts = dict[str, Bool[Array, "N T"]]


def clipped_surrogate(
  log_ratio: Float[Array, "N T"],
  advantage: Float[Array, "N T"],
  logp: Float[Array, "N T"],
  *,
  eps_low: float,
  eps_high: float,
) -> tuple[Float[Array, "N T"], Counts]:
  """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A).

  PPO (arXiv:1707.06347) has eps_low = eps_high; DAPO (arXiv:2503.14476) raises
  eps_high ("clip-higher").

  Args:
    log_ratio: log r, in nats.
    advantage: A.
    logp: not used; other surrogates need it.
    eps_low: how far below 1 the ratio may fall.
    eps_high: how far above 1 it may rise.

  Returns:
    The loss, and the tokens whose clipped branch was taken at either edge.
  """
  del logp
  ratio = jnp.exp(log_ratio)
  unclipped = ratio * advantage
  clipped = jnp.clip(ratio, 1 - eps_low, 1 + eps_high) * advantage
  counts = {
    "clip_ratio/low_mean": (ratio < 1 - eps_low) & (advantage < 0),
    "clip_ratio/high_mean": (ratio > 1 + eps_high) & (advantage > 0),
  }
  return -jnp.minimum(unclipped, clipped), counts


def log_likelihood(
  log_ratio: Float[Array, "N T"],
  advantage: Float[Array, "N T"],
  logp: Float[Array, "N T"],
) -> tuple[Float[Array, "N T"], Counts]:
  """-A log pi: the plain policy gradient; with A = 1, supervised learning."""
  del log_ratio
  return -advantage * logp, {}
