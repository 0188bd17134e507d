"""Writes what `transformers` says of the tokenizers of the tests.

Trains three small tokenizers in the manner of Qwen3, of a distilled R1 and of
Llama 3, saves them as checkpoints do, and records token ids and rendered
prompts of `tests/data/tokenizer_cases.py`; those of SmolLM2 too, if there is
its GGUF file. Run it from the root of the repository, with the extra `peers`:

    python -m scripts.make_tokenizer_references [folder of SmolLM2's GGUF file]
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from unittest import mock

import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers.utils import chat_template_utils

from tests.data import tokenizer_cases

_OUT = Path("tests/data/references")
_TEMPLATES = Path("tests/data/templates")
_VOCAB_SIZE = 600
_NOW = datetime(2025, 3, 9)


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )


def _trained(pattern: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
  """Vocabulary and merges of the cases' own texts."""
  tokenizer = tokenizers.Tokenizer(models.BPE())
  tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = _split_by(pattern)
  trainer = BpeTrainer(
    vocab_size=_VOCAB_SIZE,
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  tokenizer.train_from_iterator(tokenizer_cases.texts(), trainer)
  model = json.loads(tokenizer.to_str())["model"]
  return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _qwen_pattern() -> str:
  from transformers.models.qwen2 import tokenization_qwen2

  return tokenization_qwen2.PRETOKENIZE_REGEX


def _write_json(path: Path, content) -> None:
  path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def make_qwen_style(folder: Path) -> None:
  """As `transformers` saves one: the template in a file of its own."""
  vocab, merges = _trained(_qwen_pattern())
  tokenizer = transformers.Qwen2Tokenizer(
    vocab=vocab,
    merges=merges,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    extra_special_tokens=["<|im_start|>"],
  )
  words = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
  tokenizer.add_tokens(
    [tokenizers.AddedToken(word, normalized=False) for word in words]
  )
  tokenizer.chat_template = (_TEMPLATES / "qwen_style.jinja").read_text()
  tokenizer.save_pretrained(folder)
  ids = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
  _write_json(folder / "generation_config.json", {"eos_token_id": ids})


def make_r1_style(folder: Path) -> None:
  """As older checkpoints are: a map of special tokens, some of them added."""
  vocab, merges = _trained(_qwen_pattern())
  backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
  backend.pre_tokenizer = _split_by(_qwen_pattern())
  backend.decoder = decoders.ByteLevel()
  words = ["<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
  backend.add_special_tokens([*words, "<think>", "</think>"])
  folder.mkdir(parents=True, exist_ok=True)
  backend.save(str(folder / "tokenizer.json"))
  template = (_TEMPLATES / "r1_style.jinja").read_text()
  _write_json(
    folder / "tokenizer_config.json",
    {"tokenizer_class": "LlamaTokenizerFast", "chat_template": template},
  )
  fields = dict(lstrip=False, rstrip=False, normalized=True, single_word=False)
  _write_json(
    folder / "special_tokens_map.json",
    {
      "bos_token": dict(fields, content="<｜begin▁of▁sentence｜>"),
      "eos_token": dict(fields, content="<｜end▁of▁sentence｜>"),
      "pad_token": "<|pad|>",
    },
  )
  end = backend.token_to_id("<｜end▁of▁sentence｜>")
  _write_json(folder / "generation_config.json", {"eos_token_id": end})


def make_llama_style(folder: Path) -> None:
  """As Llama 3 is: BOS put before texts, and templates by name."""
  pattern = _qwen_pattern().replace(r"|\p{N}|", r"|\p{N}{1,3}|")
  vocab, merges = _trained(pattern)
  # Words that no merges make, and that are found nevertheless.
  for word in ("ĠGRPO", "GRPO", "2024"):
    vocab[word] = len(vocab)
  backend = tokenizers.Tokenizer(
    models.BPE(vocab=vocab, merges=merges, ignore_merges=True)
  )
  backend.pre_tokenizer = _split_by(pattern)
  backend.decoder = decoders.ByteLevel()
  words = ["begin_of_text", "end_of_text", "start_header_id", "end_header_id"]
  words = [f"<|{word}|>" for word in [*words, "eom_id", "eot_id"]]
  backend.add_special_tokens(words)
  backend.post_processor = TemplateProcessing(
    single=[words[0], "$A"],
    special_tokens=[(words[0], backend.token_to_id(words[0]))],
  )
  # Text that a checkpoint limits or fills up is neither here nor there.
  backend.enable_truncation(max_length=32)
  backend.enable_padding(length=16)
  folder.mkdir(parents=True, exist_ok=True)
  backend.save(str(folder / "tokenizer.json"))
  names = {"default": "llama_style", "tool_use": "llama_style_tools"}
  special = [tokenizers.AddedToken(word, special=True) for word in words]
  declared = {
    str(backend.token_to_id(token.content)): {
      "content": token.content,
      "lstrip": False,
      "normalized": False,
      "rstrip": False,
      "single_word": False,
      "special": True,
    }
    for token in special
  }
  _write_json(
    folder / "tokenizer_config.json",
    {
      "tokenizer_class": "PreTrainedTokenizerFast",
      "added_tokens_decoder": declared,
      "bos_token": words[0],
      "eos_token": "<|eot_id|>",
      "clean_up_tokenization_spaces": True,
      "chat_template": [
        {
          "name": name,
          "template": (_TEMPLATES / f"{file}.jinja").read_text(),
        }
        for name, file in names.items()
      ],
    },
  )
  ends = ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]
  ids = [backend.token_to_id(end) for end in ends]
  _write_json(folder / "generation_config.json", {"eos_token_id": ids})


def smollm2(folder: Path):
  """SmolLM2's from its GGUF file, with the pre-tokenizer that it names.

  `transformers` does not know "smollm" and cuts words as GPT-2 did. That is
  wrong before digits: SmolLM's tokenizer.json first sets each digit apart, so
  that two spaces before one stay together.
  """
  (file,) = folder.rglob("*.gguf")
  tokenizer = transformers.AutoTokenizer.from_pretrained(
    file.parent, gguf_file=file.name
  )
  tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  return tokenizer


def rendered(tokenizer, chat: tokenizer_cases.Chat) -> str | None:
  """The prompt; None if the template refuses the conversation."""
  moment = mock.Mock(now=lambda: _NOW)
  with mock.patch.object(chat_template_utils, "datetime", moment):
    try:
      return tokenizer.apply_chat_template(
        chat.messages,
        tools=chat.tools,
        add_generation_prompt=chat.add_generation_prompt,
        tokenize=False,
        **(chat.variables or {}),
      )
    except Exception:  # of the template's
      return None


def references(tokenizer) -> dict:
  """Digests of the ids of all texts and prompts, and the prompts."""

  def digest(text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokenizer_cases.digest(ids)

  prompts = {
    name: rendered(tokenizer, chat)
    for name, chat in tokenizer_cases.chats().items()
  }
  return {
    "texts": [digest(text) for text in tokenizer_cases.texts()],
    "prompts": prompts,
    "prompt_ids": {
      name: None if prompt is None else digest(prompt)
      for name, prompt in prompts.items()
    },
  }


def main() -> None:
  made = {
    "qwen_style": make_qwen_style,
    "r1_style": make_r1_style,
    "llama_style": make_llama_style,
  }
  for name, make in made.items():
    make(_OUT / name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(_OUT / name)
    _write_json(_OUT / f"{name}.json", references(tokenizer))
  if len(sys.argv) > 1:
    of_smollm2 = references(smollm2(Path(sys.argv[1])))
    del of_smollm2["prompts"]  # the text is not ours; its ids will do
    _write_json(_OUT / "smollm2.json", of_smollm2)


if __name__ == "__main__":
  main()
