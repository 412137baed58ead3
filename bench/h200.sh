#!/usr/bin/env bash
# The table of docs/performance.md on one GPU: each job's speed against what was predicted, and PyTorch on the same job where it
# runs at all. One JSON line per job goes to bench/results/, with commit, versions, clock and temperature.
#   bench/h200.sh [-s STEPS] [-t TOKENS-PER-STEP] [-p PYTHON PEER] [job ...]     needs build/sluice with the CUDA plugin, jq, nvidia-smi
# STEPS per job (default 3, the first one is not counted); PEER: the PyTorch baseline script (llama_torch.py).
# Jobs: 8b-110 8b-24 8b-12 8b-1k 8b-64k 1b gpt2 small (default: all).
set -euo pipefail
steps=3 tokens=524288 python='' peer=''
while getopts s:t:p: option; do
    case $option in
    s) steps=$OPTARG ;;
    t) tokens=$OPTARG ;;
    p) python=$OPTARG peer=${!OPTIND} OPTIND=$((OPTIND + 1)) ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
jobs=("$@")
((${#jobs[@]})) || jobs=(8b-110 8b-24 8b-12 8b-1k 8b-64k 1b gpt2 small)
sluice=${SLUICE:-build/sluice}
results=${RESULTS:-bench/results/$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr 'A-Z ' 'a-z-')-$(date +%Y%m%d).jsonl}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat src/*/*.h src/*/*.c docs/*.md > "$work/sources.txt"
for ((i = 0; i < 60; i++)); do cat "$work/sources.txt"; done > "$work/corpus.txt" # 8B's steps take half a million tokens
rm "$work/sources.txt"

train() { # job, then the flags of sluice train
    local job=$1 at log=$work/$1.log
    shift
    at=$(nvidia-smi --query-gpu=clocks.sm,temperature.gpu,driver_version --format=csv,noheader,nounits | head -n 1)
    if ! "$sluice" train --device cuda --data "$work/corpus.txt" --checkpoint-every -1 --out "$work/$job" --json "$@" > "$log" 2>&1; then
        echo "$job: failed: $(grep -m 1 '^sluice:' "$log")"
        return
    fi
    tail -n 1 "$log" | jq -c --arg job "$job" --arg flags "$*" --arg at "$at" --arg commit "${COMMIT:-$(git describe --always --dirty)}" \
        --arg time "$(date -u +%FT%TZ)" --slurpfile events "$work/$job/events.jsonl" '
        {kind: "run", job: $job, time: $time, commit: $commit, flags: $flags, gpu: $at, numerics: $events[0].numerics} +
        (. | {tokens_per_s, step_s, predicted_step_s, mfu, hfu, tflops, device_peak_bytes, device_budget_bytes, device_context_bytes, host_peak_bytes,
              host_budget_bytes, recompute_fraction, weights_hash, loss}) +
        ($events[1] | {plan_ms, measure_s, memory_s, weights_s}) +
        {first_loss_s: ([$events[] | select(.event == "step") | .t] | first)}' > "$work/row"
    cat "$work/row" >> "$results"
    jq -r '"\(.job): \(.tokens_per_s | floor) tok/s, step \(.step_s * 1000 | floor / 1000) s, predicted \(.predicted_step_s * 1000 | floor / 1000), " +
           "MFU \(.mfu * 1000 | floor / 10) %, recomputed \(.recompute_fraction * 1000 | floor / 10) %, device peak \(.device_peak_bytes / 1073741824 * 10 | floor / 10) GiB, " +
           "first loss after \(.first_loss_s | floor) s (costs \(.measure_s | floor), memory \(.memory_s | floor), weights \(.weights_s | floor))"' "$work/row"
}

torch() { # job, then the flags of the peer
    [[ $peer ]] || return 0
    local job=$1
    shift
    "$python" "$peer" --device cuda "$@" 2> "$work/peer.err" | tail -n 1 > "$work/peer" || true
    if jq -e .tokens_per_s "$work/peer" > /dev/null 2>&1; then
        jq -c --arg job "$job" --arg flags "$*" '{kind: "peer", job: $job, flags: $flags} + .' "$work/peer" >> "$results"
        jq -r --arg job "$job" '"\($job), PyTorch: \(.tokens_per_s | floor) tok/s"' "$work/peer"
    else
        echo "$job, PyTorch: did not run: $(tail -n 1 "$work/peer.err")"
    fi
}

mkdir -p "$(dirname "$results")"
for job in "${jobs[@]}"; do
    case $job in
    8b-110) train "$job" --model llama3-8b --precision bf16 --seqlen 8192 --tokens-per-step "$tokens" --steps "$steps" --device-mem 110GiB --host-mem 100GiB
        torch "$job" --model llama3-8b --seqlen 8192 --batch 1 --rounds 8 --iters 3 ;;
    8b-24) train "$job" --model llama3-8b --precision bf16 --seqlen 8192 --tokens-per-step "$tokens" --steps "$steps" --device-mem 24GiB --host-mem 100GiB ;;
    8b-12) train "$job" --model llama3-8b --precision bf16 --seqlen 8192 --tokens-per-step "$tokens" --steps "$steps" --device-mem 12GiB --host-mem 100GiB ;;
    8b-1k) train "$job" --model llama3-8b --precision bf16 --seqlen 1024 --tokens-per-step "$tokens" --steps "$steps" --device-mem 78GiB --host-mem 100GiB
        torch "$job" --model llama3-8b --seqlen 1024 --batch 8 --rounds 8 --iters 3 ;;
    8b-64k) train "$job" --model llama3-8b --precision bf16 --seqlen 65536 --tokens-per-step "$tokens" --steps "$steps" --device-mem 78GiB --host-mem 110GiB ;;
    1b) train "$job" --model llama3-1b --precision bf16 --seqlen 8192 --tokens-per-step "$tokens" --steps $((2 * steps)) --device-mem 78GiB --host-mem 60GiB
        torch "$job" --model llama3-1b --seqlen 8192 --batch 4 --rounds 4 --iters 3 ;;
    gpt2) train "$job" --model gpt2 --precision bf16-master --seqlen 1024 --tokens-per-step 524288 --chunk-tokens 65536 --steps $((4 * steps)) --device-mem 130GiB ;;
    small) train "$job" --model small --precision bf16 --seqlen 256 --tokens-per-step 1024 --steps 100
        torch "$job" --model small --seqlen 256 --batch 4 --rounds 1 --iters 20 ;;
    *) echo "no job $job"; exit 2 ;;
    esac
done
echo "written to $results"
