"""A run that begins with a checkpoint, from its prompts to its export."""

import json

import numpy as np

from experiments import export
from grpo_jax.data.tokenizer_files import load_tokenizer
from grpo_jax.models.pretrained import load_pretrained
from grpo_jax.reporting.sinks import read_samples


def test_a_checkpoint_is_trained_and_written_back(call, checkpoint, tmp_path):
  workdir, output = tmp_path / "run", tmp_path / "out"
  code, error = call(
    "--config=experiments/configs/smollm2.py:smoke",
    f"--workdir={workdir}",
    f"--config.model.path={checkpoint}",
    "--config.sampling.max_prompt_tokens=400",
    "--config.sampling.max_completion_tokens=8",
    "--config.model.dtype=bfloat16",
    "--config.model.param_dtype=bfloat16",
    # Random parameters never answer: another reward has to give the signal.
    "--config.recipe.name=grpo",
    "--config.recipe.pieces=entropy_bonus(coefficient=0.1)",
    "--config.optimizer.learning_rate=1e-2",
  )
  assert code == 0, error
  tokenizer = load_tokenizer(checkpoint)
  sample = read_samples(workdir / "samples.jsonl.gz")[0]
  assert sample["prompt"].startswith("<|im_start|>system")
  assert sample["prompt"].count("Answer: ") == 3  # one in the system's words

  assert export.main([f"--workdir={workdir}", f"--output={output}"]) == 0
  exported, params = load_pretrained(output)
  assert exported.param_dtype == "bfloat16"
  _, before = load_pretrained(checkpoint)
  assert np.any(params["embedding"] != before["embedding"].astype("bfloat16"))
  again = load_tokenizer(output)
  assert again.encode(sample["prompt"]) == tokenizer.encode(sample["prompt"])
  assert again.stop_ids == tokenizer.stop_ids
  assert json.loads((output / "config.json").read_text())["vocab_size"]


def test_a_shape_beside_a_checkpoint_is_refused(call, checkpoint, tmp_path):
  smoke = "--config=experiments/configs/smollm2.py:smoke"
  path = f"--config.model.path={checkpoint}"
  code, error = call(
    smoke, path, f"--workdir={tmp_path}", "--config.model.shape=width=8"
  )
  assert code == 2 and "has its own" in error
  code, error = call(
    "--config=experiments/configs/quickstart.py:smoke",
    path,
    f"--workdir={tmp_path}",
    "--config.model.shape=",
  )
  assert code == 2 and "tokenizer of its own" in " ".join(error.split())
