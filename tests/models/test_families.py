"""What a config.json may say, and what is refused of it."""

import dataclasses
import json
from pathlib import Path

import pytest

from grpo_jax.errors import UserError
from grpo_jax.models.families import (
  read_family_config,
  write_family_config,
)
from grpo_jax.models.pretrained import read_config
from grpo_jax.models.rope import Llama3Scaling, YarnScaling

REFERENCES = Path(__file__).parent / "references"
MODELS = sorted(path.parent.name for path in REFERENCES.glob("*/outputs.npz"))

# As published: Llama-3.2-1B, Qwen2.5-7B-Instruct, Qwen3-0.6B, Qwen3-30B-A3B.
LLAMA = {
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": False,
  "attention_dropout": 0.0,
  "bos_token_id": 128000,
  "eos_token_id": 128001,
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "initializer_range": 0.02,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "mlp_bias": False,
  "model_type": "llama",
  "num_attention_heads": 32,
  "num_hidden_layers": 16,
  "num_key_value_heads": 8,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": True,
  "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0",
  "use_cache": True,
  "vocab_size": 128256,
}
QWEN2 = {
  "architectures": ["Qwen2ForCausalLM"],
  "attention_dropout": 0.0,
  "bos_token_id": 151643,
  "eos_token_id": 151645,
  "hidden_act": "silu",
  "hidden_size": 3584,
  "initializer_range": 0.02,
  "intermediate_size": 18944,
  "max_position_embeddings": 32768,
  "max_window_layers": 28,
  "model_type": "qwen2",
  "num_attention_heads": 28,
  "num_hidden_layers": 28,
  "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "sliding_window": 131072,
  "tie_word_embeddings": False,
  "torch_dtype": "bfloat16",
  "transformers_version": "4.43.1",
  "use_cache": True,
  "use_sliding_window": False,
  "vocab_size": 152064,
}
QWEN3 = {
  "architectures": ["Qwen3ForCausalLM"],
  "attention_bias": False,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 1024,
  "intermediate_size": 3072,
  "max_position_embeddings": 40960,
  "max_window_layers": 28,
  "model_type": "qwen3",
  "num_attention_heads": 16,
  "num_hidden_layers": 28,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06,
  "rope_scaling": None,
  "rope_theta": 1000000,
  "sliding_window": None,
  "tie_word_embeddings": True,
  "torch_dtype": "bfloat16",
  "use_sliding_window": False,
  "vocab_size": 151936,
}
MOE = {
  "architectures": ["Qwen3MoeForCausalLM"],
  "attention_bias": False,
  "decoder_sparse_step": 1,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "intermediate_size": 6144,
  "max_position_embeddings": 40960,
  "mlp_only_layers": [],
  "model_type": "qwen3_moe",
  "moe_intermediate_size": 768,
  "norm_topk_prob": True,
  "num_attention_heads": 32,
  "num_experts": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 48,
  "num_key_value_heads": 4,
  "output_router_logits": False,
  "rms_norm_eps": 1e-06,
  "rope_scaling": None,
  "rope_theta": 1000000.0,
  "router_aux_loss_coef": 0.001,
  "sliding_window": None,
  "tie_word_embeddings": False,
  "torch_dtype": "bfloat16",
  "use_sliding_window": False,
  "vocab_size": 151936,
}


def _read(data, **changes):
  return read_family_config({**data, **changes}, "config.json")


def test_published_files_are_read():
  llama = _read(LLAMA)
  assert (llama.width, llama.layers, llama.mlp_width) == (2048, 16, 8192)
  assert (llama.heads, llama.kv_heads, llama.head_dim) == (32, 8, 64)
  assert llama.rope_scaling == Llama3Scaling(32.0, 1.0, 4.0, 8192)
  assert llama.tie_embeddings and not llama.qkv_bias and not llama.qk_norm
  assert llama.max_positions == 131072
  qwen2 = _read(QWEN2)
  assert qwen2.qkv_bias and not qwen2.qk_norm and qwen2.head_dim == 128
  assert qwen2.windows == () and qwen2.rope_theta == 1e6
  assert qwen2.norm_eps == 1e-6 and not qwen2.tie_embeddings
  qwen3 = _read(QWEN3)
  assert qwen3.qk_norm and not qwen3.qkv_bias and qwen3.head_dim == 128
  moe = _read(MOE)
  assert (moe.experts, moe.experts_per_token, moe.mlp_width) == (128, 8, 768)
  assert moe.normalise_experts and moe.qk_norm
  assert {x.dtype for x in (llama, qwen2, qwen3, moe)} == {"bfloat16"}


def test_the_newer_layout_of_rotary_embeddings_means_the_same():
  older = _read(LLAMA)
  rope = LLAMA["rope_scaling"] | {"rope_theta": LLAMA["rope_theta"]}
  newer = {k: v for k, v in LLAMA.items() if not k.startswith("rope_")}
  assert _read(newer, rope_parameters=rope) == older


def test_defaults_are_those_of_transformers():
  assert _read(LLAMA, num_key_value_heads=None).kv_heads == 32
  assert _read(LLAMA, head_dim=None).head_dim == 2048 // 32
  assert _read(QWEN3, head_dim=None).head_dim == 128
  assert _read(MOE, head_dim=None).head_dim == 2048 // 32
  assert not _read(MOE, norm_topk_prob=None).normalise_experts
  assert not _read(LLAMA, tie_word_embeddings=None).tie_embeddings
  assert _read(LLAMA, torch_dtype=None).param_dtype == "float32"
  assert _read(LLAMA, torch_dtype="float16").param_dtype == "float32"
  yarn = _read(QWEN3, rope_scaling={"type": "yarn", "factor": 4})
  assert yarn.rope_scaling == YarnScaling(4.0, 40960)


