"""The tokenizer that a GGUF file holds, as llama.cpp's converter wrote it.

A GGUF file has the vocabulary, the merges and the kind of each token, but
names its pre-tokenizer only. What the names stand for is fixed by the models'
own tokenizer.json.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_jax.data.pretrained_tokenizer import PretrainedTokenizer
from grpo_jax.errors import missing_extra

try:
  import gguf
  import tokenizers
  from tokenizers import decoders, models, normalizers, pre_tokenizers
  from tokenizers.processors import TemplateProcessing
except ImportError as error:
  raise missing_extra("hf", error) from error

# How words are cut before merging. Llama 3 keeps up to three digits together,
# Qwen2 (and 2.5 and 3) each apart; the rest of the pattern is the same.
_SPLIT = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English endings
  r"|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"  # a word and what is right before it
  r"|\p{{N}}{digits}"
  r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"  # punctuation up to the line's end
  r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_SPECIAL_TOKEN_KEYS = {
  "bos_token": "bos_token_id",
  "eos_token": "eos_token_id",
  "unk_token": "unknown_token_id",
  "sep_token": "seperator_token_id",  # sic
  "pad_token": "padding_token_id",
  "mask_token": "mask_token_id",
}


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )


def _digits_apart() -> pre_tokenizers.PreTokenizer:
  """Each digit is a word of its own, also without the space before it."""
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
  )


_PRE_TOKENIZERS = {
  "llama-bpe": lambda: _split_by(_SPLIT.format(digits="{1,3}")),
  "qwen2": lambda: _split_by(_SPLIT.format(digits="")),
  "smollm": _digits_apart,
}


def load_gguf_tokenizer(path: str | Path) -> PretrainedTokenizer:
  """Rebuilds the tokenizer of a GGUF file: Llama 3, Qwen2 to 3, or SmolLM.

  A completion ends at the end of a turn, of a text, or of a message to a tool,
  whichever of `eot`, `eos` and `eom` the file names: it has no list of its own.
  Reading takes seconds; `save_tokenizer` makes a folder that loads at once.

  Args:
    path: of the file; its tensors are not read.

  Returns:
    The tokenizer, with the file's chat templates.

  Raises:
    ValueError: the file is no GGUF, or its tokenizer is of another kind.
  """
  reader = gguf.GGUFReader(path)
  prefix = "tokenizer."
  return tokenizer_of_metadata(
    {
      name.removeprefix(prefix): field.contents()
      for name, field in reader.fields.items()
      if name.startswith(prefix)
    }
  )


def tokenizer_of_metadata(metadata: Mapping[str, Any]) -> PretrainedTokenizer:
  """The same from the fields of a file that begin with `tokenizer.`.

  Args:
    metadata: values by name, without `tokenizer.`.

  Raises:
    ValueError: the tokenizer is of a kind that is not known here.
  """
  fields = {
    name.removeprefix("ggml."): value
    for name, value in metadata.items()
    if name.startswith("ggml.")
  }
  kind, pre = fields.get("model"), fields.get("pre")
  if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
    raise ValueError(
      f"The GGUF file's tokenizer is {kind!r} with the pre-tokenizer {pre!r}."
      f" Known are 'gpt2' (byte-level BPE) with {sorted(_PRE_TOKENIZERS)}; for"
      " another, use a Hugging Face folder with a tokenizer.json."
    )
  tokens = fields["tokens"]
  return PretrainedTokenizer(
    backend=_backend(fields),
    special_tokens={
      name: tokens[fields[key]]
      for name, key in _SPECIAL_TOKEN_KEYS.items()
      if key in fields
    },
    stop_ids=tuple(
      dict.fromkeys(
        fields[f"{end}_token_id"]
        for end in ("eot", "eos", "eom")
        if f"{end}_token_id" in fields
      )
    ),
    chat_templates=_chat_templates(metadata),
  )


def _backend(fields: Mapping[str, Any]) -> tokenizers.Tokenizer:
  tokens, pre = fields["tokens"], fields["pre"]
  backend = tokenizers.Tokenizer(
    models.BPE(
      vocab={token: index for index, token in enumerate(tokens)},
      merges=[tuple(merge.split(" ")) for merge in fields["merges"]],
      # Llama 3 has words that no sequence of merges makes.
      ignore_merges=pre == "llama-bpe",
    )
  )
  backend.pre_tokenizer = _PRE_TOKENIZERS[pre]()
  backend.decoder = decoders.ByteLevel()
  if pre == "qwen2":
    backend.normalizer = normalizers.NFC()
  declared = {
    gguf.TokenType.CONTROL: True,
    gguf.TokenType.USER_DEFINED: False,  # such as <think>
  }
  backend.add_tokens(
    [
      tokenizers.AddedToken(token, special=declared[kind], normalized=False)
      for token, kind in zip(tokens, fields["token_type"], strict=True)
      if kind in declared
    ]
  )
  # Read by others only: `encode` adds nothing.
  if fields.get("add_bos_token", pre == "llama-bpe"):
    bos_id = fields["bos_token_id"]
    backend.post_processor = TemplateProcessing(
      single=[tokens[bos_id], "$A"],
      special_tokens=[(tokens[bos_id], bos_id)],
    )
  return backend


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
  names = metadata.get("chat_templates", [])
  templates = {name: metadata[f"chat_template.{name}"] for name in names}
  if "chat_template" in metadata:
    templates["default"] = metadata["chat_template"]
  return templates
