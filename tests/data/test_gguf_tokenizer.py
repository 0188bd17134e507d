"""Tokenizers rebuilt from GGUF files equal those that the files came from."""

import json

import gguf
import pytest

from grpo_jax.data.gguf_tokenizer import (
  load_gguf_tokenizer,
  tokenizer_of_metadata,
)
from grpo_jax.data.tokenizer_files import load_tokenizer, save_tokenizer
from tests.data import tokenizer_cases
from tests.data.conftest import REFERENCES
from tests.data.tokenizer_cases import digest

_PRE = {"qwen_style": "qwen2", "llama_style": "llama-bpe"}

# The style of R1 is a Qwen2 without a name of its own.
both_styles = pytest.mark.parametrize("style", _PRE, indirect=True)


def _write_gguf(path, folder, tokenizer, pre):
  """As llama.cpp's converter would."""
  backend = tokenizer.backend
  tokens = [backend.id_to_token(i) for i in range(tokenizer.vocab_size)]
  added = backend.get_added_tokens_decoder()
  kinds = [
    gguf.TokenType.NORMAL
    if i not in added
    else gguf.TokenType.CONTROL
    if added[i].special
    else gguf.TokenType.USER_DEFINED
    for i in range(len(tokens))
  ]
  model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
  writer = gguf.GGUFWriter(path, "llama")
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre(pre)
  writer.add_token_list(tokens)
  writer.add_token_types(kinds)
  writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
  special = tokenizer.special_tokens
  if "bos_token" in special:
    writer.add_bos_token_id(tokens.index(special["bos_token"]))
  if "pad_token" in special:
    writer.add_pad_token_id(tokens.index(special["pad_token"]))
    writer.add_unk_token_id(tokens.index(special["unk_token"]))
  end, *others = tokenizer.stop_ids
  writer.add_eos_token_id(end)
  for add, token_id in zip(
    (writer.add_eot_token_id, writer.add_eom_token_id), others, strict=False
  ):
    add(token_id)
  writer.add_chat_template(
    [
      {"name": name, "template": text}
      for name, text in tokenizer.chat_templates.items()
    ]
  )
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


@pytest.fixture
def rebuilt(tmp_path, folder, tokenizer, style):
  path = tmp_path / "model.gguf"
  return load_gguf_tokenizer(_write_gguf(path, folder, tokenizer, _PRE[style]))


@both_styles
def test_ids_are_those_of_the_folder(rebuilt, tokenizer, reference):
  texts = tokenizer_cases.texts()
  assert [digest(rebuilt.encode(text)) for text in texts] == reference["texts"]
  for name, prompt in reference["prompts"].items():
    if prompt is not None:
      ids = rebuilt.encode(prompt)
      assert digest(ids) == reference["prompt_ids"][name]
      assert rebuilt.decode(ids) == tokenizer.decode(ids)


@both_styles
def test_so_is_everything_else(rebuilt, tokenizer):
  assert rebuilt.special_tokens == tokenizer.special_tokens
  assert rebuilt.chat_templates == tokenizer.chat_templates
  assert rebuilt.vocab_size == tokenizer.vocab_size
  assert set(rebuilt.stop_ids) == set(tokenizer.stop_ids)
  kinds, expected = (
    {
      i: (token.content, token.special)
      for i, token in made.backend.get_added_tokens_decoder().items()
    }
    for made in (rebuilt, tokenizer)
  )
  assert kinds == expected


@both_styles
def test_a_saved_one_puts_bos_before_texts_as_the_checkpoint_does(
  rebuilt, tokenizer, tmp_path
):
  save_tokenizer(rebuilt, tmp_path / "hf")
  saved = load_tokenizer(tmp_path / "hf")
  for text in ("", "1 + 1", "GRPO"):
    ids = saved.backend.encode(text, add_special_tokens=True).ids
    assert ids == tokenizer.backend.encode(text, add_special_tokens=True).ids


def _metadata(**changed):
  tokens = ["<|end|>", "a", "Ġ", "1", "2", "ĠĠ", "Ġ1", "12", "ĠĠĠ"]
  fields = {
    "model": "gpt2",
    "pre": "smollm",
    "tokens": tokens,
    "token_type": [3] + [1] * 8,
    "merges": ["Ġ Ġ", "Ġ 1", "1 2", "ĠĠ Ġ"],
    "eos_token_id": 0,
  }
  fields |= changed
  return {f"ggml.{name}": value for name, value in fields.items()}


def test_smollm_sets_every_digit_apart():
  tokenizer = tokenizer_of_metadata(_metadata())

  def words(text):
    return [tokenizer.backend.id_to_token(i) for i in tokenizer.encode(text)]

  # GPT-2's rule alone would give "Ġ1", and "Ġ", "Ġ1" after two spaces.
  assert words("a 12") == ["a", "Ġ", "1", "2"]
  assert words("a  12") == ["a", "ĠĠ", "1", "2"]
  assert words("a   a<|end|>1") == ["a", "ĠĠ", "Ġ", "a", "<|end|>", "1"]
  assert tokenizer.stop_ids == (0,)
  assert tokenizer.special_tokens == {"eos_token": "<|end|>"}


@pytest.mark.parametrize(
  "pre, words", [("qwen2", list("1234")), ("llama-bpe", ["123", "4"])]
)
def test_how_many_digits_stay_together(pre, words):
  tokenizer = tokenizer_of_metadata(_metadata(pre=pre, bos_token_id=0))
  cut = tokenizer.backend.pre_tokenizer.pre_tokenize_str("1234")
  assert [word for word, _ in cut] == words


def test_ends_of_turns_go_before_ends_of_texts():
  tokenizer = tokenizer_of_metadata(
    _metadata(eot_token_id=1, eom_token_id=2, eos_token_id=1)
  )
  assert tokenizer.stop_ids == (1, 2)
  tokenizer = tokenizer_of_metadata(_metadata(eot_token_id=3))
  assert tokenizer.stop_ids == (3, 0)


def test_other_tokenizers_are_refused(tmp_path):
  with pytest.raises(ValueError, match=r"'llama' with .*'llama-bpe', 'q"):
    tokenizer_of_metadata(_metadata(model="llama"))
  with pytest.raises(ValueError, match="pre-tokenizer 'tekken'"):
    tokenizer_of_metadata(_metadata(pre="tekken"))
  (tmp_path / "x.gguf").write_bytes(b"no such thing" * 9)
  with pytest.raises(ValueError, match="magic"):
    load_gguf_tokenizer(tmp_path / "x.gguf")


@pytest.mark.slow
def test_smollm2(smollm2_gguf, tmp_path):
  reference = json.loads((REFERENCES / "smollm2.json").read_text("utf-8"))
  tokenizer = load_gguf_tokenizer(smollm2_gguf)
  save_tokenizer(tokenizer, tmp_path)
  assert tokenizer.vocab_size == 49152
  assert tokenizer.stop_ids == (2,)
  for made in (tokenizer, load_tokenizer(tmp_path)):
    texts = tokenizer_cases.texts()
    assert [digest(made.encode(text)) for text in texts] == reference["texts"]
    for name, chat in tokenizer_cases.chats().items():
      if reference["prompt_ids"][name] is not None:
        prompt = made.render(
          chat.messages,
          tools=chat.tools,
          add_generation_prompt=chat.add_generation_prompt,
        )
        assert digest(made.encode(prompt)) == reference["prompt_ids"][name]
