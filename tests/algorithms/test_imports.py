"""The algorithms are pure functions of arrays."""

import ast
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

import grpo_jax.algorithms
from grpo_jax.algorithms.advantages import leave_one_out_advantages
from grpo_jax.algorithms.ratios import token_log_ratio

FOLDER = Path(grpo_jax.algorithms.__file__).parent
ALLOWED = ("jax", "jaxtyping", "grpo_jax.types", "grpo_jax.algorithms")


def imported(source):
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "relative import"
      yield node.module


@pytest.mark.parametrize(
  "path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name
)
def test_imports_only_jax_and_types(path):
  for name in imported(path.read_text()):
    package = name.partition(".")[0]
    assert package in sys.stdlib_module_names or any(
      name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED
    ), f"{path.name} imports {name}"


@pytest.mark.parametrize(
  "path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name
)
def test_a_file_is_one_sitting_and_a_function_one_screen(path):
  source = path.read_text()
  assert source.count("\n") <= 250
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.FunctionDef):
      assert node.end_lineno - node.lineno < 60, node.name


@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 1), (2,)])
def test_named_shapes_are_checked(shape):
  """In the tests alone: `install_import_hook` in tests/conftest.py."""
  numbers, mask = jnp.ones((2, 3)), jnp.ones(shape, bool)
  with pytest.raises(TypeCheckError):
    leave_one_out_advantages(numbers, mask)
  with pytest.raises(TypeCheckError):
    token_log_ratio(numbers, numbers, mask)
