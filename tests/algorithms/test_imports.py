"""The algorithms are pure functions of arrays."""

import ast
import sys
from pathlib import Path

import pytest

import grpo_jax.algorithms

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
