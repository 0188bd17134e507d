"""Arguments of recipes and pieces, refused by name before a run begins."""

import math


def check_range(
  at_least: float = 0.0, at_most: float = math.inf, **values: float
) -> None:
  """Raises a ValueError that names the argument which lies outside."""
  for name, value in values.items():
    if not at_least <= value <= at_most:
      raise ValueError(
        f"{name} must lie between {at_least:g} and {at_most:g}, not {value}."
      )


def check_choice(choices: tuple[str, ...], **values: str) -> None:
  """Raises a ValueError that names the argument which is none of them."""
  for name, value in values.items():
    if value not in choices:
      raise ValueError(f"{name} must be one of {choices}, not {value!r}.")
