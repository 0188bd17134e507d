"""How published results on mathematical problems sample their completions.

A figure of one convention says little of another's. What a name does not set:
the tokens that a completion may have (`sampling.max_completion_tokens`; the
publishers' are given below), and the prompt.
"""

import dataclasses

from grpo_jax.reporting.estimators import MAX_VOTES


@dataclasses.dataclass(frozen=True)
class Convention:
  """Sampling of held-out problems.

  Attributes:
    samples: of each problem, n of avg@n.
    temperature: divides the logits; 0 is greedy.
    top_p: mass kept; 1 keeps all.
    top_k: most likely tokens kept; 0 keeps all.
  """

  samples: int
  temperature: float
  top_p: float
  top_k: int

  def __post_init__(self):
    if not 1 <= self.samples <= MAX_VOTES:
      raise ValueError(
        f"a problem has between 1 and {MAX_VOTES} samples, not {self.samples}:"
        " maj@k counts no more."
      )


def plain(
  *,
  samples: int = 8,
  temperature: float = 1.0,
  top_p: float = 1.0,
  top_k: int = 0,
) -> Convention:
  """The policy's own distribution."""
  return Convention(samples, temperature, top_p, top_k)


def greedy(*, samples: int = 1) -> Convention:
  """The most likely token each time; more samples would all be the same."""
  if samples != 1:
    raise ValueError("greedy decoding has one sample of each problem.")
  return Convention(samples, temperature=0.0, top_p=1.0, top_k=0)


def dapo(
  *,
  samples: int = 32,
  temperature: float = 1.0,
  top_p: float = 0.7,
  top_k: int = 0,
) -> Convention:
  """avg@32 on AIME (arXiv:2503.14476), at most 20,480 tokens."""
  return Convention(samples, temperature, top_p, top_k)


def r1(
  *,
  samples: int = 64,
  temperature: float = 0.6,
  top_p: float = 0.95,
  top_k: int = 0,
) -> Convention:
  """pass@1 of 64 samples, cons@64 (arXiv:2501.12948), at most 32,768 tokens."""
  return Convention(samples, temperature, top_p, top_k)


def qwen3(
  *,
  samples: int = 64,
  temperature: float = 0.6,
  top_p: float = 0.95,
  top_k: int = 20,
) -> Convention:
  """Thinking mode (arXiv:2505.09388): 38,912 tokens on AIME, or 32,768.

  Without thinking it is temperature 0.7, top_p 0.8 and top_k 20, with a
  presence penalty of 1.5, which this sampler does not have.
  """
  return Convention(samples, temperature, top_p, top_k)
