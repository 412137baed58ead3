#!/usr/bin/env python3
"""Makes the golden files of tests/golden/families: tiny random models of transformers 5, one for each way in which families of Llama's
kind differ (biases, windows, layers without RoPE, fused names, types of RoPE), with a config.json of either dialect.

Each folder gets config.json and golden.safetensors: weights in bf16 under Hugging Face names (the model computes with them in f32),
tokens and targets, the loss, the log-probability of every target, and the gradient of every weight. Sequences of 16 tokens are longer
than the windows and, where it matters, than the original context. Run once; needs torch, safetensors and transformers 5, which
nothing else here does:

    python3 make_families.py            # all
    python3 make_families.py phi3-long  # these
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")
SEQUENCES, SEQLEN = 2, 16

SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=29,
             initializer_range=0.2, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=None)
FACTORS = dict(short_factor=[1.0, 1.25, 1.5], long_factor=[1.5, 4.0, 9.0])

# Keys as transformers 4 wrote them. With "v5" the file is what transformers 5 makes of them.
MODELS = {
    "mistral-window": dict(model_type="mistral", head_dim=8, sliding_window=5, rope_theta=10000.0, torch_dtype="bfloat16",
                           rope_scaling=dict(type="linear", factor=4.0)),
    "mistral-tied": dict(v5=True, model_type="mistral", sliding_window=None, rope_theta=1e6, tie_word_embeddings=True),
    "qwen2-window": dict(model_type="qwen2", num_hidden_layers=3, max_position_embeddings=8, use_sliding_window=True, sliding_window=6,
                         max_window_layers=1, use_mrope=False, rope_theta=1e6, rope_scaling=dict(rope_type="dynamic", factor=2.0)),
    "qwen2-tied": dict(v5=True, model_type="qwen2", max_position_embeddings=32, use_sliding_window=False, sliding_window=4,
                       tie_word_embeddings=True, rope_theta=500.0,
                       rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)),
    "qwen3-window": dict(v5=True, model_type="qwen3", head_dim=8, num_hidden_layers=3, use_sliding_window=True, sliding_window=5,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention"], attention_bias=True,
                         max_position_embeddings=64, rope_theta=1000.0,
                         rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8, attention_factor=0.8,
                                           beta_fast=4.0, beta_slow=0.5, truncate=False)),
    "llama-biases": dict(model_type="llama", attention_bias=True, mlp_bias=True, rope_theta=100.0, max_position_embeddings=64,
                         rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7,
                                           mscale_all_dim=1.2)),
    "llama-long": dict(v5=True, model_type="llama", head_dim=6, tie_word_embeddings=True, rope_theta=10000.0,
                       rope_scaling=dict(rope_type="longrope", factor=4.0, original_max_position_embeddings=8, **FACTORS)),
    "smollm3": dict(model_type="smollm3", num_hidden_layers=4, rope_theta=5000000.0, tie_word_embeddings=True, use_sliding_window=False,
                    sliding_window=None, max_window_layers=28, pretraining_tp=2, no_rope_layer_interval=4,
                    no_rope_layers=[1, 1, 1, 0], rope_scaling=None),
    "smollm3-window": dict(v5=True, model_type="smollm3", num_hidden_layers=3, use_sliding_window=True, sliding_window=4,
                           no_rope_layers=[0, 1, 0], attention_bias=True, mlp_bias=True),
    "phi3-window": dict(model_type="phi3", sliding_window=5, rope_theta=10000.0, rope_scaling=None, original_max_position_embeddings=4096,
                        resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0,
                        auto_map=dict(AutoConfig="configuration_phi3.Phi3Config", AutoModelForCausalLM="modeling_phi3.Phi3ForCausalLM")),
    "phi3-long": dict(model_type="phi3", hidden_size=32, partial_rotary_factor=0.75, max_position_embeddings=64,
                      original_max_position_embeddings=8, tie_word_embeddings=True, sliding_window=None, rope_theta=10000.0,
                      rope_scaling=dict(type="longrope", **FACTORS)),
    "phi3-short": dict(v5=True, model_type="phi3", hidden_size=24, max_position_embeddings=128, original_max_position_embeddings=32,
                       rope_theta=10000.0, rope_scaling=dict(type="longrope", **FACTORS)),
    "olmo2": dict(model_type="olmo2", rope_theta=500000.0, attention_bias=False, use_cache=True),
    "olmo2-tied": dict(v5=True, model_type="olmo2", num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True, rope_theta=100.0),
    "gemma2": dict(model_type="gemma2", num_hidden_layers=3, head_dim=6, hidden_act="gelu_pytorch_tanh",
                   hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=3, sliding_window=5, attn_logit_softcapping=2.5,
                   final_logit_softcapping=3.5, cache_implementation="hybrid", tie_word_embeddings=True, rope_theta=100.0),
    "gemma2-untied": dict(v5=True, model_type="gemma2", head_dim=4, query_pre_attn_scalar=4, sliding_window=4,
                          layer_types=["full_attention", "sliding_attention"], attention_bias=True, rope_theta=10000.0),
    "gemma3": dict(model_type="gemma3_text", num_hidden_layers=4, head_dim=6, hidden_activation="gelu_pytorch_tanh", sliding_window=5,
                   sliding_window_pattern=3, query_pre_attn_scalar=5, attn_logit_softcapping=None, final_logit_softcapping=None,
                   rope_theta=1000.0, rope_local_base_freq=20.0, rope_scaling=dict(rope_type="linear", factor=8.0),
                   use_bidirectional_attention=False, tie_word_embeddings=True),
    "gemma3-untied": dict(v5=True, model_type="gemma3_text", head_dim=4, sliding_window=6, query_pre_attn_scalar=4,
                          layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=2.0),
}


def weights_of(model, spread):
    """Seeded values for every tensor, exact in bf16; norms lie around what they begin with."""
    for name, p in model.named_parameters():
        value = torch.randn_like(p) * spread + (p.data if "norm" in name else 0)
        p.data = value.bfloat16().float()


def make(name, keys):
    keys = SIZES | keys
    v5 = keys.pop("v5", False)
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(**keys)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    config.architectures = [type(model).__name__]
    weights_of(model, keys["initializer_range"])
    data = torch.randint(0, keys["vocab_size"], (SEQUENCES, SEQLEN + 1))
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    log_p = model(tokens, use_cache=False).logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    loss = -log_p.mean()
    loss.backward()
    out = {"tokens": tokens.int(), "targets": targets.int(), "loss": loss.detach().reshape(1), "log_p": log_p.detach().flatten()}
    for n, p in model.named_parameters():
        out |= {n: p.data.bfloat16(), "grad." + n: p.grad}
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    text = config.to_json_string() if v5 else json.dumps(keys | {"architectures": config.architectures}, indent=2) + "\n"
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(text)
    save_file(out, os.path.join(folder, "golden.safetensors"))
    print(f"{name}: loss {loss.item():.6f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name])
