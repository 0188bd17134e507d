"""Every knob that a run has, with its unit. Other configs start from here."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
  """The quickstart's values; a config file changes what it needs to."""
  c = ConfigDict()
  c.seed = 0  # of parameters, traces, prompts and samples

  c.task = ConfigDict()
  c.task.name = "experiments.tasks.chain_sum:make_task"  # module:function
  c.task.args = ""  # its keyword arguments, such as "max_terms=4"
  c.task.train_size = 8192  # problems
  c.task.test_size = 256  # held-out problems

  c.data = ConfigDict()
  # Folder of publishers' files, <set>/<split>.jsonl; "" downloads them.
  c.data.manual_dir = ""

  c.model = ConfigDict()
  # A checkpoint: Hugging Face folder or hub name, or GGUF file; "" for none.
  c.model.path = ""
  # Without one, random parameters of this shape (fields of ModelConfig).
  c.model.shape = (
    "width=64, layers=2, heads=4, kv_heads=2, head_dim=16, mlp_width=384"
  )
  c.model.lora = ""  # "rank=16, alpha=32" trains adapters; "" all parameters
  c.model.scan_layers = False  # True for deep models on accelerators
  c.model.dtype = "float32"  # of activations; or bfloat16
  c.model.param_dtype = "float32"  # bfloat16: with float32 copies to update
  c.model.remat = "none"  # computed again for the gradient: none, dots, full
  c.model.attention = "auto"  # kernel: xla, cudnn, or what suits the backend

  c.warm_start = ConfigDict()
  c.warm_start.max_steps = 900  # updates; 0 starts from random parameters
  c.warm_start.rows = 24  # packed rows per update
  c.warm_start.row_tokens = 80  # tokens per packed row
  c.warm_start.learning_rate = 5e-3  # highest
  c.warm_start.stop_at_pass_at_1 = 0.45  # fraction; ends earlier once reached
  c.warm_start.probe_every_steps = 100  # updates between probes

  c.recipe = ConfigDict()
  c.recipe.name = "dapo"  # in grpo_jax.algorithms.recipes, or module:function
  c.recipe.args = ""  # its keyword arguments, such as "eps_high=0.3"
  c.recipe.pieces = ""  # of recipes.pieces: "entropy_bonus(coefficient=0.01)"

  c.reward = ConfigDict()
  # Besides the task's own: of rewards.scores, "length(target_tokens=32)", or
  # yours, "my_package.my_file:my_reward(x=1)".
  c.reward.functions = ""
  c.reward.weights = "correctness=1.0, format=0.1"  # reward units per score

  c.sampling = ConfigDict()
  c.sampling.prompts_per_step = 16  # groups of a full rollout batch
  c.sampling.group_size = 16  # completions per prompt
  c.sampling.max_rounds = 6  # of sampling per step, to fill the batch
  c.sampling.max_prompt_tokens = 10
  c.sampling.max_completion_tokens = 64
  c.sampling.temperature = 1.0
  # "low=0.1, high=0.9, skip=0.8" passes over 8 of 10 problems whose running
  # solve rate is outside; "" draws all alike.
  c.sampling.curriculum = ""

  c.optimizer = ConfigDict()
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 5  # updates
  c.optimizer.b2 = 0.99  # decay of the squared gradient
  c.optimizer.weight_decay = 0.0  # per unit of learning rate
  c.optimizer.max_grad_norm = 1.0
  c.optimizer.minibatches = 4  # updates per rollout batch
  c.optimizer.microbatches = 1  # parts that a gradient is summed over
  c.optimizer.completions_per_row = 1  # that share one copy of their prompt

  c.evaluation = ConfigDict()
  c.evaluation.every_steps = 10  # besides before and after; 0 for none
  # In experiments.conventions (plain, greedy, dapo, r1, qwen3): samples of each
  # problem, temperature, top_p and top_k; or module:function.
  c.evaluation.name = "plain"
  c.evaluation.args = ""  # "samples=16": instead of the convention's own

  c.run = ConfigDict()
  c.run.steps = 40  # rollout batches
  c.run.checkpoint_every_steps = 10  # besides the last; 0 for none
  c.run.logged_prompts = 4  # per step, completions in samples.jsonl.gz
  c.run.max_skipped_in_a_row = 8  # updates without a finite gradient
  c.run.cache_dir = "~/.cache/grpo_jax"  # warm starts and prepared data
  return c
