"""Expected rewards along a completion: the critic of PPO."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from grpo_jax.models import decoder
from grpo_jax.models.config import ModelConfig
from grpo_jax.types import Rows


def init_critic(
  kind: Literal["head", "model"], params: dict, config: ModelConfig
) -> dict:
  """Parameters of a critic that says 0 everywhere.

  Args:
    kind: `head` reads the policy's hidden states, whose parameters then learn
      from its loss too; `model` is a decoder of its own, which starts as a
      copy of the policy.
    params: of the policy.
    config: of the policy.

  Returns:
    What `token_values` takes.
  """
  head = {"weight": jnp.zeros(config.width), "bias": jnp.zeros(())}
  if kind == "head":
    return head
  return head | {"trunk": jax.tree.map(jnp.copy, params)}


def token_values(
  critic: dict,
  config: ModelConfig,
  rows: Rows,
  hidden: Float[Array, "B S D"],
) -> tuple[Float[Array, "N T"], Float[Array, "N T"]]:
  """Expected reward before and after each completion token.

  Args:
    critic: from `init_critic`.
    config: of the policy.
    rows: the model's input.
    hidden: the policy's hidden states; only a head reads them.

  Returns:
    Two arrays in reward units, meaningless where the token is padding.
  """
  if "trunk" in critic:
    mask = decoder.segment_mask(rows.segments, rows.prompts)
    hidden, _ = decoder.trunk(
      critic["trunk"], config, rows.tokens, rows.positions, mask
    )
  values = hidden.astype(jnp.float32) @ critic["weight"] + critic["bias"]
  values = values.reshape(-1)
  return values[rows.predecessor], values[rows.places]
