"""The variants that are shown to users are short, right, and run."""

import ast
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.named import public_functions
from experiments.recipe_table import COLUMNS, recipe_rows
from experiments.variants import walkthrough
from grpo_jax.algorithms.recipes import pieces
from tests.experiments.conftest import QUICKSTART, ROOT, TINY

VARIANTS = ("median_baseline", "fading_clip", "root_length")
README = (ROOT / "README.md").read_text()


def test_each_is_under_15_lines():
  source = inspect.getsource(walkthrough)
  for cell in source.split("# %% ")[2:5]:
    code = "\n".join(cell.splitlines()[1:]).strip()
    lines = [line for line in code.splitlines() if line.strip()]
    ast.parse(code)
    assert len(lines) < 15, cell


def test_the_walk_goes_through(capsys):
  walkthrough.show()
  shown = capsys.readouterr().out
  assert "above the median" in shown and "share the loss" in shown


def test_what_they_say_of_themselves():
  def gain(log_ratio):
    ones = jnp.ones((1, 1))
    return -walkthrough.fading_surrogate(log_ratio, ones, ones, width=0.3)[0][
      0, 0
    ]

  pull = jax.grad(gain)(jnp.full((1, 1), 0.3 * 0.88))
  assert pull[0, 0] == pytest.approx(0.5, abs=0.01)
  mask = jnp.arange(4) < jnp.asarray([[1, 4]])[..., None]
  share = walkthrough.root_length_mean(mask, jnp.ones(1, bool)).sum(-1)[0]
  np.testing.assert_allclose(share, [1 / 3, 2 / 3], rtol=1e-6)


def test_the_readme_shows_the_first():
  source = inspect.getsource(walkthrough.median_advantages)
  assert source.strip() in README
  assert inspect.getsource(walkthrough.median_baseline).strip() in README


def test_the_readmes_table_is_what_the_recipes_are():
  lines = [line for line in README.splitlines() if line.startswith("| `")]
  table = {}
  for line in lines:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) == len(COLUMNS) + 1:
      table[cells[0].strip("`")] = cells
  for row in recipe_rows():
    *cells, differs = table.pop(row[0])
    assert [cell.strip("`") for cell in cells] == list(row)
    assert differs
  assert not table


def test_the_readme_tells_every_piece():
  for name in public_functions(pieces):
    assert f"`{name}`" in README, name


def test_list_recipes(run):
  code, shown = run("--list_recipes")
  assert code == 0
  names = [row.split() for row in shown.splitlines() if row[0] != " "]
  assert names == [list(row[:2]) for row in recipe_rows()]
  parts = {row.split()[0] for row in shown.splitlines() if row[0] == " "}
  assert parts == set(COLUMNS[2:])


@pytest.mark.parametrize("name", VARIANTS)
def test_each_runs_by_its_path(name, call, tmp_path):
  code, error = call(
    QUICKSTART,
    *TINY,
    "--config.warm_start.max_steps=0",
    "--config.run.steps=1",
    f"--config.recipe.name=experiments.variants.walkthrough:{name}",
    f"--workdir={tmp_path}",
  )
  assert code == 0, error
