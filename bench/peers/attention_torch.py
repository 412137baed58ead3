#!/usr/bin/env python3
"""What is measured: causal scaled_dot_product_attention of PyTorch, forward and backward, in each implementation that PyTorch has.

Answers the attention row of the README: 16 heads, 16,384 tokens, head dimension 64, bf16. The figure there that Sluice is compared
with (5.36 ms on an H100) is published; this script measures PyTorch on the GPU at hand. The arithmetic is 6 * tokens^2 * heads *
head_dim: causal attention counts half the square, and the backward twice the forward.

Versions: PyTorch 2.5 or newer with CUDA. An implementation that the machine does not support is reported as null.

Commands:
    python3 bench/peers/attention_torch.py
    python3 bench/peers/attention_torch.py --tokens 8192 --heads 32 --kv-heads 8 --head-dim 128
    build/sluice bench attention --device cuda                               Sluice's figures

Prints one JSON object: milliseconds and TFLOP/s by implementation, medians of --repeats.
"""
import argparse
import json
import statistics

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def milliseconds(work, repeats):
    times = []
    for _ in range(3):
        work()
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()

    torch.manual_seed(1)

    def operand(heads):
        return torch.randn(args.batch, heads, args.tokens, args.head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    q, k, v = operand(args.heads), operand(args.kv_heads), operand(args.kv_heads)
    gradient = torch.randn_like(q)
    forward_flops = 2 * args.batch * args.heads * args.tokens**2 * args.head_dim
    results = {}
    for backend in SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION:

        def forward():
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=args.heads != args.kv_heads)

        def both():
            torch.autograd.grad(forward(), (q, k, v), gradient)

        try:
            with sdpa_kernel(backend):
                one, two = milliseconds(forward, args.repeats), milliseconds(both, args.repeats)
        except RuntimeError as reason:
            results[backend.name.lower()] = None
            print(f"{backend.name.lower()}: {str(reason).splitlines()[0]}", flush=True)
            continue
        results[backend.name.lower()] = {
            "forward_ms": round(one, 3), "forward_backward_ms": round(two, 3),
            "forward_tflops": round(forward_flops / one / 1e9, 1), "forward_backward_tflops": round(3 * forward_flops / two / 1e9, 1),
        }
    print(json.dumps({
        "system": f"torch {torch.__version__}", "gpu": torch.cuda.get_device_name(), "batch": args.batch, "heads": args.heads,
        "kv_heads": args.kv_heads, "tokens": args.tokens, "head_dim": args.head_dim, "results": results,
    }))


if __name__ == "__main__":
    main()
