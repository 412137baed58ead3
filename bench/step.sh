#!/usr/bin/env bash
# A training step against PyTorch on the same cores in one run, alternating, as ratios of medians.
#   bench/step.sh PYTHON PEER [threads] [repeats]
# PYTHON: an interpreter with torch (a throw-away environment); PEER: the PyTorch baseline script (llama_torch.py).
set -euo pipefail
python=$1 peer=$2 threads=${3:-2} repeats=${4:-3}
sluice=${SLUICE:-build/sluice}
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
cat src/*/*.h src/*/*.c docs/*.md > "$data/corpus.txt"
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
ours() { "$sluice" train --model small --seqlen 256 --tokens-per-step 1024 --steps 6 --data "$data" --precision "$1" \
    --threads "$threads" --clip 0 --json | tail -n 1 | jq .tokens_per_s; }
theirs() { OMP_NUM_THREADS=$threads "$python" "$peer" --device cpu --model small --seqlen 256 --batch 4 --rounds 1 --iters 3 \
    --threads "$threads" --dtype "$1" "${@:2}" | tail -n 1 | jq .tokens_per_s; }
for precision in bf16 f32; do
    a=() b=() c=()
    for ((i = 0; i < repeats; i++)); do
        a+=("$(ours "$precision")")
        b+=("$(theirs "$precision" --eager)")
        c+=("$(theirs "$precision" || echo 0)")
    done
    printf '%s\n' "${a[@]}" | median > "$data/a"; printf '%s\n' "${b[@]}" | median > "$data/b"; printf '%s\n' "${c[@]}" | median > "$data/c"
    paste "$data/a" "$data/b" "$data/c" | awk -v p="$precision" -v t="$threads" '{best = $2 > $3 ? $2 : $3;
        printf "small %s, %d threads: sluice %.0f tok/s, torch eager %.0f, compiled %.0f; ratio to the better %.2f\n", p, t, $1, $2, $3, $1 / best}'
done
