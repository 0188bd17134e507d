"""Speed and memory beside `transformers`, on one machine in one run.

    pip install -e '.[peers]' && python scripts/fetch_smollm2.py
    python scripts/benchmark_peers.py

Prints tokens per second of greedy decoding at several batch sizes, and of
training steps (forward, backward, AdamW; float32), with the peak memory of the
latter: medians over runs that take turns, each in a process of its own, and
the ratio ours / theirs. Compilation and a first run are not counted.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODEL = Path("~/.cache/grpo_jax/smollm2/SmolLM2-135M-Instruct").expanduser()
PROMPT_TOKENS, NEW_TOKENS = 32, 64
ROWS, ROW_TOKENS = 8, 256  # of a training step
TIMED = 3  # repetitions in one process, of which the fastest counts


def decode_ours(model: Path, batch: int) -> float:
  """Seconds to prefill `batch` prompts and decode NEW_TOKENS for each."""
  import jax
  import jax.numpy as jnp
  import numpy as np

  from grpo_jax.models.pretrained import load_pretrained
  from grpo_jax.sampling.decode import SamplingOptions
  from grpo_jax.sampling.generate import completion_keys, make_generate

  config, params = load_pretrained(
    model, dtype="float32", param_dtype="float32"
  )
  options = SamplingOptions(
    max_completion_tokens=NEW_TOKENS,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    stop_ids=(-1,),  # never: all completions have the same length
  )
  generate = make_generate(config, options)
  lengths = np.full(batch, PROMPT_TOKENS, np.int32)
  keys = completion_keys(jax.random.key(0), jnp.arange(batch), 1)

  def run():
    completions = generate(
      params, _tokens(model, batch, PROMPT_TOKENS), lengths, keys
    )
    assert int(jax.device_get(completions.lengths).min()) == NEW_TOKENS

  return _fastest(run)


def decode_theirs(model: Path, batch: int) -> float:
  """The same by `generate` of `transformers`."""
  import torch

  policy = _theirs(model).eval()
  tokens = torch.from_numpy(_tokens(model, batch, PROMPT_TOKENS)).long()

  def run():
    with torch.inference_mode():
      out = policy.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
      )
    assert out.shape[1] == PROMPT_TOKENS + NEW_TOKENS

  return _fastest(run)


def train_ours(model: Path) -> float:
  """Seconds of one training step on ROWS rows of ROW_TOKENS, one at a time."""
  import jax
  import jax.numpy as jnp

  from grpo_jax import host
  from grpo_jax.algorithms import recipes
  from grpo_jax.models.pretrained import load_pretrained
  from grpo_jax.training.step import (
    OptimizerOptions,
    init_state,
    make_optimizer,
    make_train_step,
  )
  from grpo_jax.training.warm_start import supervised_batch

  host.keep_freed_memory()
  config, params = load_pretrained(
    model, dtype="float32", param_dtype="float32"
  )
  optimizer = make_optimizer(
    OptimizerOptions(
      learning_rate=1e-6,
      warmup_steps=0,
      decay_steps=0,
      b1=0.9,
      b2=0.999,
      weight_decay=0.01,
      max_grad_norm=1.0,
    )
  )
  tokens = _tokens(model, ROWS, ROW_TOKENS).tolist()
  rows = [
    supervised_batch(
      lambda i: (tokens[i % ROWS][:1], tokens[i % ROWS][1:]),
      row,
      rows=1,
      width=ROW_TOKENS,
      max_sequences=1,
      completion_width=ROW_TOKENS - 1,
    )[0]
    for row in range(ROWS)
  ]
  batch = jax.tree.map(lambda *x: jnp.concatenate(x), *rows)
  batch = batch.replace(weight=batch.weight / ROWS)
  recipe = recipes.supervised(length_budget=ROW_TOKENS - 1)
  step = make_train_step(recipe, config, optimizer, temperature=1.0)
  state = [init_state(params, optimizer)]
  del params
  step = step.lower(state[0], batch).compile()
  host.return_freed_memory()

  def run():
    updated, metrics = step(state.pop(), batch)
    state.append(updated)
    assert 0 < float(metrics["loss"][0]) < 100

  return _fastest(run)


def train_theirs(model: Path) -> float:
  """The same by `transformers` and torch's AdamW."""
  import torch

  policy = _theirs(model).train()
  optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
  tokens = torch.from_numpy(_tokens(model, ROWS, ROW_TOKENS)).long()

  def run():
    optimizer.zero_grad()
    policy(tokens, labels=tokens, use_cache=False).loss.backward()
    optimizer.step()

  return _fastest(run)


def _theirs(model: Path):
  import torch
  import transformers

  torch.set_num_threads(os.cpu_count())
  return transformers.AutoModelForCausalLM.from_pretrained(
    model, dtype=torch.float32
  )


def _tokens(model: Path, rows: int, width: int):
  """Random ids of the model's vocabulary."""
  import numpy as np

  vocab_size = json.loads((model / "config.json").read_text())["vocab_size"]
  rng = np.random.default_rng(0)
  return rng.integers(0, vocab_size, (rows, width)).astype(np.int32)


def _fastest(run) -> float:
  run()  # compiles, or fills caches
  times = []
  for _ in range(TIMED):
    start = time.perf_counter()
    run()
    times.append(time.perf_counter() - start)
  return min(times)


_MEASURED = {
  "decode": (decode_ours, decode_theirs),
  "train": (train_ours, train_theirs),
}


def _child(side: int, kind: str, arguments: list, model: Path) -> None:
  seconds = _MEASURED[kind][side](model, *arguments)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
  print(json.dumps({"seconds": seconds, "peak_gib": peak}))


def _measure(side: int, kind: str, arguments: list, model: Path) -> dict:
  """Runs one measurement in a process of its own."""
  given = json.dumps([side, kind, arguments])
  command = [sys.executable, __file__, f"--model={model}", f"--child={given}"]
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
  return json.loads(done.stdout.splitlines()[-1])


def _compare(name, kind, ours, theirs, tokens, options) -> None:
  runs = [[], []]
  for _ in range(options.runs):
    for side, arguments in enumerate((ours, theirs)):
      runs[side].append(_measure(side, kind, arguments, options.model))
  speed, peak = (
    [statistics.median(f(run) for run in side) for side in runs]
    for f in (lambda r: tokens / r["seconds"], lambda r: r["peak_gib"])
  )
  print(
    f"{name:<22}{speed[0]:>10.0f}{speed[1]:>14.0f}{speed[0] / speed[1]:>8.2f}"
    f"{peak[0]:>12.2f}{peak[1]:>14.2f}{peak[0] / peak[1]:>8.2f}",
    flush=True,
  )


def main() -> None:
  """Measures and prints."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--model", type=Path, default=MODEL)
  parser.add_argument("--runs", type=int, default=3)
  parser.add_argument("--child", help=argparse.SUPPRESS)
  options = parser.parse_args()
  if options.child:
    return _child(*json.loads(options.child), options.model)
  print(
    f"{'':<22}{'tokens/s':>10}{'transformers':>14}{'ratio':>8}"
    f"{'peak GiB':>12}{'transformers':>14}{'ratio':>8}"
  )
  for batch in (1, 8, 32):
    _compare(
      f"decode, batch {batch}",
      "decode",
      [batch],
      [batch],
      batch * NEW_TOKENS,
      options,
    )
  _compare("train", "train", [], [], ROWS * ROW_TOKENS, options)


if __name__ == "__main__":
  main()
