"""The same as `transformers` does, asked anew; needs the extra `peers`.

SmolLM2-135M-Instruct is taken from where scripts/fetch_smollm2.py puts it, or
from the folder that GRPO_JAX_SMOLLM2 names.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.data.gguf_tokenizer import load_gguf_tokenizer
from grpo_jax.data.tokenizer import pad_rows
from grpo_jax.models import decoder, huggingface
from grpo_jax.models.logprobs import completion_rows, score
from grpo_jax.models.pretrained import load_pretrained
from grpo_jax.sampling.decode import SamplingOptions
from grpo_jax.sampling.generate import completion_keys, make_generate

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

REFERENCES = Path(__file__).parent / "references"
MODELS = sorted(path.parent.name for path in REFERENCES.glob("*/outputs.npz"))
SMOLLM2 = Path(
  os.environ.get("GRPO_JAX_SMOLLM2", "~/.cache/grpo_jax/smollm2")
).expanduser()
NEW_TOKENS = 64

TEXTS = [
  "The ferry left the harbour at dawn, an hour later than the timetable said.",
  "Natalia has 48 clips. She sells half of them and buys 7 more. How many?",
  "def area(width, height):\n  return width * height\n\n\nprint(area(3, 4))",
  "Water boils at a lower temperature on a mountain, because the air is thin.",
  "Dear Ms. Ortega,\n\nthank you for your letter of 3 May. We regret that",
  "1, 1, 2, 3, 5, 8, 13, 21, 34,",
  "Once upon a time there was a fox who could not stand the smell of grapes.",
  "The derivative of x^3 - 2x is 3x^2 - 2, so at x = 2 the slope is 10.",
  '{"name": "Ada", "born": 1815, "languages": ["English", "French"]}',
  "Zwei Züge fahren einander entgegen, der eine mit 80, der andere mit 100",
  "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n",
  "A triangle with sides 3, 4 and 5 has a right angle, since 9 + 16 = 25.",
  "In 1969, for the first time, people walked on the Moon and came back.",
  "To bake bread you need flour, water, salt, yeast and a lot of patience",
  "SELECT name, COUNT(*) FROM orders GROUP BY name HAVING COUNT(*) > 3;",
  "If all bloops are razzies and all razzies are lazzies, then all bloops are",
  "The capital of Australia is not Sydney, as many believe, but Canberra.",
  "Step 1: write down what is known. Step 2: write down what is asked.",
  "Prices rose by 4.5 % in March, after 3.9 % in February and 4.1 % before.",
  "¿Dónde está la biblioteca? — Está al lado del río, detrás del molino. 🙂",
]


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_folder_is_loaded_by_transformers(name, tmp_path):
  config, params = load_pretrained(REFERENCES / name, scan_layers=True)
  # Over the size limit, so that there is an index too.
  huggingface.save(tmp_path / "saved", config, params, shard_bytes=20_000)
  assert (tmp_path / "saved/model.safetensors.index.json").exists()
  model, found = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path / "saved", attn_implementation="eager", output_loading_info=True
  )
  assert not any(found.values()), found
  assert model.dtype == torch.float32
  with np.load(REFERENCES / name / "outputs.npz") as reference:
    tokens, logits = reference["tokens"][:1], reference["logits"][:1]
  with torch.no_grad():
    again = model(torch.as_tensor(tokens).long()).logits.numpy()
  np.testing.assert_allclose(again, logits, rtol=1e-5, atol=1e-5)


def test_a_saved_folder_in_bfloat16_is_loaded_by_transformers(tmp_path):
  config, params = load_pretrained(
    REFERENCES / "qwen3_moe", param_dtype="bfloat16"
  )
  huggingface.save(tmp_path / "saved", config, params)
  model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
  assert model.dtype == torch.bfloat16
  theirs = (
    model.get_input_embeddings().weight.view(torch.int16).numpy(force=True)
  )
  ours = np.asarray(params["embedding"]).view(np.int16)
  np.testing.assert_array_equal(theirs, ours)


@pytest.fixture(scope="module")
def smollm2():
  """Our model, theirs, and the ids of the texts; all from the GGUF file."""
  files = sorted(SMOLLM2.rglob("*.gguf"))
  if not files:
    pytest.skip(f"no GGUF file in {SMOLLM2}: run scripts/fetch_smollm2.py")
  tokenizer = load_gguf_tokenizer(files[0])
  config, params = load_pretrained(files[0])
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    files[0].parent, gguf_file=files[0].name, dtype=torch.float32
  ).eval()
  return config, params, theirs, [tokenizer.encode(text) for text in TEXTS]


@pytest.fixture(scope="module")
def their_logits(smollm2):
  """Of each text, computed alone."""
  _, _, model, ids = smollm2
  with torch.no_grad():
    return [model(torch.tensor([row])).logits[0].numpy() for row in ids]


def test_logits_of_smollm2(smollm2, their_logits):
  config, params, _, ids = smollm2
  tokens, lengths = pad_rows(ids)

  @jax.jit
  def logits_of(params, tokens):
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    mask = decoder.causal_mask(positions, tokens.shape[1])
    hidden, _ = decoder.trunk(params, config, tokens, positions, mask)
    return decoder.unembed(params, config, hidden)

  ours = logits_of(params, tokens)
  for row, length, theirs in zip(ours, lengths, their_logits, strict=True):
    worst = np.abs(theirs).max()
    np.testing.assert_allclose(
      row[:length], theirs, rtol=1e-4, atol=1e-4 * worst
    )


def test_log_probs_of_texts_under_smollm2(smollm2, their_logits):
  config, params, _, ids = smollm2
  prompts, prompt_lengths = pad_rows([row[:1] for row in ids])
  tokens, lengths = pad_rows([row[1:] for row in ids])
  rows = completion_rows(*map(jnp.asarray, (prompts, prompt_lengths, tokens)))
  ours = jax.jit(score, static_argnames=("config", "temperature"))(
    params, config, rows, jnp.asarray(tokens), temperature=1.0
  ).logp
  for row, length, text, logits in zip(
    ours, lengths, ids, their_logits, strict=True
  ):
    theirs = torch.tensor(logits[:-1]).log_softmax(-1).numpy()
    theirs = theirs[np.arange(length), text[1:]]
    np.testing.assert_allclose(row[:length], theirs, rtol=0, atol=1e-4)


def test_greedy_continuations_of_smollm2(smollm2):
  config, params, model, ids = smollm2
  no_stop = (config.vocab_size,)
  generate = make_generate(
    config, SamplingOptions(NEW_TOKENS, 0.0, 0, 1.0, no_stop)
  )
  prompts, lengths = pad_rows(ids)
  keys = completion_keys(jax.random.key(0), jnp.arange(len(ids)), 1)
  ours = generate(
    params, jnp.asarray(prompts), jnp.asarray(lengths), keys
  ).tokens[:, 0]
  # Theirs are padded on the left, as `generate` wants it.
  padded, mask = torch.zeros((2, *prompts.shape), dtype=torch.long)
  for i, text in enumerate(ids):
    padded[i, -len(text) :] = torch.tensor(text)
    mask[i, -len(text) :] = 1
  theirs = model.generate(
    padded,
    attention_mask=mask,
    max_new_tokens=NEW_TOKENS,
    do_sample=False,
    eos_token_id=no_stop[0],  # which it never meets
    pad_token_id=0,
  )[:, prompts.shape[1] :]
  assert theirs.shape == (len(TEXTS), NEW_TOKENS)
  np.testing.assert_array_equal(ours, theirs)
