"""Characters and tags to ids and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_jax.data.tokenizer import CharTokenizer, pad_rows

TOKENIZER = CharTokenizer("0123456789+-=<>")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
  st.lists(st.sampled_from([*"0123456789+-=<>", "<think>", "</think>"])).map(
    "".join
  )
)
def test_round_trip(text):
  ids = TOKENIZER.encode(text)
  assert TOKENIZER.decode(ids) == text
  assert all(1 < i < TOKENIZER.vocab_size for i in ids)


def test_tags_are_one_token_each():
  assert len(TOKENIZER.encode("<think>1</think>")) == 3


def test_padding_and_end_are_not_text():
  one = TOKENIZER.encode("1")
  assert TOKENIZER.decode([*one, TOKENIZER.eos_id, 0, 0]) == "1"


def test_an_unknown_character_is_named():
  with pytest.raises(ValueError, match="'x' of '1x'"):
    TOKENIZER.encode("1x")
  with pytest.raises(ValueError, match="twice"):
    CharTokenizer("aa")


def test_rows_are_padded_on_the_right():
  tokens, lengths = pad_rows([[3, 4], [5]], 3)
  np.testing.assert_array_equal(tokens, [[3, 4, 0], [5, 0, 0]])
  np.testing.assert_array_equal(lengths, [2, 1])
  assert pad_rows([[3, 4], [5]])[0].shape == (2, 2)
  for rows in ([[1, 2, 3, 4]], [[]]):
    with pytest.raises(ValueError, match="do not fit"):
      pad_rows(rows, 3)
