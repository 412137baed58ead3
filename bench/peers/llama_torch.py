#!/usr/bin/env python3
"""What is measured: one optimizer step of a Llama-style model in PyTorch, with everything resident on the device.

The rows of docs/lab/performance.md that name PyTorch for llama3-8b, llama3-1.5b and `small` (eager and compiled, GPU and CPU) have
this setting: parameters, gradients and moments in one dtype, causal scaled_dot_product_attention (cuDNN's on a GPU), fused AdamW,
and each block compiled on its own unless --eager. A forward and backward pass and an optimizer update are timed apart, and a step is
`--rounds` of the first and one of the second. MFU uses the formula of `sluice plan` (docs/guide/benchmarks.md), where causal
attention counts half the square.

Versions: PyTorch 2.5 or newer (grouped K/V heads and cuDNN attention); the figures are of 2.11 on an H200 and of 2.11 and 2.15 on CPUs.

Commands:
    bench/h200.sh -p python3 bench/peers/llama_torch.py 8b-110 8b-1k 1b small       beside Sluice on one GPU, in one run
    bench/step.sh python3 bench/peers/llama_torch.py 2 3 f32 bf16                   beside Sluice on two cores, alternating
    python3 bench/peers/llama_torch.py --model llama3-8b --seqlen 8192 --rounds 8 --iters 3
    python3 bench/peers/llama_torch.py --model small --seqlen 256 --batch 4 --rounds 1 --iters 20 --eager

Prints one JSON object.
"""
import argparse
import contextlib
import dataclasses
import json
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    theta: float = 10000.0


SHAPES = {  # src/model/presets.c
    "llama3-8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, 500000.0),
    "llama3-1.5b": Shape(16, 2048, 32, 8, 64, 8192, 128256, 500000.0),
    "small": Shape(12, 768, 12, 12, 64, 3072, 10000),
    "medium": Shape(24, 1024, 16, 16, 64, 4096, 10000),
    "large": Shape(36, 1280, 20, 20, 64, 5120, 10000),
    "xl": Shape(48, 1600, 25, 25, 64, 6400, 10000),
    "2.7b": Shape(32, 2560, 32, 32, 80, 10240, 10000),
}


class Layer(nn.Module):
    """Grouped-query attention and SwiGLU, with q, k, v in one matrix and gate, up in another, as Sluice has them."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.attention_norm = nn.RMSNorm(shape.dim, eps=1e-5)
        self.qkv = nn.Linear(shape.dim, query + 2 * key, bias=False)
        self.out = nn.Linear(query, shape.dim, bias=False)
        self.mlp_norm = nn.RMSNorm(shape.dim, eps=1e-5)
        self.gate_up = nn.Linear(shape.dim, 2 * shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.dim, bias=False)

    @staticmethod
    def rotate(heads, table):
        first, second = heads.chunk(2, dim=-1)
        cosine, sine = table
        return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)

    def forward(self, hidden, table):
        s = self.shape
        batch, length, _ = hidden.shape
        qkv = self.qkv(self.attention_norm(hidden)).view(batch, length, s.heads + 2 * s.kv_heads, s.head_dim).transpose(1, 2)
        q, k, v = qkv.split([s.heads, s.kv_heads, s.kv_heads], dim=1)
        mixed = functional.scaled_dot_product_attention(self.rotate(q, table), self.rotate(k, table), v, is_causal=True,
                                                        enable_gqa=s.heads != s.kv_heads)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.down(functional.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, shape, recompute):
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(shape.vocab, shape.dim)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.dim, eps=1e-5)
        self.head = nn.Linear(shape.dim, shape.vocab, bias=False)

    def forward(self, tokens, targets, table):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = checkpoint(layer, hidden, table, use_reentrant=False) if self.recompute else layer(hidden, table)
        logits = self.head(self.norm(hidden))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def step_flops(shape, length, sequences):
    """Arithmetic of a training step: three times the forward's matmuls, attention's forward and backward, the head."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matmuls = 2 * length * shape.dim * (2 * query + 2 * key + 3 * shape.ffn)
    attention = 6 * length * length * query
    return sequences * (shape.layers * (3 * matmuls + attention) + 6 * length * shape.dim * shape.vocab)


def seconds_of(work, times, synchronize):
    synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        work()
    synchronize()
    return (time.perf_counter() - begin) / times


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llama3-8b", choices=[*SHAPES, "llama3-1b"], help="llama3-1b: old name of llama3-1.5b")
    parser.add_argument("--seqlen", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=1, help="sequences of a forward and backward pass")
    parser.add_argument("--rounds", type=int, default=8, help="forward and backward passes of an optimizer step")
    parser.add_argument("--iters", type=int, default=5, help="timed forward and backward passes")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--checkpoint", action="store_true", help="recompute every block in the backward")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f32"])
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; 0: PyTorch's default")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="for MFU; dense bf16 of an H100 or H200")
    return parser.parse_args()


def main():
    args = arguments()
    name = {"llama3-1b": "llama3-1.5b"}.get(args.model, args.model)
    shape = SHAPES[name]
    on_gpu = args.device == "cuda"
    synchronize = torch.cuda.synchronize if on_gpu else (lambda: None)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    torch.set_default_dtype(dtype)

    with torch.device(args.device):
        model = Llama(shape, args.checkpoint)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        exponent = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        angles = torch.outer(torch.arange(args.seqlen, dtype=torch.float32), shape.theta**-exponent)
        table = angles.cos().to(dtype), angles.sin().to(dtype)
        tokens, targets = torch.randint(shape.vocab, (2, args.batch, args.seqlen))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    if not args.eager:
        for layer in model.layers:
            layer.compile()

    loss = None

    def forward_backward():
        nonlocal loss
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if on_gpu else contextlib.nullcontext():
            loss = model(tokens, targets, table)
        loss.backward()

    def update():
        optimizer.step()

    for _ in range(2):  # compiles, and allocates gradients and moments, which later passes add to
        forward_backward()
        update()
        optimizer.zero_grad(set_to_none=False)
    pass_s = seconds_of(forward_backward, args.iters, synchronize)
    update_s = seconds_of(update, 3, synchronize)
    step_s = args.rounds * pass_s + update_s
    sequences = args.rounds * args.batch
    rate = step_flops(shape, args.seqlen, sequences) / step_s
    print(json.dumps({
        "system": f"torch {torch.__version__}", "model": name, "device": args.device, "dtype": args.dtype,
        "compile": not args.eager, "checkpoint": args.checkpoint,
        "seqlen": args.seqlen, "batch": args.batch, "rounds": args.rounds,
        "tokens_per_s": round(sequences * args.seqlen / step_s, 1),
        "forward_backward_ms": round(pass_s * 1e3, 3), "optimizer_ms": round(update_s * 1e3, 3),
        "tflops": round(rate / 1e12, 2), "mfu": round(rate / 1e12 / args.peak_tflops, 4),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
        "loss": round(float(loss), 4),
    }))


if __name__ == "__main__":
    main()
