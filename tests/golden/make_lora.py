#!/usr/bin/env python3
"""Makes the golden files of adapters: tiny models of transformers, each with an adapter of PEFT that is trained for 50 AdamW steps.

Each folder gets the base model (config.json, model.safetensors), the adapter before the first step as PEFT saves it (adapter/), and
golden.safetensors: the data [50, 2, 17], the losses, the gradients' norms, the adapter after the last step ("final.<name>") and what
the model with it loses on the last step's data ("last"). In f32. Needs torch, transformers, peft and safetensors, which nothing else here
does:

    python3 make_lora.py
"""
import json
import os
import shutil

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, SEQUENCES, SEQLEN = 50, 2, 16

MODELS = {
    # Every linear layer, fused and alone; the factor is no power of two.
    "lora-llama": (dict(model_type="llama", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                        num_key_value_heads=2, head_dim=8, vocab_size=61, rms_norm_eps=1e-5, tie_word_embeddings=False,
                        initializer_range=0.2),
                   dict(r=4, lora_alpha=6, target_modules="all-linear")),
    # Some modules of a fused matrix, the outer ones; a rank-stabilized factor; tied embeddings.
    "lora-qwen3": (dict(model_type="qwen3", head_dim=8, hidden_size=24, initializer_range=0.2, intermediate_size=40,
                        num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, tie_word_embeddings=True,
                        use_sliding_window=False, vocab_size=53),
                   dict(r=3, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
    # Matrices that files hold transposed, with biases; q, k and v are one module.
    "lora-gpt2": (dict(model_type="gpt2", n_embd=24, n_layer=2, n_head=3, n_positions=32, vocab_size=53, resid_pdrop=0.0,
                       embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.2),
                  dict(r=2, lora_alpha=4, target_modules=["c_attn", "mlp.c_proj", "c_fc"], fan_in_fan_out=True)),
}


def loss_of(model, data):
    logits = model(input_ids=data[:, :-1].long()).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), data[:, 1:].flatten().long())


def make(name, base, adapter):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(1)
    config = AutoConfig.for_model(**base)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **adapter)).eval()
    peft.save_pretrained(os.path.join(folder, "adapter"))
    os.remove(os.path.join(folder, "adapter", "README.md"))
    path = os.path.join(folder, "adapter", "adapter_config.json")
    with open(path) as f:
        written = json.load(f)
    written["target_modules"].sort()  # a set, in any order
    with open(path, "w") as f:
        json.dump(written, f, indent=2, sort_keys=True)
        f.write("\n")
    start = torch.randint(0, base["vocab_size"], (STEPS, SEQUENCES, 1))
    stride = torch.randint(1, 4, (STEPS, SEQUENCES, 1))
    data = ((start + stride * torch.arange(SEQLEN + 1)) % base["vocab_size"]).int()
    trained = [p for p in peft.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        loss = loss_of(peft, data[step])
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in trained]).norm().item())
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        last = loss_of(peft, data[-1]).item()
    out = {"data": data.contiguous(), "loss": torch.tensor(losses), "norm": torch.tensor(norms), "last": torch.tensor([last])}
    out |= {"final." + k: v.detach().contiguous() for k, v in get_peft_model_state_dict(peft).items()}
    save_file(out, os.path.join(folder, "golden.safetensors"))
    print(f"{name}: {losses[0]:.4f} -> {losses[-1]:.4f}, then {last:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, (base, adapter) in MODELS.items():
        make(name, base, adapter)
