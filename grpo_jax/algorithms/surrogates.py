"""Per-token losses of log-ratio, advantage and log-probability.

Each returns the loss and what it counts on the way: bool arrays per token,
named as TRL names its metrics. Only a surrogate knows where it clips.
"""

import math

import jax
import jax.numpy as jnp

from grpo_jax.algorithms import masked
from grpo_jax.algorithms.checks import check_range
from grpo_jax.types import PerToken, TokenMask

Loss = tuple[PerToken, dict[str, TokenMask]]


def clipped_surrogate(
  log_ratio: PerToken,
  advantage: PerToken,
  logp: PerToken,
  *,
  eps_low: float,
  eps_high: float,
  ratio_cap: float = math.inf,
) -> Loss:
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
  check_range(1 + eps_high, ratio_cap=ratio_cap)
  ratio = jnp.exp(log_ratio)
  unclipped = jnp.minimum(ratio, ratio_cap) * advantage
  clipped = jnp.clip(ratio, 1 - eps_low, 1 + eps_high) * advantage
  below = (ratio < 1 - eps_low) & (advantage < 0)
  above = (ratio > 1 + eps_high) & (advantage > 0)
  return -jnp.minimum(unclipped, clipped), _clip_ratio(below, above)


def log_likelihood(
  log_ratio: PerToken, advantage: PerToken, logp: PerToken
) -> Loss:
  """-A log pi: the plain policy gradient; with A = 1, supervised learning."""
  return -advantage * logp, {}


def clipped_importance_weight(
  log_ratio: PerToken,
  advantage: PerToken,
  logp: PerToken,
  *,
  lowest: float,
  highest: float,
) -> Loss:
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
  loss = -jnp.clip(ratio, lowest, highest) * advantage * logp
  return loss, _clip_ratio(ratio < lowest, ratio > highest)


def soft_gate(
  log_ratio: PerToken,
  advantage: PerToken,
  logp: PerToken,
  *,
  tau_positive: float,
  tau_negative: float,
) -> Loss:
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
  tau = jnp.where(advantage > 0, tau_positive, tau_negative)
  gate = jax.nn.sigmoid(tau * jnp.expm1(log_ratio)) * 4 / tau
  return -gate * advantage, {}


def geometric_surrogate(
  log_ratio: PerToken, advantage: PerToken, logp: PerToken, *, eps: float
) -> Loss:
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
  below = (log_ratio < -eps) & (advantage < 0)
  above = (log_ratio > eps) & (advantage > 0)
  bounded = jnp.where(below, -eps, jnp.where(above, eps, log_ratio))
  mean = masked.mean(bounded, advantage != 0)
  return -advantage * jnp.exp(mean), _clip_ratio(below, above)


def regularised_log_likelihood(
  log_ratio: PerToken, advantage: PerToken, logp: PerToken, *, tau: float
) -> Loss:
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


def without_off_policy_rows(
  surrogate, log_ratio, advantage, logp, *, threshold: float
) -> Loss:
  """Drops completions with A < 0 and mean_t(log pi_old - log pi) > threshold.

  DeepSeek-V3.2 (arXiv:2512.02556), which does not tell the threshold; TRL
  suggests 0.5. Such a completion has become rare already; pushing it further
  destabilises. Dropped tokens stay in the denominator.

  Args:
    surrogate: any, on the token log-ratio.
    log_ratio: log r, in nats.
    advantage: A.
    logp: log pi, in nats.
    threshold: in nats per token.

  Returns:
    The surrogate's loss, and what it counts, the dropped tokens besides.
  """
  loss, counts = surrogate(log_ratio, advantage, logp)
  drift = -masked.mean(log_ratio, advantage != 0)
  dropped = (advantage < 0) & (drift > threshold)
  counts = counts | {"off_policy_mask/mean": dropped}
  return jnp.where(dropped, 0.0, loss), counts


def _clip_ratio(below, above):
  return {"clip_ratio/low_mean": below, "clip_ratio/high_mean": above}
