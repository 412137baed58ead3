#!/usr/bin/env bash
# Fine-tuning and generation with a model of 8 billion parameters on one GPU, next to what they should reach. A line per job is printed as
# it ends, the table last; what sluice printed for each goes to RESULTS (a folder, default bench/results/tune-DATE).
#   bench/tune.sh [job ...]
# Jobs, in this order by default:
#   moments      200 steps of `small` with AdamW and with 8-bit moments: how far apart are the losses?
#   lora-6 full-6      tokens per second within 6 GiB with adapters, and without
#   8bit-24 24         full training within 24 GiB with 8-bit moments and with AdamW: speed and least host memory
#   folder       writes the model's folder, for the jobs below
#   folder-24    full training from that folder: its speed next to `24`, and the time from reading weights to the first loss
#   decode decode-4    one stream of tokens with all weights in device memory, and within 4 GiB
# Needs build/sluice (or SLUICE) with the CUDA plugin, and 16 GB of disk for the folder (FOLDER, kept). To try the script itself: DEVICE=cpu
# MODEL=byte-tiny SEQLEN=128 TOKENS=512, with budgets that small models do not notice.
set -uo pipefail
export LC_ALL=C
jobs=("$@")
((${#jobs[@]})) || jobs=(moments lora-6 full-6 8bit-24 24 folder folder-24 decode decode-4)
sluice=${SLUICE:-build/sluice} device=${DEVICE:-cuda} model=${MODEL:-llama3-8b} seqlen=${SEQLEN:-2048} tokens=${TOKENS:-65536}
results=${RESULTS:-bench/results/tune-$(date +%Y%m%d)}
folder=${FOLDER:-${TMPDIR:-/tmp}/sluice-tune-model}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$results"
cat src/*/*.h src/*/*.c docs/*/*.md > "$work/corpus.txt"
failures=0

value() { tail -n 1 "$results/$1.json" | sed -n "s/.*\"$2\":\(\[[^]]*\]\|\"[^\"]*\"\|[^,}]*\).*/\1/p" | tr -d '[]"'; } # job, key
row() { printf '%-10s %s\n' "$1" "$2" | tee -a "$work/rows"; }
run() { # job, then command and flags
    local job=$1
    shift
    timeout "${LIMIT:-500}" "$sluice" "$@" --device "$device" --json > "$results/$job.json" 2> "$results/$job.err" && return
    row "$job" "FAILED: $(tail -n 1 "$results/$job.err" | cut -c 1-300)"
    failures=$((failures + 1))
    return 1
}
train() { # job, then flags
    local job=$1
    shift
    run "$job" train --data "$work/corpus.txt" --data-format bytes --checkpoint-every -1 --out "$work/$job" --quiet "$@"
}
large() { train "$@" --model "$model" --precision bf16 --seqlen "$seqlen" --tokens-per-step "$tokens" --steps 3; }
speed() { # job: what it reached
    row "$1" "$(printf '%.0f tok/s, %.3f of predicted, peaks %.2f and %.2f GiB' "$(value "$1" tokens_per_s)" \
        "$(awk "BEGIN {print $(value "$1" predicted_step_s) / $(value "$1" step_s)}")" \
        "$(awk "BEGIN {print $(value "$1" device_peak_bytes) / 2 ^ 30}")" "$(awk "BEGIN {print $(value "$1" host_peak_bytes) / 2 ^ 30}")")"
}
ratio() { # job, job, key, what it says
    [[ -s $results/$1.json && -s $results/$2.json ]] || return 0
    row "" "$(awk -v a="$(value "$1" "$3")" -v b="$(value "$2" "$3")" -v says="$4" 'BEGIN {if (b > 0) printf "%s %.3f", says, a / b}')"
}
least_host() { # job, then flags: host memory that the plan cannot do without
    run "$1-plan" plan --model "$model" --precision bf16 --seqlen "$seqlen" --tokens-per-step "$tokens" --device-mem 24GiB "${@:2}" || return 0
    row "$1" "least host memory $(awk "BEGIN {printf \"%.1f\", $(value "$1-plan" min_host_bytes) / 2 ^ 30}") GiB"
}
decode() { # job, then flags
    local job=$1
    shift
    run "$job" generate --model "$folder" --precision bf16 --prompt-ids 1,2,3,4,5,6,7,8 --max-tokens "${MOST:-256}" --ignore-end --temperature 0 \
        --quiet "$@" || return 0
    row "$job" "$(printf '%.1f tok/s, %s bytes streamed a token, %s on the device' "$(value "$job" tokens_per_s)" \
        "$(value "$job" streamed_bytes)" "$(value "$job" peak_bytes)")"
}

for job in "${jobs[@]}"; do
    case $job in
    moments)
        small=(--model "${SMALL:-small}" --seqlen 256 --tokens-per-step 1024 --precision bf16 --lr 1e-4 --steps "${STEPS:-200}")
        train moments-8 "${small[@]}" --optimizer adamw8bit && train moments-16 "${small[@]}" &&
            row moments "$(paste -d ' ' <(value moments-8 loss | tr , '\n') <(value moments-16 loss | tr , '\n') | awk '
                {d = $1 - $2; if (d < 0) d = -d; if (d > most) {most = d; at = NR}; last = d}
                END {printf "%d steps, losses at most %.2g apart (step %d), %.2g at the end; 1e-2 wanted", NR, most, at, last}')"
        ;;
    lora-6) large lora-6 --from-scratch --lora-rank 16 --device-mem 6GiB --host-mem 60GiB && speed lora-6 ;;
    full-6) large full-6 --device-mem 6GiB --host-mem 100GiB && speed full-6 && ratio lora-6 full-6 tokens_per_s 'adapters against full, 1.25 wanted:' ;;
    8bit-24) large 8bit-24 --optimizer adamw8bit --device-mem 24GiB --host-mem 60GiB && speed 8bit-24; least_host 8bit-24 --optimizer adamw8bit ;;
    24) large 24 --device-mem 24GiB --host-mem 100GiB && speed 24; least_host 24 && ratio 8bit-24-plan 24-plan min_host_bytes 'host memory, .75 wanted:' ;;
    folder)
        begin=$SECONDS
        [[ -e $folder/config.json ]] || "$sluice" init --model "$model" --weights --precision bf16 --out "$folder" > "$results/folder.out" 2>&1 ||
            { failures=$((failures + 1)); row folder "FAILED: $(tail -n 1 "$results/folder.out")"; }
        row folder "$((SECONDS - begin)) s"
        ;;
    folder-24)
        begin=$SECONDS
        large folder-24 --model "$folder" --device-mem 24GiB --host-mem 100GiB && speed folder-24 &&
            row folder-24 "$((SECONDS - begin)) s in all" && ratio folder-24 24 tokens_per_s 'against the same from scratch, .98 wanted:'
        cp "$work/folder-24/events.jsonl" "$results/folder-24.jsonl" 2> /dev/null
        ;;
    decode) decode decode --device-mem 100GiB ;;
    decode-4) decode decode-4 --device-mem 4GiB ;;
    *) echo "no job $job"; exit 2 ;;
    esac
done
echo
cat "$work/rows"
exit $((failures > 0))
