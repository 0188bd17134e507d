"""Templates render as they do in `transformers`, and fail with a reason."""

from datetime import datetime

import pytest

from grpo_jax.data.chat import render_chat, with_soft_switch

_USER = {"role": "user", "content": "1 + 1?"}


def _render(template, messages=(_USER,), variables=None, **options):
  return render_chat(template, messages, variables=variables or {}, **options)


def test_lines_of_statements_leave_nothing():
  template = "a\n  {% if true %}\n  b\n  {% endif %}\nc\n"
  assert _render(template) == "a\n  b\nc"


def test_a_loop_may_be_left():
  template = (
    "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
    "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
  )
  assert _render(template) == "02"


def test_marks_of_generated_text_are_no_text():
  template = (
    "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}"
    "{{ loop.first }}{{ m.content }}{{ x }}{% endgeneration %}{{ x }}"
    "{% endfor %}"
  )
  assert _render(template) == "True1 + 1?21"


def test_json_is_not_escaped():
  template = "{{ messages[0] | tojson }}{{ tools | tojson(indent=1) }}"
  text = _render(template, [{"role": "user", "content": "<b>&'é'"}], tools=[{}])
  assert text == '{"role": "user", "content": "<b>&\'é\'"}[\n {}\n]'


def test_variables_and_what_every_template_may_name():
  template = (
    "{{ bos_token }}{{ enable_thinking }}{{ tools is none }}"
    "{{ documents is none }}{{ add_generation_prompt }}{{ missing is defined }}"
  )
  variables = {"bos_token": "<s>", "enable_thinking": False}
  assert _render(template, variables=variables) == "<s>FalseTrueTrueTrueFalse"
  assert _render(
    "{{ add_generation_prompt }}", add_generation_prompt=False
  ) == ("False")
  assert _render("{{ documents[0] }}", variables={"documents": ["d"]}) == "d"


def test_time_stands_where_it_is_told_to():
  template = "{{ strftime_now('%d %b %Y') }}"
  assert _render(template, now=datetime(2024, 7, 26)) == "26 Jul 2024"
  assert _render("{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_none_is_absent_and_reasoning_has_all_names():
  message = {"role": "assistant", "content": None, "reasoning": "r"}
  template = (
    "{{ messages[0].content is defined }} {{ messages[0].reasoning_content }}"
    " {{ messages[0].thinking }} {{ messages[0].reasoning }}"
  )
  assert _render(template, [message]) == "False r r r"
  assert _render("{{ messages[0] }}") == str(_USER)


@pytest.mark.parametrize(
  "template, reason",
  [
    ("{{ raise_exception('turns must alternate') }}", "turns must alternate"),
    ("{{ messages[0].content + messages[0].missing.x }}", "UndefinedError"),
    ("{{ messages[0].content + 1 }}", "TypeError"),
    ("{{ messages.append(1) }}", "SecurityError"),
    ("{{ ''.__class__.__mro__ }}", "SecurityError"),
  ],
)
def test_a_refusal_gives_the_templates_reason(template, reason):
  with pytest.raises(ValueError, match=f"refused the messages.*{reason}"):
    _render(template)


def test_bad_input_is_named():
  with pytest.raises(ValueError, match="does not parse, line 2"):
    _render("x\n{% if %}")
  with pytest.raises(ValueError, match="at least one message"):
    _render("x", [])
  with pytest.raises(ValueError, match=r"must be strings.*object"):
    _render("x", [{"role": "user", "content": object()}])


def test_a_soft_switch_ends_the_last_question():
  turns = [_USER, {"role": "assistant", "content": "2"}, dict(_USER)]
  switched = with_soft_switch(turns, thinking=False)
  assert [turn["content"] for turn in switched] == [
    "1 + 1?",
    "2",
    "1 + 1? /no_think",
  ]
  assert turns[2] == _USER
  last = with_soft_switch(turns[:2], thinking=True)
  assert [turn["content"] for turn in last] == ["1 + 1? /think", "2"]
  with pytest.raises(ValueError, match="no turn of the user"):
    with_soft_switch(turns[1:2], thinking=True)
