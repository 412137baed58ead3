#!/usr/bin/env bash
# The tables of `sluice system` and `sluice bench` on one GPU, as JSON lines for bench/results/ and docs/lab/performance.md.
#   bench/tables.sh FOLDER [part ...]        parts: system plan attention lm ops precision (default: all, in this order)
# Needs no more than bash, awk, coreutils and a built sluice. SLUICE: the program (default build/sluice); SLUICE_PLUGINS: the folder
# of its CUDA plugin; DEVICE: cuda (default) or cpu; QUICK=1: small shapes, to try the script on a CPU.
# Seconds on an H200, estimated: system 30, plan 30, attention 60, lm 110, ops 30, precision 25.
#
# Shorter than the published protocols, to keep the GPU for minutes only, and so in every row: `lm` 3 + 10 steps instead of 5 + 10
# (three at the least, in `steps`) and f32 at context 256 alone; attention's grid 3 + 20 passes instead of 100, at most 0.6 s a cell.
# The 16 x 16384 x 64 shape keeps its second of warming up and ten of runs. `plan` holds the profile that `system` wrote against
# real runs: `sluice plan --hw` sees nothing but the file.
set -uo pipefail
export LC_ALL=C # one order of the files that make the corpus, and so one curve, everywhere
out=${1:?usage: bench/tables.sh FOLDER [part ...]}
shift
parts=("$@")
((${#parts[@]})) || parts=(system plan attention lm ops precision)
sluice=${SLUICE:-build/sluice} device=${DEVICE:-cuda}
quick=() runs_1b=(llama3-1.5b 8192 65536 6) runs_small=(small 256 1024 200)
if [[ ${QUICK:-} ]]; then
    quick=(--quick)
    runs_1b=(byte-small 256 1024 4) runs_small=(byte-tiny 256 1024 6)
fi
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

timed() { # what it is called, where its output goes, the command: the seconds it took, and why it failed if it did
    local name=$1 to=$2 start=$SECONDS why=''
    shift 2
    "$@" > "$to" 2> "$work/error" || { failed=1 && why=": failed: $(tail -n 1 "$work/error")"; }
    printf '%4d s  %s%s\n' $((SECONDS - start)) "$name" "$why"
}

run() { # file, then a bench and its flags: one more line in the file
    local file=$1
    shift
    timed "bench $*" "$work/line" "$sluice" bench "$@" "${quick[@]}" --device "$device" --json
    cat "$work/line" >> "$out/$file"
}

number() { # key, file: the first number behind the key
    grep -o "\"$1\":[-0-9.e+]*" "$2" | head -n 1 | cut -d : -f 2
}

against() { # model, sequence length, tokens per step, steps: planned from the profile alone, then run
    local job=(--model "$1" --seqlen "$2" --tokens-per-step "$3" --precision bf16)
    [[ $device == cpu ]] && job+=(--device cpu)
    "$sluice" plan --hw "$out/system.json" "${job[@]}" --json > "$work/plan" 2> "$work/error" &&
        "$sluice" train --device "$device" --hw "$out/system.json" "${job[@]}" --steps "$4" --data "$work/corpus.txt" --data-format bytes --out "$work/$1" --checkpoint-every -1 \
            --json 2> "$work/error" | tail -n 1 > "$work/run"
    if [[ ! -s $work/run || ! -s $work/plan ]]; then
        echo "$1: failed: $(tail -n 1 "$work/error")"
        failed=1
        return
    fi
    awk -v job="$1, $2 tokens, $3 a step, bf16" -v planned="$(number step_s "$work/plan")" -v ran="$(number step_s "$work/run")" 'BEGIN {
        printf "{\"kind\":\"plan\",\"job\":\"%s\",\"planned_step_s\":%s,\"measured_step_s\":%s,\"measured_over_planned\":%.4f}\n",
            job, planned, ran, ran / planned }' | tee -a "$out/plan.jsonl"
    rm "$work/plan" "$work/run"
}

system() {
    timed system "$out/system.json" "$sluice" system --device "$device" "${quick[@]}" --disk "$work" --json
}

plan() {
    [[ -s $out/system.json ]] || system
    rm -f "$out/plan.jsonl"
    cat src/*/*.h src/*/*.c docs/*/*.md > "$work/sources.txt"
    cat "$work/sources.txt" "$work/sources.txt" > "$work/corpus.txt"
    against "${runs_small[@]}"
    against "${runs_1b[@]}"
}

attention() { # what could fail comes last, in files' lines of their own
    rm -f "$out/attention.jsonl"
    run attention.jsonl attention --published --parts leaderboard --warmup 5 --steps 200 --cell-seconds 4
    run attention.jsonl attention --published --parts grid --warmup 3 --steps 20 --cell-seconds 0.6
    run attention.jsonl attention --parts tiles --warmup 2 --steps 10 --cell-seconds 1
    run attention.jsonl attention --parts long --warmup 2 --steps 10 --cell-seconds 0.6
}

lm() {
    rm -f "$out/lm.jsonl"
    local sizes=(--sizes "tiny,small,medium,large,xl,2.7b") contexts=(--contexts 256) others=(--contexts "128,512,1024") one=(--sizes small)
    [[ ${QUICK:-} ]] && sizes=() contexts=() others=(--contexts 48) one=()
    run lm.jsonl lm --published --parts sizes,times "${sizes[@]}" "${contexts[@]}" --precisions f32,bf16 --warmup 3 --steps 10 --cell-seconds 2
    run lm.jsonl lm --published --parts times "${sizes[@]}" "${others[@]}" --precisions bf16 --warmup 3 --steps 10 --cell-seconds 2
    run lm.jsonl lm --parts warmup,profile "${one[@]}" "${contexts[@]}"
}

ops() {
    rm -f "$out/ops.jsonl"
    local shape=(--tokens 4096)
    [[ ${QUICK:-} ]] && shape=()
    run ops.jsonl ops "${shape[@]}" --warmup 2 --steps 12
}

precision() {
    rm -f "$out/precision.jsonl"
    run precision.jsonl precision --published --warmup 3 --steps 10
}

for part in "${parts[@]}"; do
    case $part in
    system | plan | attention | lm | ops | precision) "$part" ;;
    *) echo "there is no part $part: use system, plan, attention, lm, ops, precision" && exit 2 ;;
    esac
done

show() { # what, file, pattern of a row, keys: the row's figures on a line
    local what=$1 file=$out/$2 row
    row=$(grep -o "{$3[^}]*}" "$file" 2> /dev/null | head -n 1)
    shift 3
    [[ $row ]] || return 0
    printf '%-44s' "$what"
    for key in "$@"; do printf '  %s %s' "$key" "$(grep -o "\"$key\":[^,}]*" <<< "$row" | cut -d : -f 2)"; done
    echo
}
echo
show '16 x 16384 x 64, forward and backward' attention.jsonl '"shape":"16 x 16384 x 64","way":"tiled","hardware":"this machine"' \
    forward_ms backward_ms both_ms std_ms tflops
for size in tiny small medium large xl 2.7b; do
    show "$size, context 256, bf16" lm.jsonl "\"size\":\"$size\",\"context\":256,\"precision\":\"bf16\"" forward_ms step_ms mfu_percent
done
show 'attention 8 x 16384 x 64, bf16, tiled' attention.jsonl '"dtype":"bf16","dim":64,"seqlen":16384,"way":"tiled"' forward_ms backward_ms speed_up
show 'large in bf16' precision.jsonl '"model":"large","policy":"bf16"' step_ms speed_up loss_difference
show 'bf16 products' system.json '"dtype":"bf16"' tflops percent
[[ -s $out/plan.jsonl ]] && sed 's/.*"job":"\([^"]*\)".*planned_step_s":\([^,]*\).*measured_step_s":\([^,]*\).*over_planned":\([^}]*\)}/\1: planned \2 s, ran \3 s, ratio \4/' "$out/plan.jsonl"
grep -o '"[^"]*no speed is reported[^"]*"\|"The bench ended early[^"]*"' "$out"/*.jsonl /dev/null | head -n 20
exit $failed
