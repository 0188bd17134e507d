"""The same as `transformers` does, asked anew; needs the extra `peers`."""

import json
import unicodedata

import pytest

from grpo_jax.data.gguf_tokenizer import load_gguf_tokenizer
from grpo_jax.data.tokenizer_files import save_tokenizer
from tests.data import tokenizer_cases
from tests.data.test_gguf_tokenizer import rebuilt  # noqa: F401
from tests.data.test_pretrained_tokenizer import prompt_of

transformers = pytest.importorskip("transformers")

from scripts import make_tokenizer_references as peer  # noqa: E402

pytestmark = pytest.mark.slow

_MODEL_TYPES = {
  "qwen_style": "qwen3",
  "r1_style": "llama",
  "llama_style": "llama",
}


def _auto(folder, model_type=None):
  if model_type is not None:
    config = {"model_type": model_type, "architectures": None}
    (folder / "config.json").write_text(json.dumps(config))
  return transformers.AutoTokenizer.from_pretrained(folder)


def _ids(theirs, text):
  return theirs(text, add_special_tokens=False)["input_ids"]


def _check(ours, theirs):
  """Texts both ways, and prompts."""
  for text in tokenizer_cases.texts():
    ids = ours.encode(text)
    assert ids == _ids(theirs, text), text[:99]
    if not ids or ids[-1] not in ours.stop_ids:
      assert ours.decode(ids) == theirs.decode(ids)
  for chat in tokenizer_cases.chats().values():
    prompt = prompt_of(ours, chat)
    assert prompt == peer.rendered(theirs, chat)
    if prompt is not None:
      assert ours.encode(prompt) == _ids(theirs, prompt)


def test_checkpoints(tokenizer, folder):
  _check(tokenizer, _auto(folder))


def test_ids_of_conversations(tokenizer, folder):
  messages = tokenizer_cases.chats()["turns"].messages
  theirs = _auto(folder).apply_chat_template(
    messages, add_generation_prompt=True, date_string="1 Jan 2025"
  )
  ours = tokenizer.render(messages, variables={"date_string": "1 Jan 2025"})
  assert tokenizer.encode(ours) == theirs["input_ids"]


def test_saved_ones(tokenizer, style, tmp_path):
  save_tokenizer(tokenizer, tmp_path)
  theirs = _auto(tmp_path, _MODEL_TYPES[style])
  _check(tokenizer, theirs)
  assert theirs.special_tokens_map == tokenizer.special_tokens
  generation = transformers.GenerationConfig.from_pretrained(tmp_path)
  assert generation.eos_token_id == list(tokenizer.stop_ids)


@pytest.mark.parametrize("style", ["qwen_style", "llama_style"], indirect=True)
def test_saved_ones_from_gguf(rebuilt, style, folder, tmp_path):  # noqa: F811
  save_tokenizer(rebuilt, tmp_path / "hf")
  theirs = _auto(tmp_path / "hf", _MODEL_TYPES[style])
  _check(rebuilt, theirs)
  assert theirs("1 + 1").input_ids == _auto(folder)("1 + 1").input_ids


def test_smollm2(smollm2_gguf, tmp_path):
  ours = load_gguf_tokenizer(smollm2_gguf)
  _check(ours, peer.smollm2(smollm2_gguf.parent))
  save_tokenizer(ours, tmp_path)
  _check(ours, _auto(tmp_path, "llama"))
  # Left to itself, transformers is right where there is no number.
  theirs = transformers.AutoTokenizer.from_pretrained(
    smollm2_gguf.parent, gguf_file=smollm2_gguf.name
  )
  plain = 0
  for text in tokenizer_cases.texts():
    if not any(unicodedata.category(c).startswith("N") for c in text):
      assert ours.encode(text) == _ids(theirs, text)
      plain += 1
  assert plain > 100
