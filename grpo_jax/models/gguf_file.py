"""The header of a GGUF file: entries of metadata, and where arrays lie.

Read here and not by the package of that name, which takes seconds over the
vocabulary that every such file holds, and does not say which array is cut off.
"""

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grpo_jax.errors import UserError

_SCALARS = {  # by the format's number of the type
  0: "B",
  1: "b",
  2: "H",
  3: "h",
  4: "I",
  5: "i",
  6: "f",
  7: "?",
  10: "Q",
  11: "q",
  12: "d",
}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_VERSIONS = (2, 3)
_MAGIC = b"GGUF"


class GgufArray(NamedTuple):
  """Where an array lies.

  Attributes:
    shape: slowest axis first, as in NumPy.
    kind: number of its quantisation in the format.
    offset: of its first byte in the file.
  """

  shape: tuple[int, ...]
  kind: int
  offset: int


class Gguf(NamedTuple):
  """A file's header.

  Attributes:
    metadata: entries; a list of numbers is a NumPy array, one of strings None.
    arrays: by name.
  """

  metadata: dict[str, Any]
  arrays: dict[str, GgufArray]


def read_gguf(path: Path) -> Gguf:
  """Reads the header alone.

  Raises:
    UserError: the file cannot be read, is no GGUF file or is cut off.
  """
  try:
    data = np.memmap(path, np.uint8, "r")
  except (OSError, ValueError) as error:
    raise UserError(f"{path} cannot be read: {error}.") from error
  if bytes(data[:4]) != _MAGIC:
    raise UserError(f"{path} is no GGUF file.")
  cursor = _Cursor(memoryview(data), 4)
  try:
    version, count, entries = cursor.scalars("<IQQ")
    if version not in _VERSIONS:
      raise UserError(
        f"{path} is of version {version}, which is not supported."
      )
    metadata = {}
    for _ in range(entries):
      key = cursor.string()
      (kind,) = cursor.scalars("<I")
      metadata[key] = cursor.value(kind)
    arrays = dict(cursor.array() for _ in range(count))
    alignment = metadata.get("general.alignment", 32)
    start = -(-cursor.at // alignment) * alignment
  except (
    struct.error,
    KeyError,
    ValueError,
    TypeError,
    ArithmeticError,
  ) as error:
    raise UserError(
      f"{path} is cut off or damaged: its header cannot be read ({error!r})."
      " Fetch it again."
    ) from error
  return Gguf(
    metadata,
    {
      name: array._replace(offset=start + array.offset)
      for name, array in arrays.items()
    },
  )


class _Cursor:
  """Reads a buffer from front to back."""

  def __init__(self, data: memoryview, at: int):
    self._data = data
    self.at = at

  def scalars(self, layout: str) -> tuple:
    values = struct.unpack_from(layout, self._data, self.at)
    self.at += struct.calcsize(layout)
    return values

  def string(self) -> str:
    (length,) = self.scalars("<Q")
    return str(self._bytes(length), "utf-8", "replace")

  def _bytes(self, length: int) -> memoryview:
    part = self._data[self.at : self.at + length]
    if len(part) != length:
      raise ValueError("the file ends before")
    self.at += length
    return part

  def value(self, kind: int) -> Any:
    if kind == _STRING:
      return self.string()
    if kind != _ARRAY:
      return self.scalars("<" + _SCALARS[kind])[0]
    kind, length = self.scalars("<IQ")
    if kind == _STRING:  # a vocabulary: of no concern here, and long
      for _ in range(length):
        self.at += 8 + _LENGTH.unpack_from(self._data, self.at)[0]
      return None
    dtype = np.dtype(_SCALARS[kind]).newbyteorder("<")
    return np.frombuffer(self._bytes(length * dtype.itemsize), dtype)

  def array(self) -> tuple[str, GgufArray]:
    name = self.string()
    (axes,) = self.scalars("<I")
    shape = self.scalars(f"<{axes}Q")[::-1]
    kind, offset = self.scalars("<IQ")
    return name, GgufArray(shape, kind, offset)


def check_end(path: Path, name: str, end: int) -> None:
  """Sees to it that an array lies in its file.

  Args:
    path: of the file.
    name: of the array.
    end: the byte after its last.

  Raises:
    UserError: the file ends before.
  """
  have = path.stat().st_size
  if end > have:
    raise UserError(
      f"{path} is cut off: the array {name!r} ends at byte {end} of {have}."
      " Fetch it again."
    )
