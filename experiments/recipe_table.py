"""What the recipes are made of, read from the recipes themselves."""

import inspect
import re
from collections.abc import Callable
from functools import partial

from experiments.named import public_functions
from grpo_jax.algorithms import recipes
from grpo_jax.algorithms.ratios import token_log_ratio
from grpo_jax.algorithms.recipes import Recipe

COLUMNS = ("recipe", "paper", "advantage", "clip", "weights", "KL", "needs")

_BUDGET = 1024  # any; it is not shown


def recipe_rows() -> list[tuple[str, ...]]:
  """One row of `COLUMNS` per recipe with its default arguments, by name."""
  functions = public_functions(recipes)
  return [
    _row(name, functions[name])
    for name in sorted(functions)
    if "length_budget" in inspect.signature(functions[name]).parameters
  ]


def _row(name: str, function: Callable[..., Recipe]) -> tuple[str, ...]:
  recipe = function(length_budget=_BUDGET)
  paper = re.search(r"arXiv:[\d.]+\d", inspect.getdoc(function))
  clip = spelled(recipe.surrogate)
  if recipe.log_ratio is not token_log_ratio:
    clip += f" of {spelled(recipe.log_ratio)}"
  needs = [
    what
    for what, needed in (
      ("reference", recipe.needs_reference),
      ("judged steps", recipe.needs_steps),
      ("critic", recipe.critic),
      ("memory", recipe.memories),
    )
    if needed
  ]
  return (
    name,
    paper.group() if paper else "-",
    spelled(recipe.advantages),
    clip,
    spelled(recipe.weights),
    _kl(function, recipe),
    ", ".join(needs) or "-",
  )


def _kl(function: Callable, recipe: Recipe) -> str:
  terms = [
    f"{spelled(term.value)} {term.coefficient:g}"
    for term in recipe.penalties
    if term.value.__name__.startswith("kl_")
  ]
  if terms:
    return ", ".join(terms)
  default = inspect.signature(function).parameters.get("kl_coefficient")
  if recipe.needs_reference:
    return f"k1 in the reward {default.default:g}"
  return "off" if default else "-"


def spelled(function: Callable) -> str:
  """A function with its bound constants: "constant_length(count_empty=True)".

  A function that is made of others comes first: "whitened of generalised".
  """
  if not isinstance(function, partial):
    return _name(function)
  inner = [spelled(arg) for arg in function.args if callable(arg)]
  constants = ", ".join(
    f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
    for key, value in (
      (key, spelled(value) if callable(value) else value)
      for key, value in function.keywords.items()
      if key != "length_budget"
    )
  )
  name = _name(function.func)
  if name == "per_group":  # says nothing: it only hands on the arrays
    name, inner = inner[0], inner[1:]
  constants = f"({constants})" if constants else ""
  return " of ".join([name + constants, *inner])


def _name(function: Callable) -> str:
  name = function.__name__.strip("_")
  return name.removesuffix("_advantages").removesuffix("_surrogate")
