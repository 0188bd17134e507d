r"""The quickstart's task under any recipe, with what suits a run that short.

  python -m experiments.run --config=experiments/configs/recipes.py:gspo \
    --workdir=runs/gspo

Hardware: 2 CPU cores, 2 to 4 minutes, 1.5 GB. `gspo-smoke` is cut down as
`quickstart.py:smoke` is. Expected after fewer steps: the table of results in
README.md; `python -m pytest -m learning` checks that each improves.
"""

from ml_collections import ConfigDict

from experiments.configs import quickstart

# A critic sees more problems, and fewer answers to each.
_FOR_A_CRITIC = {
  "sampling.prompts_per_step": 128,
  "sampling.group_size": 2,
}
# Arguments and other values where the published ones are of another scale:
# this model's completions have 20 tokens, not thousands.
SETTINGS = {
  "grpo_process": {"optimizer.learning_rate": 1e-4},
  "gspo": {"recipe.args": "eps_low=0.03, eps_high=0.04"},
  "gspo_token": {"recipe.args": "eps_low=0.03, eps_high=0.04"},
  "luspo": {"recipe.args": "eps_low=0.03, eps_high=0.04"},
  "ppo": _FOR_A_CRITIC
  | {"recipe.args": "critic_learning_rate_factor=5.0, value_clip=None"},
  "vapo": _FOR_A_CRITIC
  | {
    "recipe.args": "alpha=0.5, critic_warmup_steps=3, value_clip=None,"
    " critic_learning_rate_factor=5.0"
  },
}


def get_config(name: str = "dapo") -> ConfigDict:
  """The config of a recipe, or of `<recipe>-smoke`."""
  name, _, size = name.partition("-")
  c = quickstart.get_config(size or "full")
  c.recipe.name = name
  changes = SETTINGS.get(name, {})
  if size == "smoke":
    changes = {k: v for k, v in changes.items() if k.startswith("recipe.")}
  with c.unlocked():
    c.update_from_flattened_dict(changes)
  return c
