"""The model that a config names: of random parameters, or pre-trained."""

import os
from pathlib import Path

import jax
from ml_collections import ConfigDict

from experiments.named import call_function
from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.models import huggingface
from grpo_jax.models.config import ModelConfig
from grpo_jax.models.decoder import init_params
from grpo_jax.models.lora import LoraOptions
from grpo_jax.models.pretrained import (
  load_params,
  read_config,
  tokenizer_path,
)


def checkpoint_path(config: ConfigDict) -> str:
  """`model.path`, with ~ expanded; empty for random parameters."""
  return os.path.expanduser(config.model.path)


def load_model_tokenizer(config: ConfigDict) -> Tokenizer | None:
  """The checkpoint's own tokenizer; None for random parameters."""
  path = checkpoint_path(config)
  if not path:
    return None
  # What the extra [hf] brings is needed for checkpoints only.
  from grpo_jax.data.gguf_tokenizer import load_gguf_tokenizer
  from grpo_jax.data.tokenizer_files import load_tokenizer

  path = tokenizer_path(path)
  load = load_gguf_tokenizer if path.suffix == ".gguf" else load_tokenizer
  return load(path)


def model_config(config: ConfigDict, vocab_size: int) -> ModelConfig:
  """What the decoder looks like.

  Args:
    config: of the experiment.
    vocab_size: of the task's tokenizer.

  Raises:
    ValueError: the shape is not one, or a checkpoint's is to be another; the
      checkpoint has fewer tokens than its tokenizer, or is too short for the
      completions.
  """
  names = ("scan_layers", "dtype", "param_dtype", "remat", "attention")
  common = {name: config.model[name] for name in names}
  if not checkpoint_path(config):
    given = {"vocab_size": vocab_size, "tie_embeddings": True, **common}
    return call_function("model.shape", ModelConfig, config.model.shape, given)
  if config.model.shape:
    raise ValueError(
      f"model.shape = {config.model.shape!r} is for random parameters; the"
      " model in model.path has its own. Set one of them to ''."
    )
  model = read_config(checkpoint_path(config), **common)
  if model.vocab_size < vocab_size:
    raise ValueError(
      f"the model in {config.model.path} has {model.vocab_size} tokens, its"
      f" tokenizer {vocab_size}."
    )
  s = config.sampling
  longest = s.max_prompt_tokens + s.max_completion_tokens
  if model.max_positions and longest > model.max_positions:
    raise ValueError(
      f"the model in {config.model.path} is made for {model.max_positions}"
      f" tokens; sampling.max_prompt_tokens + max_completion_tokens is"
      f" {longest}."
    )
  return model


def initial_params(config: ConfigDict, model: ModelConfig) -> dict:
  """The parameters that a warm start begins with."""
  path = checkpoint_path(config)
  if not path:
    return init_params(model, jax.random.key(config.seed))
  return load_params(path, model)


def save(
  folder: Path,
  config: ConfigDict,
  model: ModelConfig,
  params: dict,
  tokenizer: Tokenizer,
) -> None:
  """Writes a Hugging Face folder.

  Args:
    folder: to be made.
    config: of the experiment.
    model: of the model.
    params: of the model.
    tokenizer: written too if it is a checkpoint's; a task's own has no
      published form.

  Raises:
    UserError: the folder is there already, or cannot be made.
  """
  huggingface.save(
    folder, model, params, token_ids={"eos_token_id": list(tokenizer.stop_ids)}
  )
  if checkpoint_path(config):
    from grpo_jax.data.tokenizer_files import save_tokenizer

    save_tokenizer(tokenizer, folder)


def lora_options(config: ConfigDict) -> LoraOptions | None:
  """None if all parameters are trained."""
  if not config.model.lora:
    return None
  return call_function("model.lora", LoraOptions, config.model.lora, {})
