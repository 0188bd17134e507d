"""Chat templates of checkpoints, rendered as `transformers` renders them.

A template is a Jinja program from whoever published the checkpoint. It runs in
Jinja's sandbox and sees plain data only.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from grpo_jax.errors import missing_extra

try:
  import jinja2
  from jinja2.ext import Extension, loopcontrols
  from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as error:
  raise missing_extra("hf", error) from error

Messages = Sequence[Mapping[str, Any]]

# Reasoning of earlier turns goes by these names; templates read the first, and
# gpt-oss's the second.
_REASONING = ("reasoning_content", "thinking", "reasoning")


class _Generation(Extension):
  """`{% generation %}` marks what a model wrote, for trainers; no text."""

  tags = frozenset({"generation"})

  def parse(self, parser):
    line = next(parser.stream).lineno
    body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
    return jinja2.nodes.Scope(body, lineno=line)


def _raise_exception(message):
  raise jinja2.TemplateError(message)


def _tojson(
  value, ensure_ascii=False, indent=None, separators=None, sort_keys=False
):
  """JSON without Jinja's escapes of <, > and &, which models never saw."""
  return json.dumps(
    value,
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    sort_keys=sort_keys,
  )


@functools.lru_cache
def _compiled(template: str) -> jinja2.Template:
  environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
  )
  environment.filters["tojson"] = _tojson
  environment.globals["raise_exception"] = _raise_exception
  return environment.from_string(template)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
  """None counts as absent, and reasoning has all of its names."""
  given = {name: value for name, value in message.items() if value is not None}
  reasoning = next((given[name] for name in _REASONING if name in given), None)
  if reasoning is None:
    return given
  return {"thinking": reasoning, **given, "reasoning_content": reasoning}


def _plain(data):
  """A copy of JSON types, whose methods a template may call without harm."""
  try:
    return json.loads(json.dumps(data))
  except (TypeError, ValueError) as error:
    raise ValueError(
      "Messages, tools and variables of a chat template must be strings,"
      f" numbers, lists and dicts: {error}."
    ) from error


def render_chat(
  template: str,
  messages: Messages,
  *,
  variables: Mapping[str, Any],
  tools: Sequence[Mapping[str, Any]] | None = None,
  add_generation_prompt: bool = True,
  now: datetime | None = None,
) -> str:
  """The text of a conversation, as `apply_chat_template(tokenize=False)`.

  As `transformers` 5 does it: a message's fields that are None are left out,
  and `thinking` or `reasoning` are offered as `reasoning_content` too.

  Args:
    template: in Jinja.
    messages: dicts with a role and, mostly, a content.
    variables: what else the template may name: special tokens such as
      `bos_token`, switches such as `enable_thinking`, `documents`.
    tools: JSON schemas of functions that the model may call.
    add_generation_prompt: whether the text ends where the model's turn begins.
    now: what a template's `strftime_now` tells; the present if None. Prompts
      that hold the day they were made differ tomorrow.

  Returns:
    The text, with its special tokens.

  Raises:
    ValueError: there is no message, the data are not plain, the template does
      not parse, or it raised (many refuse orders of roles).
  """
  if not messages:
    raise ValueError("A conversation needs at least one message.")
  given = {
    "messages": [_message(message) for message in messages],
    "tools": tools,
    "documents": None,
    "add_generation_prompt": add_generation_prompt,
    **variables,
  }
  try:
    compiled = _compiled(template)
  except jinja2.TemplateSyntaxError as error:
    raise ValueError(
      f"The chat template does not parse, line {error.lineno}: {error}"
    ) from error
  plain = _plain(given)
  try:
    return compiled.render(plain, strftime_now=(now or datetime.now()).strftime)
  except Exception as error:  # it is a program of others
    raise ValueError(
      f"The chat template refused the messages: {type(error).__name__}: {error}"
    ) from error


def with_soft_switch(messages: Messages, *, thinking: bool) -> list[dict]:
  """Ends the last turn of the user with Qwen3's `/think` or `/no_think`.

  Qwen3 (arXiv:2505.09388) reads the switch as text, and obeys the latest. It
  counts only where the template variable `enable_thinking` is not False.

  Args:
    messages: a conversation; left as it is.
    thinking: which switch.

  Returns:
    The conversation with the switch.

  Raises:
    ValueError: no turn of the user has text.
  """
  switched = [dict(message) for message in messages]
  for message in reversed(switched):
    if message["role"] == "user" and isinstance(message["content"], str):
      message["content"] += " /think" if thinking else " /no_think"
      return switched
  raise ValueError("There is no turn of the user to put a soft switch in.")
