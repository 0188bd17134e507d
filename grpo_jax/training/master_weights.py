"""float32 copies of 16-bit parameters, which small updates are added to."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class MasterState(NamedTuple):
  """Of `with_master_weights`.

  Attributes:
    master: the parameters, float32.
    inner: state of the optimizer of those.
  """

  master: Any
  inner: Any


def with_master_weights(
  optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
  """An optimizer of float32 copies; the parameters are those, rounded.

  An update of 1e-6 of a parameter is below the rounding of bfloat16, and
  would be lost if it were added to the parameter itself. (Micikevicius et al.,
  arXiv:1710.03740, section 3.1.)

  Args:
    optimizer: that sees float32 parameters and gradients only.

  Returns:
    A transformation whose updates, added in float32, give the copies.
  """

  def init(params):
    # Copies even of what is float32 already: both may be donated.
    master = jax.tree.map(lambda p: jnp.array(p, jnp.float32), params)
    return MasterState(master, optimizer.init(master))

  def update(grads, state, params=None):
    grads = optax.tree.cast(grads, jnp.float32)
    updates, inner = optimizer.update(grads, state.inner, state.master)
    master = optax.apply_updates(state.master, updates)
    change = optax.tree.sub(master, optax.tree.cast(params, jnp.float32))
    return change, MasterState(master, inner)

  return optax.GradientTransformation(init, update)
