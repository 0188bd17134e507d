"""Makes tests/models/references: tiny models, and what transformers says.

Every family and option has a model of a few thousand random parameters, saved
by `transformers`, with its logits, gradients and greedy continuations in
float32. Needs torch and transformers, and neither jax nor grpo_jax:

    python scripts/make_model_references.py tests/models/references
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from model_reference_cases import MODELS, ROPES, TINY

_SHARDED = "llama_untied_llama3"

_ROW = 48  # tokens; beyond the original context of the stretched ones
_LENGTHS = (48, 17, 33)
_PROMPTS = (5, 9, 12)  # tokens
_CONTINUATION = 64
_MARGIN = 1e-3  # nats between the best two tokens, so that rounding is nothing


def random_model(name: str, seed: int) -> torch.nn.Module:
  """A model none of whose parameters could be left out unseen."""
  kind, options = MODELS[name]
  config = getattr(transformers, kind)(**{**TINY, **options})
  model = transformers.AutoModelForCausalLM.from_config(
    config, attn_implementation="eager"
  ).float()
  random = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for key, value in model.named_parameters():
      noise = torch.randn(value.shape, generator=random)
      if "norm" in key:
        value.copy_(1 + 0.3 * noise)
      elif key.endswith("bias"):
        value.copy_(0.5 * noise)
      else:
        value.copy_(1.5 * noise * value.shape[-1] ** -0.5)
  return model.eval()


def padded_rows(random: np.random.Generator):
  """Texts of three lengths; the shorter ones padded left and right."""
  texts = [random.integers(0, 64, n) for n in _LENGTHS]
  rows = [(texts[0], 0)]
  rows += [(t, at) for t in texts[1:] for at in (0, _ROW - len(t))]
  tokens = random.integers(0, 64, (len(rows), _ROW))  # padding is any token
  mask = np.zeros((len(rows), _ROW), bool)
  positions = np.zeros((len(rows), _ROW), np.int64)
  for i, (text, at) in enumerate(rows):
    tokens[i, at : at + len(text)] = text
    mask[i, at : at + len(text)] = True
    positions[i, at : at + len(text)] = np.arange(len(text))
  return tokens, mask, positions


def score(model, tokens, mask, positions) -> tuple[torch.Tensor, torch.Tensor]:
  """Logits, and the mean log-probability of all tokens but the first ones."""
  logits = model(
    input_ids=torch.as_tensor(tokens),
    attention_mask=torch.as_tensor(mask).long(),
    position_ids=torch.as_tensor(positions),
    use_cache=False,
  ).logits
  for i in range(len(tokens)):  # padding makes no difference to transformers
    text = torch.as_tensor(tokens[i][mask[i]])[None]
    torch.testing.assert_close(
      model(input_ids=text, use_cache=False).logits[0],
      logits[i][torch.as_tensor(mask[i])],
      rtol=1e-4,
      atol=1e-4,
    )
  logp = logits.log_softmax(-1)[:, :-1]
  logp = logp.gather(-1, torch.as_tensor(tokens)[:, 1:, None])[..., 0]
  counted = torch.as_tensor(mask[:, :-1] & mask[:, 1:])
  return logits, logp[counted].mean()


def gradients(model, mean_logp) -> dict[str, np.ndarray]:
  """Of all parameters, by the names that files give them."""
  named = dict(model.named_parameters())
  grads = torch.autograd.grad(mean_logp, list(named.values()))
  found = {}
  for key, grad in zip(named, grads, strict=True):
    grad = grad.numpy()
    base, _, fused = key.rpartition(".mlp.experts.")
    for e in range(len(grad) if base else 0):  # stored one by one
      parts = {"down_proj": grad[e]}
      if fused == "gate_up_proj":
        gate, up = np.split(grad[e], 2)
        parts = {"gate_proj": gate, "up_proj": up}
      for part, value in parts.items():
        found[f"{base}.mlp.experts.{e}.{part}.weight"] = value
    if not base:
      found[key] = grad
  return found


def greedy(model, prompt: np.ndarray) -> tuple[np.ndarray, float]:
  """A greedy continuation, and the smallest lead of the chosen token."""
  tokens = torch.as_tensor(prompt)[None]
  out = model.generate(
    tokens,
    attention_mask=torch.ones_like(tokens),  # else token 0 would be padding
    max_new_tokens=_CONTINUATION,
    do_sample=False,
    output_scores=True,
    return_dict_in_generate=True,
    pad_token_id=0,
  )
  best = torch.stack(out.scores)[:, 0].topk(2).values
  return (
    out.sequences[0, len(prompt) :].numpy(),
    float((best[:, 0] - best[:, 1]).min()),
  )


def reference(name: str, seed: int) -> tuple[torch.nn.Module, dict]:
  """A model and its outputs; None if a choice of tokens is too close."""
  model = random_model(name, seed)
  random = np.random.default_rng(seed)
  tokens, mask, positions = padded_rows(random)
  logits, mean_logp = score(model, tokens, mask, positions)
  found = {
    "transformers": np.array(transformers.__version__),
    "tokens": tokens.astype(np.int32),
    "mask": mask,
    "positions": positions.astype(np.int32),
    "logits": logits.detach().numpy() * mask[..., None],
    "mean_logp": mean_logp.detach().numpy(),
  }
  for key, value in gradients(model, mean_logp).items():
    found[f"gradient/{key}"] = value
  prompts = np.zeros((len(_PROMPTS), max(_PROMPTS)), np.int32)
  continuations = []
  for row, length in zip(prompts, _PROMPTS, strict=True):
    row[:length] = random.integers(0, 64, length)
    continuation, margin = greedy(model, row[:length])
    if margin < _MARGIN:
      return reference(name, seed + 1000)
    continuations.append(continuation)
  found["prompts"] = prompts
  found["prompt_lengths"] = np.array(_PROMPTS, np.int32)
  found["continuations"] = np.stack(continuations).astype(np.int32)
  return model, found


def ropes() -> list[dict]:
  """Frequencies in radians per token, and the factor of sines and cosines."""
  found = []
  for options in ROPES:
    config = transformers.LlamaConfig(**json.loads(json.dumps(options)))
    rope = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    found.append(
      {
        "config": options,
        "frequencies": rope.inv_freq.tolist(),
        "scale": float(rope.attention_scaling),
      }
    )
  return found


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("folder", type=Path)
  folder = parser.parse_args().folder
  for i, name in enumerate(MODELS):
    model, found = reference(name, seed=i)
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    shards = {"max_shard_size": "20KB"} if name == _SHARDED else {}
    model.save_pretrained(place, **shards)
    (place / "generation_config.json").unlink()
    np.savez_compressed(place / "outputs.npz", **found)
  (folder / "ropes.json").write_text(json.dumps(ropes(), indent=1) + "\n")


if __name__ == "__main__":
  main()
