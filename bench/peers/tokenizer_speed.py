#!/usr/bin/env python3
"""Speed on one thread next to `tokenizers` and `tiktoken`: the same tokenizer, the same texts, MB per second of processor time.

    python3 bench/peers/tokenizer_speed.py --sluice build/sluice --tokenizer DIR TEXT...

Processor time, so that a busy machine changes all three alike: of Sluice what `sluice tokenize --json` reports for encoding, of the others
that of this process. All have their tokenizers open and their texts in memory, the others in pieces of 64 KiB at ends of lines. tiktoken needs a byte-level tokenizer whose ids are its ranks; where it cannot give the
same ids, its column is empty.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tiktoken  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def alphabet():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    table = {chr(b): b for b in plain}
    others = [b for b in range(256) if b not in plain]
    table.update({chr(256 + i): b for i, b in enumerate(others)})
    return table


def make_tiktoken(path):
    data = json.load(open(path, encoding="utf-8"))
    pre = data["pre_tokenizer"]
    splits = [p for p in pre.get("pretokenizers", [pre]) if p["type"] == "Split"]
    if not (data["decoder"] or {}).get("type") == "ByteLevel" or len(splits) > 1 or data["normalizer"]:
        return None
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    pattern = splits[0]["pattern"]["Regex"] if splits else gpt2
    table = alphabet()
    added = {a["content"] for a in data["added_tokens"]}
    ranks = {bytes(table[c] for c in word): i for word, i in data["model"]["vocab"].items() if word not in added}
    return tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def pieces(text, size=65536):
    out, at = [], 0
    while at < len(text):
        end = at + size
        line = text.rfind("\n", at, end) + 1
        out.append(text[at : line if line > at and end < len(text) else end])
        at += len(out[-1])
    return out


def cpu(action):
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def sluice_cpu(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["encode_cpu_seconds"]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--sluice", default="build/sluice")
    args.add_argument("--tokenizer", required=True)
    args.add_argument("--most", type=int, default=1 << 62, help="bytes of each text for the peers")
    args.add_argument("texts", nargs="+")
    args = args.parse_args()
    path = os.path.join(args.tokenizer, "tokenizer.json")
    peer, tik = Tokenizer.from_file(path), make_tiktoken(path)
    peer.encode_special_tokens = True
    print("| text | MB | sluice MB/s | tokenizers MB/s | tiktoken MB/s | times the faster |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.bin")
        command = [args.sluice, "tokenize", "--tokenizer", args.tokenizer, "--out", out, "--threads", "1", "--separator", "none", "--json", "--data"]
        for name in args.texts:
            text = open(name, encoding="utf-8", errors="replace", newline="").read()
            size = len(text.encode())
            ours = min(sluice_cpu(command + [name]) for _ in range(5))
            parts = pieces(text.encode()[: args.most].decode("utf-8", "ignore"))
            part_size = sum(len(p.encode()) for p in parts)
            theirs = min(cpu(lambda: peer.encode_batch_fast(parts, add_special_tokens=False))[0] for _ in range(2))
            speeds = [size / 1e6 / ours, part_size / 1e6 / theirs]
            if tik:
                speeds.append(part_size / 1e6 / min(cpu(lambda: [tik.encode_ordinary(p) for p in parts])[0] for _ in range(2)))
            row = [os.path.basename(name), "%.1f" % (size / 1e6)] + ["%.1f" % s for s in speeds] + ([""] if not tik else [])
            print("| %s | %.1fx |" % (" | ".join(row), speeds[0] / max(speeds[1:])), flush=True)


if __name__ == "__main__":
    main()
