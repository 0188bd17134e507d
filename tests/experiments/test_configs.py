"""Configs: few knobs, each with its unit, each read by something."""

import importlib
from pathlib import Path

import pytest

from experiments import build, keys
from experiments.configs import base, recipes
from tests import every_recipe

CONFIGS = sorted(
  path.stem
  for path in Path(base.__file__).parent.glob("*.py")
  if path.stem not in ("__init__", "base", "recipes")
)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
  return tmp_path_factory.mktemp("cache")


def test_base_has_about_45_knobs():
  assert len(keys.leaves(base.get_config())) <= 48


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_build_at_both_sizes(name, tmp_path, checkpoint):
  module = importlib.import_module(f"experiments.configs.{name}")
  for size in ("full", "smoke"):
    config = module.get_config(size)
    config.run.cache_dir = str(tmp_path)
    config.task.train_size = 16
    config.task.test_size = 8
    if config.model.path:  # this one's tokenizer is small, and prompts long
      config.model.path = str(checkpoint)
      config.sampling.max_prompt_tokens = 400
    build.build(config)


@pytest.mark.parametrize("name", every_recipe.NAMES)
def test_every_recipe_has_a_config(name, cache_dir):
  for size in ("", "-smoke"):
    config = recipes.get_config(name + size)
    config.run.cache_dir = str(cache_dir)
    config.task.train_size = 16
    config.task.test_size = 8
    assert config.recipe.name == name
    build.build(config)


def test_no_settings_are_for_a_recipe_that_does_not_exist():
  assert recipes.SETTINGS.keys() <= set(every_recipe.NAMES)


def test_every_knob_is_read(tmp_path):
  """A knob whose reading is recorded nowhere has no code behind it."""
  config = base.get_config()
  config.run.cache_dir = str(tmp_path)
  config.task.train_size = config.task.test_size = 8
  config.warm_start.max_steps = 0
  read = set()

  class Recorder:
    def __init__(self, inner, prefix):
      self._inner, self._prefix = inner, prefix

    def __getattr__(self, name):
      value = getattr(self._inner, name)
      if hasattr(value, "keys"):
        return Recorder(value, f"{self._prefix}{name}.")
      read.add(self._prefix + name)
      return value

    def __getitem__(self, name):
      return getattr(self, name)

    def keys(self):
      return self._inner.keys()

    def __iter__(self):
      return iter(self._inner)

  recorder = Recorder(config, "")
  original, build.check_keys = build.check_keys, lambda config: None
  try:
    parts = build.build(recorder)
    build.prepare(recorder, parts, stop_requested=lambda: False)
  finally:
    build.check_keys = original
  # keys() of dict(config.section) marks nothing; reading the values does.
  assert read == set(keys.leaves(config))
