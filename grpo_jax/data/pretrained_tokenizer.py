"""The tokenizer of a checkpoint, with its chat template and its stop ids."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from grpo_jax.data.chat import Messages, render_chat
from grpo_jax.errors import missing_extra

try:
  import tokenizers
except ImportError as error:
  raise missing_extra("hf", error) from error

# The names that templates and `transformers` know special tokens by.
SPECIAL_TOKEN_NAMES = (
  "bos_token",
  "eos_token",
  "unk_token",
  "sep_token",
  "pad_token",
  "cls_token",
  "mask_token",
)


@dataclasses.dataclass(frozen=True)
class PretrainedTokenizer:
  """A `Tokenizer` over Hugging Face's `tokenizers`.

  `tokenizer_files.load_tokenizer` and `gguf_tokenizer.load_gguf_tokenizer` make
  one.

  Attributes:
    backend: text to ids; its own padding and truncation are switched off.
    special_tokens: the text of `bos_token`, `eos_token`, ..., as templates
      name them.
    stop_ids: ids that end a completion. The first ends a turn of the model in
      training data: a trace to imitate gets it.
    chat_templates: by name; a lone one is "default".
  """

  backend: tokenizers.Tokenizer = dataclasses.field(repr=False)
  special_tokens: Mapping[str, str]
  stop_ids: tuple[int, ...]
  chat_templates: Mapping[str, str] = dataclasses.field(repr=False)

  def __post_init__(self):
    if not self.stop_ids:
      raise ValueError(
        "The tokenizer names no token that ends a completion: neither an"
        " eos_token nor an eos_token_id of a generation_config.json."
      )
    self.backend.no_padding()
    self.backend.no_truncation()

  @functools.cached_property
  def vocab_size(self) -> int:
    """One more than the largest id; a checkpoint may have further rows."""
    return 1 + max(self.backend.get_vocab(with_added_tokens=True).values())

  def encode(self, text: str) -> list[int]:
    """Token ids of a text, rendered templates included.

    Nothing is put before or after the text: a template has written its BOS
    itself. Special tokens that the text spells out, as templates do, become
    those tokens, as in `apply_chat_template(tokenize=True)`. So does
    "<|im_end|>" in a question that somebody else wrote: who takes questions
    from strangers has to look for it.
    """
    return self.backend.encode(text, add_special_tokens=False).ids

  def decode(self, ids: Iterable[int]) -> str:
    """The text of a completion, without the stop token at its end.

    Every other token is text, special ones too, where
    `decode(skip_special_tokens=True)` would hide `<think>` from the rewards if
    the checkpoint declares it special. Ids without a token, which rows that
    only fill up an embedding have, give nothing. No space is "cleaned up".
    """
    ids = [int(i) for i in ids]
    if ids and ids[-1] in self.stop_ids:
      ids.pop()
    return self.backend.decode(ids, skip_special_tokens=False)

  def chat_template(
    self, name: str | None = None, *, with_tools: bool = False
  ) -> str:
    """A template by name.

    Args:
      name: None takes "tool_use", if there is one and there are tools, or else
        "default".
      with_tools: whether there are tools.

    Raises:
      ValueError: there is no such template.
    """
    if name is None:
      tool_use = with_tools and "tool_use" in self.chat_templates
      name = "tool_use" if tool_use else "default"
    if name not in self.chat_templates:
      raise ValueError(
        f"The tokenizer has no chat template {name!r}; it has"
        f" {sorted(self.chat_templates) or 'none at all'}. A base model's"
        " prompts are plain text."
      )
    return self.chat_templates[name]

  def render(
    self,
    messages: Messages,
    *,
    enable_thinking: bool | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template: str | None = None,
    variables: Mapping[str, Any] | None = None,
    add_generation_prompt: bool = True,
    now: datetime | None = None,
  ) -> str:
    """The prompt that a conversation makes by the checkpoint's own template.

    The prompt may have opened `<think>`, or opened and closed it, itself: see
    `grpo_jax.rewards.thinking.thinking_prefix`.

    Args:
      messages: dicts with a role and a content.
      enable_thinking: Qwen3's switch; None leaves it to the template.
      tools: JSON schemas of functions that the model may call.
      template: its name, if not the one that `chat_template` would take.
      variables: further ones of the template, such as Llama 3's `date_string`.
      add_generation_prompt: whether the model's turn is begun.
      now: what a template takes for the present time; the present if None.

    Returns:
      The text; `encode` takes it.

    Raises:
      ValueError: there is no such template, or it refuses the messages.
    """
    given = {**self.special_tokens, **(variables or {})}
    if enable_thinking is not None:
      given["enable_thinking"] = enable_thinking
    return render_chat(
      self.chat_template(template, with_tools=tools is not None),
      messages,
      variables=given,
      tools=tools,
      add_generation_prompt=add_generation_prompt,
      now=now,
    )
