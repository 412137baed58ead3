#!/usr/bin/env python3
"""Makes the golden files of this folder: tiny models written in plain PyTorch, as Hugging Face defines them, and tiny models of
transformers itself.

Each folder gets a config.json and golden.safetensors: weights under Hugging Face names, tokens and targets, the hidden state
behind every block, the loss, and the gradient of every weight, in f32 ("loss", "grad.<name>") and with everything in bf16
("loss_bf16", "grad_bf16.<name>"; there all matrices are divided by 8, which is about the usual 0.02: with larger weights
PyTorch's own bf16 gradients are 2 % away from its f32 ones, and nothing could be told from comparing). For single weights
PyTorch's bf16 is still up to 1.4 % off, so the f32 gradients at those weights are there too ("grad_exact.<name>").
curve.safetensors holds 200 AdamW steps of the first model. Run once; needs torch, safetensors and transformers (4; gemma3: 5), which nothing
else here does:

    python3 make_goldens.py             # all
    python3 make_goldens.py qwen3       # these, of transformers' own models
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
SEQUENCES, SEQLEN = 2, 16

MODELS = {
    "llama": dict(model_type="llama", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=8, vocab_size=61, rms_norm_eps=1e-5, tie_word_embeddings=False,
                  rope_theta=10000.0, initializer_range=0.2,
                  rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                    original_max_position_embeddings=8)),
    "llama-tied": dict(model_type="llama", hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=4, vocab_size=53, rms_norm_eps=1e-6, tie_word_embeddings=True,
                       rope_parameters=dict(rope_type="default", rope_theta=500.0), rope_interleaved=True,
                       initializer_range=0.2),
    "gpt2": dict(model_type="gpt2", n_embd=24, n_layer=2, n_head=3, n_positions=32, vocab_size=53, layer_norm_epsilon=1e-5,
                 activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.2,
                 tie_word_embeddings=True),
}

# Run by transformers: config.json is what it reads, and every tensor of the model gets seeded values.
ORIGINAL = {
    "qwen3": dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=1,
                  eos_token_id=2, head_dim=16, hidden_act="silu", hidden_size=32, initializer_range=0.2, intermediate_size=48,
                  max_position_embeddings=40960, max_window_layers=2, num_attention_heads=4, num_hidden_layers=2,
                  num_key_value_heads=2, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000, sliding_window=None,
                  tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.51.0", use_cache=True,
                  use_sliding_window=False, vocab_size=61),
    "qwen3-tied": dict(model_type="qwen3", head_dim=6, hidden_size=24, initializer_range=0.2, intermediate_size=40,
                       num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=4, rms_norm_eps=1e-6,
                       rope_theta=10000.0, tie_word_embeddings=True, use_sliding_window=False, vocab_size=53),
    "gemma3": dict(model_type="gemma3_text", final_logit_softcapping=10.0, head_dim=6, hidden_size=24,
                   initializer_range=0.2, intermediate_size=40, num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2,
                   pad_token_id=None, query_pre_attn_scalar=6, rms_norm_eps=1e-6, rope_local_base_freq=100.0, rope_theta=10000.0,
                   sliding_window=5, sliding_window_pattern=2, tie_word_embeddings=True, vocab_size=53),
}


def init_llama(c):
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    e = c.get("head_dim", d // c["num_attention_heads"])
    a, k = c["num_attention_heads"] * e, c["num_key_value_heads"] * e
    shapes = {"model.embed_tokens.weight": (v, d)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (d,), p + "self_attn.q_proj.weight": (a, d),
                   p + "self_attn.k_proj.weight": (k, d), p + "self_attn.v_proj.weight": (k, d),
                   p + "self_attn.o_proj.weight": (d, a), p + "post_attention_layernorm.weight": (d,),
                   p + "mlp.gate_proj.weight": (f, d), p + "mlp.up_proj.weight": (f, d), p + "mlp.down_proj.weight": (d, f)}
    shapes["model.norm.weight"] = (d,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (v, d)
    return shapes


def init_gpt2(c):
    d = c["n_embd"]
    shapes = {"transformer.wte.weight": (c["vocab_size"], d), "transformer.wpe.weight": (c["n_positions"], d)}
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        shapes |= {p + "ln_1.weight": (d,), p + "ln_1.bias": (d,), p + "attn.c_attn.weight": (d, 3 * d),
                   p + "attn.c_attn.bias": (3 * d,), p + "attn.c_proj.weight": (d, d), p + "attn.c_proj.bias": (d,),
                   p + "ln_2.weight": (d,), p + "ln_2.bias": (d,), p + "mlp.c_fc.weight": (d, 4 * d),
                   p + "mlp.c_fc.bias": (4 * d,), p + "mlp.c_proj.weight": (4 * d, d), p + "mlp.c_proj.bias": (d,)}
    return shapes | {"transformer.ln_f.weight": (d,), "transformer.ln_f.bias": (d,)}


def init(c):
    return init_shapes(c, (init_llama if c["model_type"] == "llama" else init_gpt2)(c))


def init_shapes(c, shapes):
    out = {}
    for name, shape in shapes.items():
        out[name] = torch.randn(shape) * c["initializer_range"]
        if len(shape) == 1 and name.endswith("weight") and not c["model_type"].startswith("gemma"):
            out[name] += 1
        out[name] = out[name].bfloat16().float()  # so that both precisions start from the same numbers
    return out


def rope_tables(c, e, positions):
    rope = c.get("rope_parameters") or {}
    theta = rope.get("rope_theta", c.get("rope_theta"))
    freq = 1.0 / theta ** (torch.arange(0, e, 2, dtype=torch.float64) / e)
    s = c.get("rope_scaling")
    if s:
        wave = 2 * math.pi / freq
        low = s["original_max_position_embeddings"] / s["low_freq_factor"]
        high = s["original_max_position_embeddings"] / s["high_freq_factor"]
        smooth = (s["original_max_position_embeddings"] / wave - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        blend = (1 - smooth) * freq / s["factor"] + smooth * freq
        freq = torch.where(wave > low, freq / s["factor"], torch.where(wave < high, freq, blend))
    angle = positions.double()[:, None] * freq[None]
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin, interleaved):
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    y = torch.stack((a * cos - b * sin, b * cos + a * sin), -1)
    return y.flatten(-2) if interleaved else torch.cat((y[..., 0], y[..., 1]), -1)


def rms(x, w, eps):
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


def llama(c, w, tokens, hidden):
    e = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    h, g = c["num_attention_heads"], c["num_key_value_heads"]
    b, t = tokens.shape
    cos, sin = rope_tables(c, e, torch.arange(t))
    style = c.get("rope_interleaved", False)
    x = F.embedding(tokens, w["model.embed_tokens.weight"])
    hidden.append(x)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
        q = F.linear(n, w[p + "self_attn.q_proj.weight"]).view(b, t, h, e).transpose(1, 2)
        k = F.linear(n, w[p + "self_attn.k_proj.weight"]).view(b, t, g, e).transpose(1, 2)
        v = F.linear(n, w[p + "self_attn.v_proj.weight"]).view(b, t, g, e).transpose(1, 2)
        o = attention(rotate(q, cos, sin, style), rotate(k, cos, sin, style), v)
        x = x + F.linear(o, w[p + "self_attn.o_proj.weight"])
        n = rms(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        m = F.silu(F.linear(n, w[p + "mlp.gate_proj.weight"])) * F.linear(n, w[p + "mlp.up_proj.weight"])
        x = x + F.linear(m, w[p + "mlp.down_proj.weight"])
        hidden.append(x)
    x = rms(x, w["model.norm.weight"], c["rms_norm_eps"])
    return F.linear(x, w.get("lm_head.weight", w["model.embed_tokens.weight"]))


def gpt2(c, w, tokens, hidden):
    d, h = c["n_embd"], c["n_head"]
    b, t = tokens.shape

    def norm(x, name):
        return F.layer_norm(x, (d,), w[name + ".weight"], w[name + ".bias"], c["layer_norm_epsilon"])

    def conv(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = F.embedding(tokens, w["transformer.wte.weight"]) + w["transformer.wpe.weight"][:t]
    hidden.append(x)
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        q, k, v = (y.view(b, t, h, d // h).transpose(1, 2) for y in conv(norm(x, p + "ln_1"), p + "attn.c_attn").chunk(3, -1))
        x = x + conv(attention(q, k, v), p + "attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, p + "ln_2"), p + "mlp.c_fc"), approximate="tanh"), p + "mlp.c_proj")
        hidden.append(x)
    return F.linear(norm(x, "transformer.ln_f"), w["transformer.wte.weight"])


def forward(c, w, tokens, targets, hidden):
    logits = (llama if c["model_type"] == "llama" else gpt2)(c, w, tokens, hidden)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten().long())


def original_forward(c):
    """Shapes of a model of transformers, and its forward with given weights."""
    import transformers

    config = transformers.AutoConfig.for_model(**c)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float()

    def run(c, w, tokens, targets, hidden):
        kept = [layer.register_forward_hook(lambda m, i, o: hidden.append(o if torch.is_tensor(o) else o[0]))
                for layer in (model.model.embed_tokens, *model.model.layers)]
        buffers = {k: v for k, v in model.named_buffers()}  # the rotation's frequencies stay in f32
        logits = torch.func.functional_call(model, w | buffers, (tokens,), tie_weights=True).logits
        for hook in kept:
            hook.remove()
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten().long())

    return {k: tuple(v.shape) for k, v in model.named_parameters()}, run


def golden(name, c, weights, forward):
    data = torch.randint(0, c["vocab_size"], (SEQUENCES, SEQLEN + 1), dtype=torch.int32)
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    out = dict(weights) | {"tokens": tokens, "targets": targets}
    for dtype, tail, scale in ((torch.float32, "", 1), (torch.bfloat16, "_bf16", 0.125), (torch.float32, "_exact", 0.125)):
        w = {k: (v * scale if v.dim() > 1 else v).detach().to(dtype, copy=True).requires_grad_() for k, v in weights.items()}
        hidden = []
        loss = forward(c, w, tokens, targets, hidden)
        loss.backward()
        out["loss" + tail] = loss.detach().reshape(1)
        out |= {f"grad{tail}.{k}": v.grad for k, v in w.items()}
        if not tail:
            out |= {f"hidden.{i}": x.detach().flatten(0, 1).contiguous() for i, x in enumerate(hidden)}
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    with open(os.path.join(HERE, name, "config.json"), "w") as f:
        json.dump(c, f, indent=2)
        f.write("\n")
    save_file(out, os.path.join(HERE, name, "golden.safetensors"))
    return weights


def curve(c, weights, steps=200):
    """Sequences that count up by a step of their own: learnable, and never twice the same."""
    start = torch.randint(0, c["vocab_size"], (steps, SEQUENCES, 1))
    stride = torch.randint(1, 4, (steps, SEQUENCES, 1))
    data = ((start + stride * torch.arange(SEQLEN + 1)) % c["vocab_size"]).int()
    w = {k: v.clone().requires_grad_() for k, v in weights.items()}
    opt = torch.optim.AdamW([dict(params=[p for p in w.values() if p.dim() > 1], weight_decay=0.1),
                             dict(params=[p for p in w.values() if p.dim() == 1], weight_decay=0.0)],
                            lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(steps):
        loss = forward(c, w, data[step, :, :-1].long(), data[step, :, 1:], [])
        opt.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), 1.0).item())
        opt.step()
        losses.append(loss.item())
    save_file({"data": data.contiguous(), "loss": torch.tensor(losses), "norm": torch.tensor(norms)}
              | {"final." + k: v.detach() for k, v in w.items() if "norm" in k}, os.path.join(HERE, "curve.safetensors"))
    print(f"curve: {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        torch.manual_seed(1)
        first = {name: golden(name, c, init(c), forward) for name, c in MODELS.items()}
        curve(MODELS["llama"], first["llama"])
    for name in sys.argv[1:] or ORIGINAL:
        torch.manual_seed(1)
        shapes, run = original_forward(ORIGINAL[name])
        golden(name, ORIGINAL[name], init_shapes(ORIGINAL[name], shapes), run)
