"""The safetensors format: a JSON header, then the bytes of the arrays.

Read here and not by the package of that name, whose NumPy side knows no
bfloat16: a memory map gives any slice, of any view, without copies of the rest.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from grpo_jax.errors import UserError
from grpo_jax.models.layout import StoredArray

_DTYPES = {
  "F32": np.dtype(np.float32),
  "F16": np.dtype(np.float16),
  "BF16": np.dtype(ml_dtypes.bfloat16),
}
_HEADER_BYTES = 100_000_000  # the format's own limit


def read_safetensors(path: Path) -> dict[str, StoredArray]:
  """The arrays of a file by name, none of them read yet.

  Raises:
    UserError: the file is damaged, or holds a type that no weight has.
  """
  size = path.stat().st_size
  with path.open("rb") as file:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, _HEADER_BYTES):
      raise UserError(
        f"{path} is cut off or no safetensors file. Fetch it again."
      )
    text = file.read(length)
  try:
    header = json.loads(text)
    header.pop("__metadata__", None)
    entries = {name: _entry(entry) for name, entry in header.items()}
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise UserError(
      f"{path} is damaged: its header cannot be read ({error}). Fetch it again."
    ) from error
  start, end = 8 + length, 0
  arrays = {}
  for name, (kind, shape, first, last) in sorted(
    entries.items(), key=lambda item: item[1][2:]
  ):
    if kind not in _DTYPES:
      raise UserError(
        f"The array {name!r} of {path} is of type {kind}; only"
        f" {', '.join(_DTYPES)} are supported."
      )
    if start + last > size:
      raise UserError(
        f"{path} is cut off: the array {name!r} ends at byte {start + last} of"
        f" {size}. Fetch it again."
      )
    # Arrays follow each other without gaps.
    expected = first + _DTYPES[kind].itemsize * math.prod(shape)
    if first != end or last != expected:
      raise UserError(
        f"{path} is damaged: the array {name!r} lies at bytes {first} to"
        f" {last}; {kind}{list(shape)} after the one before lies at {end} to"
        f" {end + expected - first}. Fetch it again."
      )
    end = last
    arrays[name] = _stored(path, start + first, shape, _DTYPES[kind])
  if start + end != size:
    raise UserError(
      f"{path} is damaged: {size - start - end} bytes at its end belong to no"
      " array. Fetch it again."
    )
  return arrays


def _entry(entry: Mapping[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
  first, last = map(int, entry["data_offsets"])
  return entry["dtype"], tuple(map(int, entry["shape"])), first, last


def _stored(path, offset, shape, dtype) -> StoredArray:
  def read():
    # Mapped anew for each array: pages that were read go with it.
    return np.memmap(path, dtype, "r", offset, shape)

  return StoredArray(path, shape, dtype, read)


def write_safetensors(path: Path, arrays: Mapping[str, StoredArray]) -> None:
  """Writes arrays one after another; one at a time is in memory."""
  names = {dtype: name for name, dtype in _DTYPES.items()}
  header = {"__metadata__": {"format": "pt"}}  # which transformers asks for
  end = 0
  for name, array in arrays.items():
    first, end = end, end + array.dtype.itemsize * math.prod(array.shape)
    header[name] = {
      "dtype": names[array.dtype],
      "shape": array.shape,
      "data_offsets": (first, end),
    }
  text = json.dumps(header).encode()
  text += b" " * (-len(text) % 8)  # arrays begin at a multiple of 8
  with path.open("wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
      values = np.ascontiguousarray(array.read())
      file.write(values.reshape(-1).view(np.uint8).data)
    file.flush()
    os.fsync(file.fileno())
