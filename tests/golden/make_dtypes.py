#!/usr/bin/env python3
"""Makes dtypes/: every value of the small floating-point types as PyTorch reads it, and 8-bit weights with scales of every form
beside what they stand for. The files are written by the safetensors library. Run once; needs torch and safetensors.
"""
import json
import os

import torch
from safetensors.torch import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dtypes")
BLOCK = (4, 8)


def main():
    g = torch.Generator().manual_seed(1)
    tensors = {}
    every_byte = torch.arange(256, dtype=torch.uint8)
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2), ("e8m0", torch.float8_e8m0fnu)):
        tensors[name] = every_byte.clone().view(dtype)
        tensors[name + ".f32"] = every_byte.view(dtype).float()
        tensors[name + "_scale"] = torch.tensor(1.0)

    def weight(name, scale, spread, suffix):
        w = torch.randn(9, 19, generator=g).mul(20).to(torch.float8_e4m3fn)
        tensors[name], tensors[name + suffix] = w, scale
        tensors[name + ".f32"] = w.float() * spread.float()

    rows, columns = (9 + BLOCK[0] - 1) // BLOCK[0], (19 + BLOCK[1] - 1) // BLOCK[1]
    blocks = torch.rand(rows, columns, generator=g) + 0.01
    weight("blocks.weight", blocks, blocks.repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)[:9, :19], "_scale_inv")
    per_row = (torch.rand(9, 1, generator=g) + 0.01).to(torch.bfloat16)
    weight("rows.weight", per_row, per_row, "_scale")
    per_row = torch.rand(9, generator=g).to(torch.float16)
    weight("flat_rows.weight", per_row, per_row[:, None], "_scale")
    whole = torch.tensor(0.037)
    weight("whole.weight", whole, whole, "_scale")
    weight("one.weight", whole[None].clone(), whole, "_scale_inv")

    os.makedirs(OUT, exist_ok=True)
    save_file(tensors, os.path.join(OUT, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(OUT, "config.json"), "w") as f:
        json.dump({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                           "weight_block_size": list(BLOCK)}}, f, indent=1)


main()
