"""Ids, prompts and stops of checkpoints are those of `transformers`."""

import importlib
import json
import shutil
import sys
import unicodedata
from datetime import datetime

import numpy as np
import pytest

from grpo_jax.data.pretrained_tokenizer import PretrainedTokenizer
from grpo_jax.data.tokenizer import pad_rows
from grpo_jax.data.tokenizer_files import load_tokenizer, save_tokenizer
from grpo_jax.errors import UserError
from grpo_jax.rewards.functions import answer_and_format
from grpo_jax.rewards.thinking import split_thinking, thinking_prefix
from tests.data import tokenizer_cases
from tests.data.tokenizer_cases import digest

_NOW = datetime(2025, 3, 9)  # of the references
_QUESTION = [{"role": "user", "content": "1 + 1?"}]


def prompt_of(tokenizer, chat):
  """What a tokenizer renders; None if the template refuses."""
  try:
    return tokenizer.render(
      chat.messages,
      tools=chat.tools,
      variables=chat.variables,
      add_generation_prompt=chat.add_generation_prompt,
      now=_NOW,
    )
  except ValueError:
    return None


@pytest.fixture
def qwen(tokenizers_of_styles) -> PretrainedTokenizer:
  return tokenizers_of_styles["qwen_style"]


@pytest.fixture
def copy(folder, tmp_path):
  """The checkpoint with some files changed; None takes one away."""

  def changed(**files):
    shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
    for name, content in files.items():
      path = tmp_path / "copy" / f"{name}.json"
      if content is None:
        path.unlink()
      else:
        path.write_text(json.dumps(content))
    return tmp_path / "copy"

  return changed


only_qwen = pytest.mark.parametrize("style", ["qwen_style"], indirect=True)


def test_ids_of_texts(tokenizer, reference):
  texts = tokenizer_cases.texts()
  assert len(texts) == tokenizer_cases.COUNT == len(reference["texts"])
  assert [digest(tokenizer.encode(text)) for text in texts] == (
    reference["texts"]
  )


@pytest.mark.parametrize("name", tokenizer_cases.chats())
def test_prompts(tokenizer, reference, name):
  prompt = prompt_of(tokenizer, tokenizer_cases.chats()[name])
  assert prompt == reference["prompts"][name]
  ids = None if prompt is None else digest(tokenizer.encode(prompt))
  assert ids == reference["prompt_ids"][name]


def test_texts_survive(tokenizer, style):
  for text in tokenizer_cases.texts():
    text += "."  # some end in the stop token
    composed = unicodedata.normalize("NFC", text)
    expected = composed if style == "qwen_style" else text
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_stops_and_sizes(tokenizers_of_styles):
  stops = {
    style: [tokenizer.backend.id_to_token(i) for i in tokenizer.stop_ids]
    for style, tokenizer in tokenizers_of_styles.items()
  }
  assert stops == {
    "qwen_style": ["<|im_end|>", "<|endoftext|>"],
    "r1_style": ["<｜end▁of▁sentence｜>"],  # noqa: RUF001
    "llama_style": ["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"],
  }
  # 600 words; 7 added; 5 and 2 added; 3 and 6 added.
  sizes = {s: t.vocab_size for s, t in tokenizers_of_styles.items()}
  assert sizes == {"qwen_style": 607, "r1_style": 607, "llama_style": 609}


@only_qwen
def test_every_stop_is_honoured(copy, qwen):
  end, text = qwen.stop_ids
  think = qwen.backend.token_to_id("<think>")

  def stops(**options):
    return load_tokenizer(copy(**files), **options).stop_ids

  files = dict(generation_config={"eos_token_id": think})
  assert stops() == (end, think)
  assert stops(extra_stops=["</think>"]) == (end, think + 1, think)
  files = dict(generation_config={}, config={"eos_token_id": [text, end]})
  assert stops() == (end, text)
  files = dict(tokenizer_config={}, generation_config={"eos_token_id": text})
  assert stops() == (text,)
  files = dict(tokenizer_config={}, generation_config=None, config={})
  with pytest.raises(ValueError, match="no token that ends"):
    stops()
  with pytest.raises(ValueError, match=r"no token '<\|no\|>'"):
    stops(extra_stops=["<|no|>"])


def test_a_completion_is_decoded_to_its_last_word(tokenizers_of_styles):
  for tokenizer in tokenizers_of_styles.values():
    stop = tokenizer.stop_ids[0]
    text = "<think>\na</think>\n\n!"
    ids = np.asarray([*tokenizer.encode(text), stop], np.int32)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids[:-1]) == text
    name = tokenizer.backend.id_to_token(stop)
    assert tokenizer.decode([stop, *ids]) == name + text
    assert tokenizer.decode([]) == tokenizer.decode([stop]) == ""
    # Rows that fill up an embedding beyond the vocabulary.
    assert tokenizer.decode([tokenizer.vocab_size, *ids]) == text


def test_id_zero_is_a_token(qwen):
  ids = qwen.encode("!!")
  assert ids == [0, 0] and qwen.decode(ids) == "!!"
  tokens, lengths = pad_rows([ids, qwen.encode("abc!")], 6)
  assert qwen.decode(tokens[0, : lengths[0]]) == "!!"


