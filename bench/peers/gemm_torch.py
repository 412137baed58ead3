#!/usr/bin/env python3
"""Times PyTorch's, ours and the libraries' matrix products in turn, on the linear layers of `small` and `large`.

Usage: gemm_torch.py PATH_OF_GEMM [--threads 1,2] [--dtypes f32,bf16] [--libraries sluice-avx512,openblas,onednn] [--tokens 1024]

Every shape is timed for all libraries within a second or so, several rounds; a library's figure is its median round. The last
lines are geometric means over the shapes, as ratios to PyTorch and as share of the multiply-add peak of the same minutes.
On a busy machine GEMM_CPU_TIME=1 counts the time each process had instead of the time that passed (one thread only).
"""
import argparse
import math
import os
import statistics
import subprocess
import time

import torch

clock = time.process_time if os.environ.get("GEMM_CPU_TIME") else time.perf_counter

LAYERS = {  # in, out of each linear layer
    "small": {"qkv": (768, 2304), "out": (768, 768), "gate_up": (768, 6144), "down": (3072, 768), "head": (768, 10000)},
    "large": {"qkv": (1280, 3840), "out": (1280, 1280), "gate_up": (1280, 10240), "down": (5120, 1280), "head": (1280, 10000)},
}


def shapes(tokens):
    """name, trans_a, trans_b, m, n, k: y = x W^T, dx = dy W, dW = dy^T x."""
    for model, layers in LAYERS.items():
        for layer, (d_in, d_out) in layers.items():
            yield f"{model} {layer} fwd", 0, 1, tokens, d_out, d_in
            yield f"{model} {layer} dx", 0, 0, tokens, d_in, d_out
            yield f"{model} {layer} dw", 1, 0, d_out, d_in, tokens


def time_torch(dtype, ta, tb, m, n, k, seconds):
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    a = torch.randn(*((k, m) if ta else (m, k)), dtype=kind)
    b = torch.randn(*((n, k) if tb else (k, n)), dtype=kind)
    a, b = a.t() if ta else a, b.t() if tb else b
    c = torch.empty(m, n, dtype=kind)
    torch.mm(a, b, out=c)
    times, start = [], clock()
    while len(times) < 3 or clock() - start < seconds:
        before = clock()
        torch.mm(a, b, out=c)
        times.append(clock() - before)
    time.sleep(0.02)  # its worker threads spin a while
    return 2e-9 * m * n * k / statistics.median(times)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gemm")
    parser.add_argument("--threads", default="1,2", help="ascending")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--libraries", default="sluice-avx512,openblas,onednn")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.06)
    parser.add_argument("--only", default="", help="only shapes whose name contains this")
    options = parser.parse_args()
    libraries = options.libraries.split(",")
    cores = sorted(os.sched_getaffinity(0))[-max(map(int, options.threads.split(","))):]
    print(f"torch {torch.__version__}, {options.tokens} tokens; GFLOP/s of torch, then the others' ratio to torch")
    for threads in map(int, options.threads.split(",")):
        os.sched_setaffinity(0, cores[:threads])  # one after the other on the very same cores: others' load hits all alike
        torch.set_num_threads(threads)
        bench = subprocess.Popen([options.gemm], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env=dict(os.environ, OMP_NUM_THREADS=str(threads)))

        def ask(library, dtype, ta, tb, m, n, k):
            bench.stdin.write(f"{library} {dtype} {ta} {tb} {m} {n} {k} {threads} {options.seconds}\n")
            bench.stdin.flush()
            return float(bench.stdout.readline())

        for dtype in options.dtypes.split(","):
            print(f"\n{dtype}, {threads} thread{'s' if threads > 1 else ''}")
            print(f"{'':22}{'m':>6}{'n':>7}{'k':>7}{'torch':>9}" + "".join(f"{name:>16}" for name in libraries) + f"{'peak':>8}")
            ratios = {name: [] for name in libraries}
            shares = {name: [] for name in libraries}
            for name, ta, tb, m, n, k in shapes(options.tokens):
                if options.only not in name:
                    continue
                rounds = {name: [] for name in ["torch", "peak"] + libraries}
                for _ in range(options.rounds):
                    rounds["torch"].append(time_torch(dtype, ta, tb, m, n, k, options.seconds))
                    rounds["peak"].append(ask("peak", "f32", 0, 0, 256, 1024, 1024))
                    for library in libraries:
                        rounds[library].append(ask(library, dtype, ta, tb, m, n, k))
                speed = {key: statistics.median(values) for key, values in rounds.items()}
                line = f"{name:22}{m:6}{n:7}{k:7}{speed['torch']:9.1f}"
                for library in libraries:
                    if speed[library] > 0:
                        ratios[library].append(speed[library] / speed["torch"])
                        shares[library].append(speed[library] / max(speed["peak"], 1e-9))
                    line += f"{speed[library] / speed['torch']:16.2f}" if speed[library] > 0 else f"{'-':>16}"
                print(line + f"{speed['peak']:8.1f}", flush=True)
            for library in libraries:
                if ratios[library]:
                    print(f"geometric mean {dtype} {threads}t {library}: {geometric_mean(ratios[library]):.3f} x torch, "
                          f"{geometric_mean(shares[library]):.2f} of the f32 multiply-add peak")
        bench.stdin.close()
        bench.wait()


if __name__ == "__main__":
    main()
