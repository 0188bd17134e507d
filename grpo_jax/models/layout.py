"""Parameters as the arrays of a file, in one format or another.

A file names its arrays by layer and expert, and holds a weight as
[outputs, inputs]; ours are [inputs, outputs], with the heads' axes apart, and
may be stacks of all layers. Either is a view of the other, so that any slice
of a parameter can be read without the rest.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from grpo_jax.errors import UserError
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.decoder import INPUT_AXES, init_params


class Layout(NamedTuple):
  """What a format calls our parameters.

  Attributes:
    top: those outside of the blocks.
    block: those of a block, with {layer} to be filled in.
    experts: those of a mixture's experts, with {layer} and {expert}.
  """

  top: Mapping[str, str]
  block: Mapping[str, str]
  experts: Mapping[str, str]


class StoredArray(NamedTuple):
  """An array of a file.

  Attributes:
    file: that holds it.
    shape: as stored.
    dtype: as `read` gives it.
    read: gives all of it, as a view of the file where that is possible.
  """

  file: Path
  shape: tuple[int, ...]
  dtype: np.dtype
  read: Callable[[], np.ndarray]


class _Leaf(NamedTuple):
  """A parameter, and the stored arrays that it consists of.

  Attributes:
    path: in the tree.
    lead: its leading axes, over layers and experts: an array for each index.
    shape: of the part that is one array.
    stored_shape: of that array.
    dtype: of the parameter.
    name: of the array at an index.
  """

  path: tuple[str, ...]
  lead: tuple[int, ...]
  shape: tuple[int, ...]
  stored_shape: tuple[int, ...]
  dtype: np.dtype
  name: Callable[[tuple[int, ...]], str]

  def ours(self, stored: np.ndarray) -> np.ndarray:
    """The part of the parameter that a stored array is, as a view."""
    if self.path[-1] in INPUT_AXES:
      stored = stored.T
    return stored.reshape(self.shape)

  def theirs(self, part: np.ndarray) -> np.ndarray:
    """The inverse of `ours`."""
    if self.path[-1] in INPUT_AXES:
      return part.reshape(self.stored_shape[::-1]).T
    return part.reshape(self.stored_shape)

  def read(self, stored: Mapping[str, StoredArray], index) -> np.ndarray:
    """A slice of the parameter, filled array by array."""
    ranges = [
      range(*s.indices(n))
      for s, n in zip(index, self.lead + self.shape, strict=True)
    ]
    out = np.empty([len(r) for r in ranges], self.dtype)
    depth = len(self.lead)
    for at in np.ndindex(out.shape[:depth]):
      name = self.name(tuple(r[i] for r, i in zip(ranges, at, strict=False)))
      out[at] = self.ours(stored[name].read())[index[depth:]]
    return out


@functools.cache
def _template(config: ModelConfig) -> dict:
  return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def _leaves(config: ModelConfig, layout: Layout) -> list[_Leaf]:
  return [
    _leaf(tuple(key.key for key in path), leaf, config, layout)
    for path, leaf in jax.tree.leaves_with_path(_template(config))
  ]


def _leaf(path, leaf, config: ModelConfig, layout: Layout) -> _Leaf:
  if len(path) == 1:
    name = layout.top[path[0]]
    return _Leaf(path, (), leaf.shape, leaf.shape, leaf.dtype, lambda _: name)
  block, key = path
  stacked = block == "blocks"
  expert = bool(config.experts) and key in layout.experts
  depth = stacked + expert
  lead, shape = leaf.shape[:depth], leaf.shape[depth:]
  inputs = INPUT_AXES.get(key)
  if inputs is None:  # a norm or a bias
    stored_shape = (math.prod(shape),)
  else:
    stored_shape = (math.prod(shape[inputs:]), math.prod(shape[:inputs]))
  template = (layout.experts if expert else layout.block)[key]

  def name(index):
    layer = index[0] if stacked else block.removeprefix("blocks_")
    return template.format(layer=layer, expert=index[-1] if expert else None)

  return _Leaf(path, lead, shape, stored_shape, leaf.dtype, name)


def load_params(
  config: ModelConfig,
  layout: Layout,
  stored: Mapping[str, StoredArray],
  *,
  shardings: Sharding | dict | None = None,
) -> dict:
  """Parameters from stored arrays, each placed where it belongs.

  One parameter at a time is read, converted and placed, and each device's
  slice of it alone.

  Args:
    config: of the model.
    layout: names of the arrays.
    stored: all of them, by name.
    shardings: of all parameters, or a tree of one for each; None for the
      first device.

  Raises:
    UserError: an array is missing, is one too many, or has another shape.
    ValueError: the tree of shardings has another structure.
  """
  leaves = _leaves(config, layout)
  _check(leaves, stored)
  structure = jax.tree.structure(_template(config))
  shardings = shardings or SingleDeviceSharding(jax.devices()[0])
  if isinstance(shardings, Sharding):
    shardings = structure.unflatten([shardings] * len(leaves))
  if jax.tree.structure(shardings) != structure:
    raise ValueError(
      "shardings must be one sharding, or a tree like init_params's."
    )
  return structure.unflatten(
    jax.make_array_from_callback(
      leaf.lead + leaf.shape, sharding, functools.partial(leaf.read, stored)
    )
    for leaf, sharding in zip(leaves, jax.tree.leaves(shardings), strict=True)
  )


def _check(leaves: list[_Leaf], stored: Mapping[str, StoredArray]) -> None:
  files = ", ".join(sorted({str(array.file) for array in stored.values()}))
  shapes = {
    leaf.name(at): leaf.stored_shape
    for leaf in leaves
    for at in np.ndindex(leaf.lead)
  }
  for name, shape in shapes.items():
    if name not in stored:
      raise UserError(f"The array {name!r} is missing from {files}.")
    if stored[name].shape != shape:
      raise UserError(
        f"The array {name!r} of {stored[name].file} has the shape"
        f" {stored[name].shape}; the model's configuration makes it {shape}."
      )
  for name in stored.keys() - shapes.keys():
    raise UserError(
      f"The array {name!r} of {stored[name].file} is none of this model's;"
      " with it the model computes something else than is supported."
    )


def arrays_of(
  config: ModelConfig, layout: Layout, params: dict
) -> Iterator[tuple[str, StoredArray]]:
  """Parameters as arrays to be stored; each is copied when it is read.

  Args:
    config: of the model.
    layout: names of the arrays.
    params: from `init_params` or `load_params`.

  Raises:
    ValueError: the parameters are not those of this model.
  """
  leaves = _leaves(config, layout)
  if jax.tree.structure(params) != jax.tree.structure(_template(config)):
    raise ValueError("The parameters are not those of this model.")
  for leaf, value in zip(leaves, jax.tree.leaves(params), strict=True):
    if value.shape != leaf.lead + leaf.shape or value.dtype != leaf.dtype:
      raise ValueError(
        f"The parameter {'/'.join(leaf.path)} is {value.dtype}{value.shape},"
        f" not {leaf.dtype}{leaf.lead + leaf.shape} as in this model."
      )
    for at in np.ndindex(leaf.lead):

      def read(leaf=leaf, value=value, at=at):
        return leaf.theirs(np.asarray(value)[at])

      yield (
        leaf.name(at),
        StoredArray(Path(), leaf.stored_shape, leaf.dtype, read),
      )