def test_windows_are_of_the_layers_that_have_them():
  on = {"use_sliding_window": True, "sliding_window": 8}
  assert _read(QWEN2, **on, max_window_layers=26).windows == (0,) * 26 + (8, 8)
  assert _read(QWEN2, **on).windows == ()
  types = ["sliding_attention"] + ["full_attention"] * 27
  assert _read(QWEN2, **on, layer_types=types).windows == (8,) + (0,) * 27
  assert _read(MOE, **on).windows == (8,) * 48


@pytest.mark.parametrize(
  ("data", "change", "message"),
  [
    (LLAMA, {"model_type": "gemma2"}, "'gemma2' are not supported, only llama"),
    (LLAMA, {"architectures": ["LlamaModel"]}, "only LlamaForCausalLM"),
    (LLAMA, {"mlp_bias": True}, "mlp_bias = True is not supported"),
    (LLAMA, {"attention_bias": True}, "attention_bias = True"),
    (QWEN3, {"attention_bias": True}, "attention_bias = True"),
    (LLAMA, {"attention_dropout": 0.1}, "attention_dropout"),
    (LLAMA, {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
    (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    (LLAMA, {"pretraining_tp": 2}, "pretraining_tp"),
    (LLAMA, {"quantization_config": {"bits": 4}}, "quantization_config"),
    (LLAMA, {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    (LLAMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    (LLAMA, {"sliding_window": 4096}, "sliding_window = 4096"),
    (LLAMA, {"embedding_multiplier": 12}, "embedding_multiplier"),
    (LLAMA, {"num_experts": 8}, "num_experts = 8"),
    (MOE, {"mlp_only_layers": [0]}, "mlp_only_layers"),
    (MOE, {"decoder_sparse_step": 2}, "decoder_sparse_step"),
    (MOE, {"num_experts_per_tok": 129}, "experts_per_token"),
    (QWEN2, {"use_sliding_window": True, "sliding_window": None}, "lacks"),
    (QWEN2, {"layer_types": ["chunked_attention"] * 28}, "chunked_attention"),
    (QWEN2, {"layer_types": ["full_attention"]}, "28 layers"),
    (QWEN2, {"layer_types": ["sliding_attention"] * 28}, "do not go with"),
    (LLAMA, {"vocab_size": None}, "config.json lacks 'vocab_size'"),
    (LLAMA, {"hidden_size": "2048"}, "'2048', which is not of type int"),
    (LLAMA, {"num_key_value_heads": 5}, "multiple of model.kv_heads"),
    (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear'"),
    (LLAMA, {"rope_scaling": {"rope_type": "longrope"}}, "'longrope'"),
    (LLAMA, {"rope_scaling": {"rope_type": "llama3"}}, "lacks 'factor'"),
    (LLAMA, {"rope_scaling": {"factor": 2.0}}, "factor = 2.0 is not supported"),
    (
      QWEN3,
      {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
      "full_attention",
    ),
    (QWEN3, {"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial"),
    (QWEN3, {"rope_parameters": {"rope_theta": "big"}}, "not of type float"),
  ],
)
def test_what_is_not_supported_is_refused(data, change, message):
  with pytest.raises(UserError, match=message) as caught:
    _read(data, **change)
  assert str(caught.value).startswith("config.json")


def test_what_switches_nothing_on_is_accepted():
  assert _read(LLAMA, quantization_config=None, mlp_bias=False) == _read(LLAMA)
  rope = LLAMA["rope_scaling"] | {"partial_rotary_factor": 1.0}
  assert _read(LLAMA, rope_scaling=rope) == _read(LLAMA)


@pytest.mark.parametrize("data", [LLAMA, QWEN2, QWEN3, MOE])
def test_a_configuration_is_written_as_it_was_read(data):
  config = _read(data)
  written = write_family_config(config, token_ids={})
  assert read_family_config(json.loads(json.dumps(written)), "x") == config
  # The layout that older releases read too; nothing that was there is lost.
  ignored = {"transformers_version", "eos_token_id", "bos_token_id"}
  if config.experts:
    ignored.add("intermediate_size")  # of layers without experts: none
  for key, value in data.items():
    if key in written and key not in ignored:
      assert written[key] == value, key


@pytest.mark.parametrize("name", MODELS)
def test_every_option_is_written_and_read(name):
  config = read_config(REFERENCES / name)
  assert _read(write_family_config(config, token_ids={})) == config


def test_how_it_is_run_is_no_part_of_the_file():
  config = _read(QWEN2)
  other = dataclasses.replace(
    config, scan_layers=True, remat="full", attention="xla", dtype="float32"
  )
  assert write_family_config(other, token_ids={}) == write_family_config(
    config, token_ids={}
  )


@pytest.mark.parametrize(
  ("data", "change"),
  [
    (LLAMA, {"windows": (8,) * 16}),
    (QWEN2, {"qk_norm": True}),
    (QWEN2, {"windows": (8, 16) + (0,) * 26}),
    (MOE, {"qk_norm": False}),
    (MOE, {"windows": (8,) + (0,) * 47}),
  ],
)
def test_what_no_family_computes_is_not_written(data, change):
  config = dataclasses.replace(_read(data), **change)
  with pytest.raises(ValueError, match="No published family"):
    write_family_config(config, token_ids={})
