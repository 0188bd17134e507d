"""Per-token losses of log-ratio, advantage and log-probability.

Each returns the loss and what it counts on the way: bool arrays per token,
named as TRL names its metrics. Only a surrogate knows where it clips.
"""

import math

import jax
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
  ratio_cap: float = math.inf,
) -> tuple[Float[Array, "N T"], Counts]:
  """-min(min(r, c) A, clip(r, 1 - eps_low, 1 + eps_high) A).

  PPO (arXiv:1707.06347) has eps_low = eps_high; DAPO (arXiv:2503.14476) raises
  eps_high ("clip-higher"). The cap c bounds what a bad token can cost: the
  dual clip (arXiv:1912.09729, c = 3), INTELLECT-2's delta (c = 4).

  Args:
    log_ratio: log r, in nats.
    advantage: A.
    logp: not used; other surrogates need it.
    eps_low: how far below 1 the ratio may fall.
    eps_high: how far above 1 it may rise.
    ratio_cap: c; at least 1 + eps_high, or it would cut good tokens.

  Returns:
    The loss, and the tokens whose clipped branch was taken at either edge.

  Raises:
    ValueError: the cap lies below the upper clip.
  """
  del logp
  if ratio_cap < 1 + eps_high and ratio_cap != math.inf:
    raise ValueError(
      f"ratio_cap ({ratio_cap}) must be at least 1 + eps_high ({1 + eps_high})."
    )
  ratio = jnp.exp(log_ratio)
  unclipped = jnp.minimum(ratio, ratio_cap) * advantage
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


def clipped_importance_weight(
  log_ratio: Float[Array, "N T"],
  advantage: Float[Array, "N T"],
  logp: Float[Array, "N T"],
  *,
  lowest: float,
  highest: float,
) -> tuple[Float[Array, "N T"], Counts]:
  """-sg[clip(r, lowest, highest)] A log pi: no token loses its gradient.

  CISPO (MiniMax-M1, arXiv:2506.13585), which has no lower bound and does not
  tell the upper one. The name means two things: verl clips to 1 -/+ eps;
  ScaleRL (arXiv:2510.13786) and TRL cap the ratio itself, at 4 to 8. Both
  bounds are of the ratio here.

  Args:
    log_ratio: log r, in nats.
    advantage: A.
    logp: log pi, in nats.
    lowest: least weight; 0 for none.
    highest: largest weight.

  Returns:
    The loss, and the tokens at either bound.
  """
  ratio = jax.lax.stop_gradient(jnp.exp(log_ratio))
  counts = {
    "clip_ratio/low_mean": ratio < lowest,
    "clip_ratio/high_mean": ratio > highest,
  }
  return -jnp.clip(ratio, lowest, highest) * advantage * logp, counts


def soft_gate(
  log_ratio: Float[Array, "N T"],
  advantage: Float[Array, "N T"],
  logp: Float[Array, "N T"],
  *,
  tau_positive: float,
  tau_negative: float,
) -> tuple[Float[Array, "N T"], Counts]:
  """-f(r) A, f(r) = 4 / tau sigmoid(tau (r - 1)): a clip without an edge.

  SAPO (arXiv:2511.20347), tau 1.0 for A > 0 and 1.05 otherwise. At r = 1 the
  slope is 1, and the value 2 / tau.

  Args:
    log_ratio: log r, in nats.
    advantage: A.
    logp: not used.
    tau_positive: of good tokens; larger is narrower.
    tau_negative: of the others.

  Returns:
    The loss; nothing is ever clipped.
  """
  del logp
  tau = jnp.where(advantage > 0, tau_positive, tau_negative)
  gate = jax.nn.sigmoid(tau * jnp.expm1(log_ratio)) * 4 / tau
  return -gate * advantage, {}


def geometric_surrogate(
  log_ratio: Float[Array, "N T"],
  advantage: Float[Array, "N T"],
  logp: Float[Array, "N T"],
  *,
  eps: float,
) -> tuple[Float[Array, "N T"], Counts]:
  """-A (prod_t r_t)^(1/n), each r_t clipped first, on each token.

  GMPO (arXiv:2507.20673), eps 0.4: the clip is on the log-ratio, above for
  A > 0 and below for A < 0, before the mean. The n tokens of a completion are
  those of nonzero advantage, so that masked ones do not count.

  Args:
    log_ratio: log r, in nats.
    advantage: A, one value for each completion.
    logp: not used.
    eps: in nats.

  Returns:
    The loss, and the tokens that were clipped.
  """
  del logp
  counts = {
    "clip_ratio/low_mean": (log_ratio < -eps) & (advantage < 0),
    "clip_ratio/high_mean": (log_ratio > eps) & (advantage > 0),
  }
  bounded = jnp.where(
    advantage > 0, jnp.minimum(log_ratio, eps), jnp.maximum(log_ratio, -eps)
  )
  mean = _mean_over_completion(bounded, advantage)
  return -advantage * jnp.exp(mean), counts


def regularised_log_likelihood(
  log_ratio: Float[Array, "N T"],
  advantage: Float[Array, "N T"],
  logp: Float[Array, "N T"],
  *,
  tau: float,
) -> tuple[Float[Array, "N T"], Counts]:
  """-A log pi + tau / 2 (sum_t log r_t)^2, the square shared by the tokens.

  Kimi k1.5 (arXiv:2501.12599), which does not tell tau.

  Args:
    log_ratio: log r_t of each token, in nats; 0 where masked.
    advantage: A.
    logp: log pi, in nats.
    tau: in reward units per nat.

  Returns:
    The loss; summed over a completion's tokens it is the formula.
  """
  whole = jnp.sum(log_ratio, axis=-1, keepdims=True)
  return -advantage * logp + tau / 2 * whole * log_ratio, {}


def without_off_policy_rows(surrogate, *, threshold: float):
  """Drops completions with A < 0 and mean_t(log pi_old - log pi) > threshold.

  DeepSeek-V3.2 (arXiv:2512.02556), which does not tell the threshold; TRL
  suggests 0.5. Such a completion has become rare already; pushing it further
  destabilises. Dropped tokens stay in the denominator.

  Args:
    surrogate: any, on the token log-ratio.
    threshold: in nats per token.

  Returns:
    A surrogate of the same signature.
  """

  def masked(log_ratio, advantage, logp):
    loss, counts = surrogate(log_ratio, advantage, logp)
    drift = -_mean_over_completion(log_ratio, advantage)
    dropped = (advantage < 0) & (drift > threshold)
    counts = counts | {"off_policy_mask/mean": dropped}
    return jnp.where(dropped, 0.0, loss), counts

  return masked


def _mean_over_completion(values, advantage):
  """Mean over the tokens of nonzero advantage; `prepare` has masked to 0."""
  count = jnp.sum(advantage != 0, axis=-1, keepdims=True)
  total = jnp.sum(
    jnp.where(advantage != 0, values, 0.0), axis=-1, keepdims=True
  )
  return total / jnp.maximum(count, 1)
