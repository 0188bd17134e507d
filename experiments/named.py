"""Calls functions that a config names, with the arguments it gives."""

import ast
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from experiments.keys import unknown_name
from grpo_jax.errors import UserError

# What text that is no Python, or too much of it, leads to.
_NOT_PYTHON = (SyntaxError, TypeError, ValueError, RecursionError, MemoryError)


def call_named(
  what: str,
  name: str,
  args: str,
  *,
  home: ModuleType | None,
  given: dict,
  offered: dict | None = None,
) -> Any:
  """Calls the function `name` with what the config and the program give.

  Args:
    what: the section of the config, for errors.
    name: `function` of the module `home`, or `module:function`.
    args: "key=value, key=value" with Python literals.
    home: module of plain names; None if there is none.
    given: arguments that the program itself provides.
    offered: the same, for functions that take them.

  Returns:
    What the function returns.

  Raises:
    UserError: there is no such function, or it does not take these arguments.
  """
  function = _find(what, name, home)
  taken = inspect.signature(function).parameters
  given = given | {k: v for k, v in (offered or {}).items() if k in taken}
  extra = parse_args(f"{what}.args", args)
  return _call(what, name, function, extra, given)


def takes(
  what: str, name: str, argument: str, *, home: ModuleType | None
) -> bool:
  """Whether the function that `call_named` would call has an argument."""
  return argument in inspect.signature(_find(what, name, home)).parameters


def call_function(what: str, function: Callable, args: str, given: dict) -> Any:
  """Calls a function with what the config and the program give.

  Args:
    what: the key of the config, for errors.
    function: or a class.
    args: "key=value, key=value" with Python literals.
    given: arguments that the program itself provides.

  Returns:
    What the function returns.

  Raises:
    UserError: it does not take these arguments.
  """
  extra = parse_args(what, args)
  return _call(what, function.__name__, function, extra, given)


def apply_pieces(what: str, pieces: str, home: ModuleType, value: Any) -> Any:
  """Sends a value through functions: "f(a=1), g(b=2)" makes g(f(value)).

  Args:
    what: the key of the config, for errors.
    pieces: calls with keyword arguments that are Python literals, or ""; your
      own by module:function(...).
    home: module of plain names.
    value: first argument of the first one.

  Returns:
    The result of the last one; the value if there is none.

  Raises:
    UserError: as for `call_named`.
  """
  for name, extra in _parse_calls(what, pieces):
    function = _find(what, name, home)
    first = next(iter(inspect.signature(function).parameters))
    value = _call(what, name, function, extra, {first: value})
  return value


def bind_named(
  what: str, calls: str, home: ModuleType, *, offered: dict, leaving: int
) -> list[tuple[str, Callable]]:
  """Functions of "f(a=1), my_package.my_file:g(b=2)", with a and b bound.

  Args:
    what: the key of the config, for errors.
    calls: with keyword arguments that are Python literals, or "".
    home: module of plain names.
    offered: arguments that the program provides to functions that take them.
    leaving: first arguments that stay open.

  Returns:
    The functions with their own names.

  Raises:
    UserError: as for `call_named`.
  """
  bound = []
  for name, extra in _parse_calls(what, calls):
    function = _find(what, name, home)
    taken = list(inspect.signature(function).parameters)
    given = {k: v for k, v in offered.items() if k in taken[leaving:]}
    placeholders = dict.fromkeys(taken[:leaving])
    _check_arguments(what, name, function, extra, placeholders | given)
    bound.append((function.__name__, partial(function, **given, **extra)))
  return bound


def public_functions(module: ModuleType) -> dict[str, Callable]:
  """What a plain name can mean: the module's functions, or its package's."""
  return {
    name: value
    for name, value in vars(module).items()
    if inspect.isfunction(value)
    and value.__module__.startswith(module.__name__)
    and not name.startswith("_")
  }


def _call(what, name, function, extra, given):
  _check_arguments(what, name, function, extra, given)
  return function(**given, **extra)


def _check_arguments(what, name, function, extra, given):
  accepted = set(inspect.signature(function).parameters) - given.keys()
  for key in extra:
    if key not in accepted:
      raise UserError(
        unknown_name(f"argument of {what}, {name}:", key, accepted)
      )
  try:
    inspect.signature(function).bind(**given, **extra)
  except TypeError as error:
    raise UserError(
      f"config.{what}: {name!r} cannot be called: {error}. It is given"
      f" {', '.join(sorted(given | extra))}."
    ) from error


def _find(what: str, name: str, home: ModuleType | None) -> Callable:
  module_name, colon, function_name = name.rpartition(":")
  if colon:
    try:
      if not all(part.isidentifier() for part in module_name.split(".")):
        raise ImportError("this is not the name of a module")
      module = importlib.import_module(module_name)
    except ImportError as error:
      raise UserError(
        f"config.{what}.name: {module_name!r} cannot be imported ({error})."
        " Name it as Python does, package.module:function, from a folder that"
        " is in PYTHONPATH or the working directory."
      ) from error
  elif home is None:
    raise UserError(
      f"config.{what}.name must be module:function, not {name!r}."
    )
  else:
    module = home
  functions = public_functions(module)
  function = getattr(module, function_name, None)
  if function_name not in functions and not (
    colon and inspect.isfunction(function)
  ):
    hint = "" if home is None else " Your own is named module:function."
    raise UserError(unknown_name(what, function_name, functions) + hint)
  return function


def parse_args(what: str, args: str) -> dict[str, Any]:
  """The values of "key=value, key=value" with Python literals.

  Raises:
    UserError: it reads otherwise.
  """
  try:
    call = ast.parse(f"f({args})", mode="eval").body
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
      raise ValueError("this is no list of arguments")
    return _literals(call)
  except _NOT_PYTHON as error:
    raise UserError(
      f"config.{what} must read like 'key=value, key=value', not"
      f" {args!r} ({error})."
    ) from error


def _parse_calls(what: str, calls: str) -> list[tuple[str, dict[str, Any]]]:
  """Names and arguments of "f(a=1), my_package.my_file:g(b=2)"."""
  if not calls.strip():
    return []
  try:
    # As indices, for there module:function is a slice.
    indexed = ast.parse(f"_[{calls},]", mode="eval").body
    if not isinstance(getattr(indexed, "value", None), ast.Name):
      raise ValueError("the brackets do not match")
    return [_name_and_literals(index) for index in indexed.slice.elts]
  except _NOT_PYTHON as error:
    raise UserError(
      f"config.{what} must read like 'name(key=value), name(key=value)', not"
      f" {calls[:200]!r} ({error})."
    ) from error


def _name_and_literals(index: ast.expr) -> tuple[str, dict[str, Any]]:
  call, module = index, ""
  if isinstance(index, ast.Slice) and index.lower and not index.step:
    call, module = index.upper, ast.unparse(index.lower) + ":"
  if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
    raise ValueError(f"{ast.unparse(index)!r} is no name(key=value)")
  return module + call.func.id, _literals(call)


def _literals(call: ast.Call) -> dict[str, Any]:
  if call.args or any(keyword.arg is None for keyword in call.keywords):
    raise ValueError("only key=value is possible")
  if len({k.arg for k in call.keywords}) < len(call.keywords):
    raise ValueError("a key is given twice")
  return {k.arg: ast.literal_eval(k.value) for k in call.keywords}
