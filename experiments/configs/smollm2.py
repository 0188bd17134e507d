r"""SmolLM2-135M-Instruct learns short problems, on a CPU.

  python scripts/fetch_smollm2.py
  python -m experiments.run --config=experiments/configs/smollm2.py \
    --workdir=runs/smollm2

Hardware: 2 CPU cores, 26 minutes on a busy machine, 6 GB. Expected: pass@1 on
96 held-out problems from 0.20 to 0.66 (+0.46 [+0.38, +0.54], one seed), reward
per step from 0.3 to 0.7 - 0.9. `smollm2.py:smoke` is two small steps of it.
`smollm2.py:gsm8k` has GSM8K's problems, of which a model of this size solves
next to none: it is there to show how, and needs pip install '.[math]'.
"""

from ml_collections import ConfigDict

from experiments.configs import base

# A fifth of the answers are right at first.
_PROBLEMS = {
  "letter_counting": {"min_words": 3, "max_words": 4},
  "products": {"max_terms": 2, "max_digits": 1},
  "basic_arithmetic": {"max_terms": 2, "max_digits": 1},
}


def get_config(kind: str = "full") -> ConfigDict:
  """Reasoning-gym problems; `smoke` is a part of it; or `gsm8k`."""
  c = base.get_config()
  c.task.name = "experiments.tasks.chat:reasoning_gym"
  c.task.args = f"problems={_PROBLEMS}, shots=2"
  c.task.train_size = 600
  c.task.test_size = 96
  c.model.path = "~/.cache/grpo_jax/smollm2/SmolLM2-135M-Instruct"
  c.model.shape = ""
  c.warm_start.max_steps = 0

  c.recipe.name = "dapo"
  c.sampling.prompts_per_step = 8
  c.sampling.group_size = 8
  c.sampling.max_rounds = 2
  c.sampling.max_prompt_tokens = 160
  c.sampling.max_completion_tokens = 12
  c.optimizer.learning_rate = 1e-5
  c.optimizer.warmup_steps = 2
  c.optimizer.minibatches = 2
  c.optimizer.completions_per_row = 8
  c.evaluation.every_steps = 0
  c.evaluation.samples_per_problem = 4
  c.run.steps = 20
  if kind == "gsm8k":
    c.task.name = "experiments.tasks.chat:mathematics"
    c.task.args = "train='gsm8k', test='gsm8k'"
    c.task.train_size = 7000
    c.task.test_size = 64
    c.sampling.max_prompt_tokens = 320
    c.sampling.max_completion_tokens = 192
    c.optimizer.completions_per_row = 4
    c.optimizer.microbatches = 4
  elif kind == "smoke":
    c.task.test_size = 8
    c.sampling.prompts_per_step = 2
    c.sampling.group_size = 4
    c.sampling.max_rounds = 1
    c.optimizer.completions_per_row = 4
    c.optimizer.minibatches = 1
    c.evaluation.samples_per_problem = 1
    c.run.steps = 2
  elif kind != "full":
    raise ValueError(
      f"smollm2.py has `full`, `smoke` and `gsm8k`, not {kind!r}."
    )
  return c
