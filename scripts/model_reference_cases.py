"""What make_model_references.py makes: tiny models, and rotary embeddings."""

TINY = {
  "vocab_size": 64,
  "hidden_size": 16,
  "intermediate_size": 24,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "max_position_embeddings": 256,
  "bos_token_id": None,
  "eos_token_id": None,
}
_YARN = {
  "rope_type": "yarn",
  "rope_theta": 500.0,
  "factor": 4.0,
  "original_max_position_embeddings": 32,
}
_LLAMA3 = {
  "rope_type": "llama3",
  "rope_theta": 500.0,
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 32,
}
# Wider where the size of a head follows from the width.
MODELS = {
  "llama_tied": (
    "LlamaConfig",
    {"hidden_size": 32, "tie_word_embeddings": True},
  ),
  "llama_untied_llama3": (
    "LlamaConfig",
    {"head_dim": 8, "rope_parameters": _LLAMA3, "rms_norm_eps": 1e-5},
  ),
  "qwen2": ("Qwen2Config", {"hidden_size": 32, "tie_word_embeddings": True}),
  "qwen2_windows": (
    "Qwen2Config",
    {
      "hidden_size": 32,
      "use_sliding_window": True,
      "sliding_window": 8,
      "max_window_layers": 1,
    },
  ),
  "qwen3": ("Qwen3Config", {"head_dim": 8, "tie_word_embeddings": True}),
  "qwen3_yarn": ("Qwen3Config", {"head_dim": 8, "rope_parameters": _YARN}),
  "qwen3_moe": (
    "Qwen3MoeConfig",
    {
      "head_dim": 8,
      "moe_intermediate_size": 12,
      "num_experts": 4,
      "num_experts_per_tok": 2,
      "norm_topk_prob": True,
    },
  ),
  "qwen3_moe_unnormalised_windows": (
    "Qwen3MoeConfig",
    {
      "head_dim": 8,
      "moe_intermediate_size": 12,
      "num_experts": 4,
      "num_experts_per_tok": 3,
      "norm_topk_prob": False,
      "use_sliding_window": True,
      "sliding_window": 8,
    },
  ),
}

# Rotary embeddings: of the tiny models, of published ones, and odd corners.
ROPES = [
  {"rope_theta": 10_000.0, "head_dim": 64},
  {"rope_theta": 1_000_000.0, "head_dim": 128},
  {
    "rope_theta": 500_000.0,
    "head_dim": 128,
    "rope_scaling": {
      "rope_type": "llama3",
      "factor": 8.0,
      "low_freq_factor": 1.0,
      "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192,
    },
  },
  {
    "rope_theta": 500_000.0,
    "head_dim": 64,
    "rope_scaling": {
      "rope_type": "llama3",
      "factor": 32.0,
      "low_freq_factor": 1.0,
      "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192,
    },
  },
  {
    "rope_theta": 1_000_000.0,
    "head_dim": 128,
    "rope_scaling": {
      "type": "yarn",
      "factor": 4.0,
      "original_max_position_embeddings": 32768,
    },
  },
  {
    "rope_theta": 1_000_000.0,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
  },
  {
    "rope_theta": 150_000.0,
    "head_dim": 64,
    "rope_scaling": {
      "rope_type": "yarn",
      "factor": 32.0,
      "beta_fast": 32.0,
      "beta_slow": 1.0,
      "truncate": False,
      "original_max_position_embeddings": 4096,
    },
  },
  {
    "rope_theta": 10_000.0,
    "head_dim": 64,
    "rope_scaling": {
      "rope_type": "yarn",
      "factor": 40.0,
      "beta_fast": 16.0,
      "beta_slow": 2.0,
      "mscale": 1.0,
      "mscale_all_dim": 0.7,
      "original_max_position_embeddings": 4096,
    },
  },
  {
    "rope_theta": 10_000.0,
    "head_dim": 32,
    "rope_scaling": {
      "rope_type": "yarn",
      "factor": 8.0,
      "attention_factor": 1.25,
      "original_max_position_embeddings": 64,
    },
  },
  {"head_dim": 8, "rope_parameters": _LLAMA3},
  {"head_dim": 8, "rope_parameters": _YARN},
]
