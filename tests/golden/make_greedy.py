#!/usr/bin/env python3
"""Makes the folders of tests/golden/greedy: tiny random models as transformers saves them, and what it generates with them greedily.

greedy.json holds a prompt, the 200 tokens that follow by the largest logit in f32 (each from a pass over the whole text, without a
cache), and the logits behind the prompt. Weights are stored in bf16, which f32 holds exactly. Run once; needs torch and transformers:

    python3 make_greedy.py              # all
    python3 make_greedy.py qwen3        # these
"""
import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = 200

COMMON = dict(vocab_size=97, hidden_size=32, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3, bos_token_id=1, eos_token_id=2)

MODELS = {
    "llama": dict(COMMON, rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                               high_freq_factor=4.0, original_max_position_embeddings=64)),
    "gpt2": dict(vocab_size=97, n_embd=32, n_layer=3, n_head=4, n_positions=256, attn_pdrop=0.0, embd_pdrop=0.0,
                 resid_pdrop=0.0, initializer_range=0.3, bos_token_id=1, eos_token_id=2),
    "qwen3": dict(COMMON, head_dim=12, tie_word_embeddings=True),
    "qwen2": dict(COMMON),
    "mistral": dict(COMMON, head_dim=8, sliding_window=24),
    "olmo2": dict(COMMON, pad_token_id=0),
    "phi3": dict(COMMON, pad_token_id=0),
    "smollm3": dict(COMMON, pad_token_id=0, no_rope_layers=[1, 1, 0]),
    "gemma2": dict(COMMON, head_dim=8, query_pre_attn_scalar=8, sliding_window=24, pad_token_id=0),
    "gemma3_text": dict(COMMON, head_dim=8, query_pre_attn_scalar=8, sliding_window=24, pad_token_id=0,
                        layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
}


def make(name):
    torch.manual_seed(len(name))
    config = AutoConfig.for_model(name, **MODELS[name])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for p in model.parameters():  # norms and biases, too, are not what they begin with
        if p.dim() == 1:
            p.data += 0.2 * torch.randn_like(p)
    folder = os.path.join(HERE, "greedy", name)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    prompt = torch.randint(3, 97, (1, 19))
    ids = prompt
    with torch.no_grad():
        first = model(prompt, use_cache=False).logits[0, -1]
        for _ in range(TOKENS):
            logits = model(ids, use_cache=False).logits[0, -1]
            best = torch.topk(logits, 2).values
            assert best[0] - best[1] > 1e-4, "a tie that rounding could break"
            ids = torch.cat([ids, logits.argmax().reshape(1, 1)], 1)
    extra = os.path.join(folder, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    with open(os.path.join(folder, "greedy.json"), "w") as f:
        json.dump(dict(prompt=prompt[0].tolist(), tokens=ids[0, prompt.shape[1]:].tolist(),
                       logits=[float(x) for x in first]), f)
        f.write("\n")


for model_name in sys.argv[1:] or MODELS:
    make(model_name)
