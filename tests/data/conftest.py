"""Checkpoints' tokenizers, and what `transformers` says of them."""

import json
import os
from pathlib import Path

import pytest

from grpo_jax.data.tokenizer_files import load_tokenizer

REFERENCES = Path(__file__).parent / "references"
STYLES = ("qwen_style", "r1_style", "llama_style")


@pytest.fixture(scope="session")
def tokenizers_of_styles():
  return {style: load_tokenizer(REFERENCES / style) for style in STYLES}


@pytest.fixture(params=STYLES)
def style(request) -> str:
  return request.param


@pytest.fixture
def folder(style) -> Path:
  return REFERENCES / style


@pytest.fixture
def tokenizer(style, tokenizers_of_styles):
  return tokenizers_of_styles[style]


@pytest.fixture
def reference(style) -> dict:
  return json.loads((REFERENCES / f"{style}.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
  """The file that scripts/fetch_smollm2.py fetches; the test skips without."""
  home = os.environ.get("GRPO_JAX_SMOLLM2", "~/.cache/grpo_jax/smollm2")
  files = sorted(Path(home).expanduser().rglob("*.gguf"))
  if not files:
    pytest.skip(f"there is no GGUF file of SmolLM2 in {home}")
  return files[0]
