#!/usr/bin/env bash
# What is measured: steps of llm.c's CPU trainer (train_gpt2.c, f32, OpenMP) on GPT-2 124M, 4 sequences of 64 tokens, as tok/s.
# bench/step.sh compares it with Sluice on the same cores in the same minutes (the README's row "GPT-2 124M, 4 x 64 tokens").
#
#   bench/peers/llmc.sh prepare SOURCES WORK     copies llm.c's sources, builds train_gpt2, writes the files that it opens
#   bench/peers/llmc.sh run WORK [THREADS]       trains for a minute, prints the median tok/s of the steps after the first
#   LLMC=SOURCES bench/step.sh python3 bench/peers/llama_torch.py 2 3 gpt2      both programs, in turn
#
# This script fetches nothing. SOURCES is a clone of https://github.com/karpathy/llm.c. The files that its own download scripts fetch
# are written here instead, with random weights and tokens, since speed does not depend on their values: gpt2_124M.bin (header
# 20240326, version 3, f32) and token shards (header 20240520, version 1) where llm.c expects tinyshakespeare.
# Versions: the figures are of gcc 13, built as llm.c's Makefile does it (-Ofast, OpenMP). CC: another compiler.
#
# On a GPU the same comparison takes llm.c's train_gpt2cu (`make train_gpt2cu USE_CUDNN=1`, then `./train_gpt2cu -b 64 -t 1024 -d 524288`)
# beside `bench/h200.sh gpt2`. The README states no llm.c figure for a GPU.
set -euo pipefail
usage() { sed -n '5,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }

model_and_tokens() { "${PYTHON:-python3}" - "$1" << 'END'
import array, pathlib, random, struct, sys
work = pathlib.Path(sys.argv[1])
layers, d, vocabulary, padded, positions = 12, 768, 50257, 50304, 1024
random.seed(1)
header = lambda *numbers: struct.pack("<256i", *numbers, *[0] * (256 - len(numbers)))
floats = (padded + positions) * d + layers * (12 * d * d + 13 * d) + 2 * d
block = array.array("f", (random.gauss(0, 0.02) for _ in range(1 << 16))).tobytes()
with open(work / "gpt2_124M.bin", "wb") as file:
    file.write(header(20240326, 3, positions, vocabulary, layers, 12, d, padded))
    for at in range(0, 4 * floats, len(block)):
        file.write(block[: 4 * floats - at])
data = work / "dev" / "data" / "tinyshakespeare"
data.mkdir(parents=True, exist_ok=True)
for part in "train", "val":
    tokens = array.array("H", (random.randrange(vocabulary) for _ in range(1 << 15)))
    (data / f"tiny_shakespeare_{part}.bin").write_bytes(header(20240520, 1, len(tokens)) + tokens.tobytes())
END
}

case ${1:-} in
prepare)
    sources=${2:-} work=${3:-}
    [ -f "$sources/train_gpt2.c" ] && [ -n "$work" ] || usage
    [ ! -e "$work" ] || { echo "$work exists; name a folder that does not" >&2; exit 1; }
    cp -r "$sources" "$work"
    make -C "$work" CC="${CC:-gcc}" train_gpt2 > "$work/build.log" 2>&1 || { tail -n 5 "$work/build.log" >&2; exit 1; }
    model_and_tokens "$work"
    ;;
run)
    work=${2:-} threads=${3:-2}
    [ -x "$work/train_gpt2" ] || { echo "$work/train_gpt2 is not there; run: $0 prepare SOURCES WORK" >&2; exit 1; }
    # `timeout` ends the trainer, or it ends itself before. Each step has printed its time by then.
    { cd "$work" && OMP_NUM_THREADS=$threads timeout "${SECONDS_OF_A_RUN:-60}" stdbuf -oL ./train_gpt2 || true; } |
        sed -n 's/^step [1-9][0-9]*: .*took \([0-9.]*\) ms.*/\1/p' | sort -g |
        awk '{ ms[NR] = $1 } END {
            if (!NR) { print "no step ended; see build.log" > "/dev/stderr"; exit 1 }
            print 256000 / ms[int((NR + 1) / 2)]
        }'
    ;;
*) usage ;;
esac
