"""Tokenizers in folders of the Hugging Face layout, read and written."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_jax.data.pretrained_tokenizer import (
  SPECIAL_TOKEN_NAMES,
  PretrainedTokenizer,
)
from grpo_jax.errors import missing_extra

try:
  import tokenizers
except ImportError as error:
  raise missing_extra("hf", error) from error


def load_tokenizer(
  folder: str | Path, *, extra_stops: Sequence[str] = ()
) -> PretrainedTokenizer:
  """Reads a tokenizer as `AutoTokenizer.from_pretrained` does.

  Of `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json`,
  `chat_template.jinja`, `additional_chat_templates/`, `generation_config.json`
  and `config.json` only the first must be there. A template in a file of its
  own goes before one in `tokenizer_config.json`.

  A completion ends at the tokenizer's `eos_token`, and at every `eos_token_id`
  of `generation_config.json` (of `config.json`, if that names none). `generate`
  of `transformers` heeds only the latter.

  Args:
    folder: of the checkpoint.
    extra_stops: further tokens that end a completion, as text. A base model
      that is trained with a chat template needs the one that ends its turns.

  Returns:
    The tokenizer.

  Raises:
    ValueError: there is no tokenizer.json, two files give a token different
      ids, an extra stop is no token, or no token ends a completion.
  """
  folder = Path(folder)
  if not (folder / "tokenizer.json").is_file():
    raise ValueError(
      f"{folder} has no tokenizer.json. Where there are a vocab.json and a"
      " merges.txt, or a tokenizer.model, transformers makes one:"
      " AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
    )
  backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
  config = _read_json(folder / "tokenizer_config.json")
  if "added_tokens_decoder" not in config:  # written before transformers 4.34
    config |= _read_json(folder / "special_tokens_map.json")
  special_tokens = {
    name: _added(config[name]).content
    for name in SPECIAL_TOKEN_NAMES
    if config.get(name) is not None
  }
  _add_tokens(backend, config)
  stops = [special_tokens.get("eos_token"), *extra_stops]
  return PretrainedTokenizer(
    backend=backend,
    special_tokens=special_tokens,
    stop_ids=_unique(
      [
        *(_id(backend, stop) for stop in stops if stop is not None),
        *_eos_token_ids(folder),
      ]
    ),
    chat_templates=_chat_templates(folder, config),
  )


def save_tokenizer(tokenizer: PretrainedTokenizer, folder: str | Path) -> None:
  """Writes a tokenizer that `AutoTokenizer.from_pretrained` loads.

  Writes `tokenizer.json`, `tokenizer_config.json` with the chat templates, and
  `generation_config.json` with the stop ids.

  Args:
    tokenizer: from a folder, or from a GGUF file.
    folder: made if it is not there; its files of these names are replaced.
  """
  folder = Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  tokenizer.backend.save(str(folder / "tokenizer.json"))
  templates = dict(tokenizer.chat_templates)
  config = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "clean_up_tokenization_spaces": False,
    **tokenizer.special_tokens,
  }
  if templates.keys() == {"default"}:
    config["chat_template"] = templates["default"]
  elif templates:
    config["chat_template"] = [
      {"name": name, "template": text} for name, text in templates.items()
    ]
  generation = {"eos_token_id": list(tokenizer.stop_ids)}
  for name in ("bos_token", "pad_token"):
    if name in tokenizer.special_tokens:
      generation[f"{name}_id"] = _id(
        tokenizer.backend, tokenizer.special_tokens[name]
      )
  _write_json(folder / "tokenizer_config.json", config)
  _write_json(folder / "generation_config.json", generation)


def _read_json(path: Path) -> dict[str, Any]:
  """The file's content; an absent file says nothing."""
  return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
  text = json.dumps(content, indent=2, ensure_ascii=False)
  path.write_text(text + "\n", "utf-8")


def _added(token: str | Mapping[str, Any]) -> tokenizers.AddedToken:
  """A special token, of which older files hold a dict."""
  fields = {"content": token} if isinstance(token, str) else dict(token)
  fields.pop("__type", None)
  return tokenizers.AddedToken(**{**fields, "special": True})


def _id(backend: tokenizers.Tokenizer, token: str) -> int:
  token_id = backend.token_to_id(token)
  if token_id is None:
    raise ValueError(f"The tokenizer has no token {token!r}.")
  return token_id


def _unique(ids: Sequence[int]) -> tuple[int, ...]:
  return tuple(dict.fromkeys(ids))


def _add_tokens(
  backend: tokenizers.Tokenizer, config: Mapping[str, Any]
) -> None:
  """Adds what tokenizer_config.json declares beyond tokenizer.json.

  A token that tokenizer.json declares too is as tokenizer_config.json has it.
  """
  declared = {
    int(token_id): tokenizers.AddedToken(**fields)
    for token_id, fields in config.get("added_tokens_decoder", {}).items()
  }
  there = backend.get_added_tokens_decoder().values()
  known = {repr(token) for token in there}
  backend.add_tokens(
    [token for _, token in sorted(declared.items()) if repr(token) not in known]
  )
  for token_id, token in declared.items():
    if backend.token_to_id(token.content) != token_id:
      raise ValueError(
        f"tokenizer_config.json gives {token.content!r} the id {token_id}, but"
        f" in tokenizer.json it is {backend.token_to_id(token.content)}."
      )
  further = config.get("extra_special_tokens") or config.get(
    "additional_special_tokens"
  )
  named = [config[n] for n in SPECIAL_TOKEN_NAMES if config.get(n) is not None]
  named += further if isinstance(further, list) else []
  contents = {token.content for token in [*there, *declared.values()]}
  added = [_added(token) for token in named]
  backend.add_tokens([t for t in added if t.content not in contents])


def _eos_token_ids(folder: Path) -> list[int]:
  for name in ("generation_config.json", "config.json"):
    ids = _read_json(folder / name).get("eos_token_id")
    if ids is not None:
      return ids if isinstance(ids, list) else [ids]
  return []


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
  """By name, from their own files, or else from tokenizer_config.json."""
  files = {
    path.stem: path
    for path in sorted(folder.glob("additional_chat_templates/*.jinja"))
  }
  if (folder / "chat_template.jinja").is_file():
    files["default"] = folder / "chat_template.jinja"
  if files:
    return {name: path.read_text("utf-8") for name, path in files.items()}
  template = config.get("chat_template")
  if isinstance(template, list):
    return {entry["name"]: entry["template"] for entry in template}
  return {} if template is None else {"default": template}
