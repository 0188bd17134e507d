"""Per-token terms beside the surrogate, each with a coefficient.

x = log pi - log pi_ref, in nats. As values, k1 = x and k3 are unbiased for
KL(pi || pi_ref), k2 is not; as losses, whose gradient is what counts, it is
k2 that is right on policy, k3 that is not, and k1 pulls nowhere.
"""

import jax
import jax.numpy as jnp

from grpo_jax.algorithms.ratios import token_log_ratio
from grpo_jax.types import PerToken, Scalar, TokenScores, TrainBatch


def kl_k3(scores: TokenScores, batch: TrainBatch) -> PerToken:
  """k3 = exp(d) - d - 1 with d = log pi_ref - log pi, in nats.

  The estimator in GRPO's loss (arXiv:2402.03300). Never negative, and unbiased
  for KL(pi || pi_ref) as a value; as a loss its expected gradient is that of
  the other direction, KL(pi_ref || pi).
  """
  return _k3(-_log_ratio_to_reference(scores, batch))


def kl_k2(scores: TokenScores, batch: TrainBatch) -> PerToken:
  """k2 = x^2 / 2, in square nats.

  REINFORCE++ with a baseline (arXiv:2501.03262, eq. 8). Biased as a value; as
  a loss its expected gradient on policy is that of KL(pi || pi_ref).
  """
  return _log_ratio_to_reference(scores, batch) ** 2 / 2


def kl_weighted_k3(scores: TokenScores, batch: TrainBatch) -> PerToken:
  """r k3 with r = pi / pi_old, in nats: right off policy as well.

  DeepSeek-V3.2 (arXiv:2512.02556). Its gradient is r x grad log pi, which is
  that of KL(pi || pi_ref) in expectation over pi_old.
  """
  x = _log_ratio_to_reference(scores, batch)
  return jnp.exp(_log_ratio_to_old(scores, batch)) * _k3(-x)


# Those that can be losses, by name.
KL_LOSSES = {"k2": kl_k2, "k3": kl_k3, "weighted_k3": kl_weighted_k3}


def negative_entropy(scores: TokenScores, batch: TrainBatch) -> PerToken:
  """-H(pi) at each token, in nats: a bonus for entropy, as PPO has it."""
  return jnp.where(batch.loss_mask, -scores.entropy, 0.0)


def negative_log_likelihood(scores: TokenScores, batch: TrainBatch) -> PerToken:
  """-log pi, in nats: VAPO's pull to right answers (arXiv:2504.05118)."""
  return jnp.where(batch.loss_mask, -scores.logp, 0.0)


def absolute_log_ratio(scores: TokenScores, batch: TrainBatch) -> PerToken:
  """|log pi - log pi_old|, in nats: KL-Cov's tether (arXiv:2505.22617).

  Without a gradient where the two are equal, as on the first update.
  """
  x = _log_ratio_to_old(scores, batch)
  return jax.lax.stop_gradient(jnp.sign(x)) * x


def clipped_value_loss(
  values: PerToken, old_values: PerToken, returns: PerToken, *, clip: float
) -> PerToken:
  """max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2.

  PPO's code (arXiv:1707.06347), not its text.

  Args:
    values: V, differentiable, in reward units.
    old_values: V when the completions were sampled.
    returns: R, the target.
    clip: c, in reward units.

  Returns:
    In square reward units.
  """
  bounded = old_values + jnp.clip(values - old_values, -clip, clip)
  return jnp.maximum((values - returns) ** 2, (bounded - returns) ** 2) / 2


def adaptive_kl_coefficient(
  coefficient: Scalar, kl: Scalar, *, target: float
) -> Scalar:
  """Halves beta below target / 1.5, doubles it above 1.5 target.

  The penalty form of PPO (arXiv:1707.06347, section 4).

  Args:
    coefficient: beta, in reward units per nat.
    kl: measured with it, in nats.
    target: in nats.

  Returns:
    Beta for the next update.
  """
  lower = jnp.where(kl < target / 1.5, coefficient / 2, coefficient)
  return jnp.where(kl > 1.5 * target, coefficient * 2, lower)


def _log_ratio_to_reference(scores, batch):
  return token_log_ratio(scores.logp, batch.ref_logp, batch.loss_mask)


def _log_ratio_to_old(scores, batch):
  return token_log_ratio(scores.logp, batch.old_logp, batch.loss_mask)


def _k3(d):
  return jnp.expm1(d) - d
