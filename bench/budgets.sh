#!/usr/bin/env bash
# One job at many device budgets, from unlimited to the least that works: are losses and weights the same bits, do the
# measured peaks stay within the budgets, is one step under the least refused? With 1 and 2 threads, three precisions, a
# packed job and a sliced one.
#   [DEVICE=cuda] bench/budgets.sh [steps]          needs build/sluice, jq
set -euo pipefail
steps=${1:-3}
sluice=${SLUICE:-build/sluice}
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
cat src/*/*.h src/*/*.c > "$data/corpus.txt"
fails=0 good=0

job() { # name, model, seqlen, tokens per step, extra...
    local name=$1 model=$2 seqlen=$3 tokens=$4
    shift 4
    local common=(--model "$model" --seqlen "$seqlen" --tokens-per-step "$tokens" --steps "$steps" --data "$data" --seed 7 --device "${DEVICE:-auto}" --json "$@")
    local before=$fails plan least full reference='' budget
    plan=$("$sluice" plan "${common[@]}" | tail -n 1)
    least=$(jq .min_device_bytes <<<"$plan")
    full=$(jq .device_peak_bytes <<<"$plan")
    local budgets=(unlimited)
    for share in 80 60 45 30 20 10 4; do
        budgets+=($(((least + (full - least) * share / 100) / 256 * 256)))
    done
    budgets+=("$least")
    for budget in "${budgets[@]}"; do
        for threads in 1 2; do
            local out hash peak
            out=$("$sluice" train "${common[@]}" --device-mem "$budget" --threads "$threads" | tail -n 1)
            hash=$(jq -c '[.weights_hash, .loss]' <<<"$out")
            peak=$(jq .device_peak_bytes <<<"$out")
            : "${reference:=$hash}"
            [[ $hash == "$reference" ]] || { echo "DIFFERS  $name at $budget, $threads threads"; fails=$((fails + 1)); }
            [[ $budget == unlimited || $peak -le $budget ]] || { echo "OVER     $name at $budget: peak $peak"; fails=$((fails + 1)); }
        done
    done
    local code=0
    "$sluice" train "${common[@]}" --device-mem $((least - 256)) >/dev/null 2>&1 || code=$?
    [[ $code == 3 ]] || { echo "NOT REFUSED  $name at $((least - 256)): exit $code"; fails=$((fails + 1)); }
    ((fails > before)) || good=$((good + 1))
    echo "$name: ${#budgets[@]} budgets from $full to $least bytes, 1 and 2 threads: $(jq -r .weights_hash <<<"$out")"
}

for precision in f32 bf16 bf16-master; do
    job "packed $precision" byte-nano 128 1024 --chunk-tokens 256 --precision "$precision"
    job "sliced $precision" byte-nano 512 1024 --chunk-tokens 128 --precision "$precision"
done
echo "$good passed, $((6 - good)) failed"
exit $((fails > 0))