def test_a_longer_beginning_never_has_a_shorter_text(tokenizer):
  for text in tokenizer_cases.texts():
    ids = tokenizer.encode(text[:60])
    lengths = [len(tokenizer.decode(ids[:t])) for t in range(len(ids) + 1)]
    assert lengths == sorted(lengths), text


def test_a_text_may_spell_special_tokens(qwen):
  ids = qwen.encode("a<|im_end|>b")
  assert ids[1] == qwen.stop_ids[0] and len(ids) == 3


@only_qwen
def test_templates_in_their_own_files_go_first(copy, qwen):
  own = qwen.chat_template()
  config = {"eos_token": "<|im_end|>", "chat_template": "of the config"}
  folder = copy(tokenizer_config=config)
  assert load_tokenizer(folder).chat_templates == {"default": own}
  (folder / "additional_chat_templates").mkdir()
  (folder / "additional_chat_templates/tool_use.jinja").write_text("tools")
  both = load_tokenizer(folder)
  assert both.chat_templates == {"default": own, "tool_use": "tools"}
  assert both.render(_QUESTION, tools=[{}]) == "tools"
  assert both.render(_QUESTION, template="tool_use") == "tools"
  (folder / "chat_template.jinja").unlink()
  shutil.rmtree(folder / "additional_chat_templates")
  assert load_tokenizer(folder).render(_QUESTION) == "of the config"


@only_qwen
def test_a_template_that_is_not_there_is_named(copy, qwen):
  with pytest.raises(ValueError, match=r"'rag'; it has \['default'\]"):
    qwen.render(_QUESTION, template="rag")
  folder = copy()
  (folder / "chat_template.jinja").unlink()
  with pytest.raises(ValueError, match="'default'; it has none at all"):
    load_tokenizer(folder).render(_QUESTION)


@only_qwen
def test_a_folder_without_sense_is_named(copy, tmp_path, qwen):
  with pytest.raises(ValueError, match=r"no tokenizer\.json.*save_pretrained"):
    load_tokenizer(tmp_path)
  token = {"content": "<new>", "special": False}
  size = qwen.vocab_size
  config = {"eos_token": "<|im_end|>", "added_tokens_decoder": {size: token}}
  ids = load_tokenizer(copy(tokenizer_config=config)).encode("<new>")
  assert ids == [size]
  config["added_tokens_decoder"] = {size + 1: token}
  with pytest.raises(ValueError, match=f"'<new>' the id {size + 1}, but"):
    load_tokenizer(copy(tokenizer_config=config))


def test_saved_and_read_again_it_is_the_same(tokenizer, tmp_path):
  save_tokenizer(tokenizer, tmp_path / "new")
  again = load_tokenizer(tmp_path / "new")
  assert again.stop_ids == tokenizer.stop_ids
  assert again.special_tokens == tokenizer.special_tokens
  assert again.chat_templates == tokenizer.chat_templates
  assert again.backend.to_str() == tokenizer.backend.to_str()
  generation = json.loads(
    (tmp_path / "new/generation_config.json").read_text("utf-8")
  )
  assert generation.pop("eos_token_id") == list(tokenizer.stop_ids)
  assert generation == {
    f"{name}_id": tokenizer.backend.token_to_id(token)
    for name, token in tokenizer.special_tokens.items()
    if name in ("bos_token", "pad_token")
  }


def test_a_prompt_that_begins_the_thinking(tokenizers_of_styles):
  def prefix(style, **options):
    return thinking_prefix(
      tokenizers_of_styles[style].render(_QUESTION, **options)
    )

  assert prefix("r1_style") == "<think>\n"
  assert prefix("qwen_style") == prefix("llama_style") == ""
  assert prefix("qwen_style", enable_thinking=True) == ""
  closed = prefix("qwen_style", enable_thinking=False)
  assert closed == "<think>\n\n</think>\n\n"
  opened = split_thinking(prefix("r1_style") + "add\n</think>\n\n2")
  assert opened == ("\nadd", "2", True)
  assert split_thinking(closed + "2") == ("", "2", True)


def test_rewards_see_what_the_prompt_began(qwen):
  def prompt(example):
    return qwen.render(_QUESTION, enable_thinking=False)

  def score(example, answer):
    return float(answer == "2")

  begun = answer_and_format(score, prompt=prompt)
  assert begun(None, "2") == {"correctness": 1, "format": 1}
  assert answer_and_format(score)(None, "2") == {"correctness": 0, "format": 0}


@pytest.mark.parametrize(
  "package, module",
  [
    ("jinja2", "chat"),
    ("tokenizers", "pretrained_tokenizer"),
    ("tokenizers", "tokenizer_files"),
    ("gguf", "gguf_tokenizer"),
  ],
)
def test_without_the_extra_its_name_is_told(package, module, monkeypatch):
  name = f"grpo_jax.data.{module}"
  monkeypatch.setitem(sys.modules, package, None)
  monkeypatch.delitem(sys.modules, name, raising=False)
  with pytest.raises(UserError, match=r"pip install 'grpo_jax\[hf\]'"):
    importlib.import_module(name)
