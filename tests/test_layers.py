"""Imports point one way: design of the packages, enforced."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What a package may import of grpo_jax, besides itself, types and errors.
ALLOWED = {
  "algorithms": set(),
  "models": set(),
  "rewards": set(),
  "data": set(),
  "reporting": set(),
  "sampling": {"models"},
  "training": {
    "algorithms",
    "data",
    "host",
    "models",
    "reporting",
    "rewards",
    "sampling",
  },
  "test_time": {"data", "models", "rewards", "sampling"},
}


def _imports(path: Path):
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below_it(package):
  allowed = ALLOWED[package] | {package, "types", "errors"}
  for path in (ROOT / "grpo_jax" / package).rglob("*.py"):
    for name in _imports(path):
      parts = name.split(".")
      assert parts[0] != "experiments", f"{path} imports {name}"
      if parts[0] == "grpo_jax":
        assert parts[1] in allowed, f"{path} imports {name}"


def test_every_package_is_listed():
  packages = {p.parent.name for p in (ROOT / "grpo_jax").glob("*/__init__.py")}
  assert packages == set(ALLOWED)


def test_only_experiments_read_a_config_dict():
  for path in (ROOT / "grpo_jax").rglob("*.py"):
    assert not any("ml_collections" in name for name in _imports(path)), path


def test_flax_is_notation_of_the_model_only():
  users = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "grpo_jax").rglob("*.py")
    if any(name.split(".")[0] == "flax" for name in _imports(path))
  }
  assert users == {"grpo_jax/models/decoder.py"}
