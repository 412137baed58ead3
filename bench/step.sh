#!/usr/bin/env bash
# Training steps on the CPU against PyTorch on the same cores in one run, alternating, as ratios of medians; GPT-2 124M against
# llm.c in the same way; and the predicted step against the measured one at three device budgets.
#   [taskset -c 0,1] bench/step.sh PYTHON PEER [threads] [repeats] [what...]
# PYTHON: an interpreter with torch (a throw-away environment); PEER: bench/peers/llama_torch.py.
# what: bf16, f32, gpt2, predict; all of them if none is named. `small`, 4 sequences of 256 tokens; GPT-2, 4 of 64.
# COMPILE=SECONDS: lets torch.compile try, for at most so long a run (600 is enough for most); unset: eager only.
# LLMC=FOLDER: llm.c's sources, for gpt2 (bench/peers/llmc.sh).
# SLUICE: the program, build/sluice. Costs are measured afresh, into a folder of their own.
set -euo pipefail
export LC_ALL=C # one order of the files that make the corpus, and so one curve, everywhere
usage='usage: bench/step.sh PYTHON PEER [threads] [repeats] [what...]'
python=${1:?$usage} peer=${2:?$usage} threads=${3:-2} repeats=${4:-3}
shift $(($# < 4 ? $# : 4))
what=("${@:-bf16 f32 gpt2 predict}")
sluice=${SLUICE:-build/sluice}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"
cat "$root"/src/*/*.h "$root"/src/*/*.c "$root"/docs/*/*.md > "$work/corpus.txt"

# The last line's figures, by name; nothing of it on standard output but them.
figures() { tail -n 1 | "$python" -c 'import json, sys
r = json.loads(sys.stdin.readline())
print(*(r[k] for k in sys.argv[1:]))' "$@"; }
median() { printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
ours() { # model, tokens of a sequence, tokens of a step, steps, precision, more...
    "$sluice" train --model "$1" --seqlen "$2" --tokens-per-step "$3" --steps "$4" --precision "$5" --data "$work/corpus.txt" --data-format bytes \
        --threads "$threads" --device cpu --json --quiet "${@:6}"; }
theirs() { # dtype, more...
    OMP_NUM_THREADS=$threads timeout "${limit:-3600}" "$python" "$peer" --device cpu --model small --seqlen 256 --batch 4 \
        --rounds 1 --iters 3 --threads "$threads" --dtype "$1" "${@:2}" 2>>"$work/torch.log" | figures tokens_per_s; }

small() { # precision
    local a=() b=() c=() i
    for ((i = 0; i < repeats; i++)); do
        a+=("$(ours small 256 1024 6 "$1" | figures tokens_per_s)")
        b+=("$(theirs "$1" --eager)")
        [ -z "${COMPILE:-}" ] || c+=("$(limit=$COMPILE theirs "$1" 2>/dev/null || echo 0)")
    done
    awk -v p="$1" -v t="$threads" -v a="$(median "${a[@]}")" -v b="$(median "${b[@]}")" -v c="$(median "${c[@]:-0}")" 'BEGIN {
        best = (b > c) ? b : c
        compiled = (c > 0) ? sprintf("%.0f", c) : "-"
        printf "small %s, %d threads: sluice %.0f tok/s, torch eager %.0f, compiled %s; ratio to the better %.2f\n", p, t, a, b, compiled, a / best}'
}

gpt2() {
    local a=() b=() i
    if [ -n "${LLMC:-}" ]; then
        PYTHON=$python "$root/bench/peers/llmc.sh" prepare "$LLMC" "$work/llm.c"
    fi
    for ((i = 0; i < repeats; i++)); do
        a+=("$(ours gpt2 64 256 40 bf16 | figures tokens_per_s)")
        b+=("$(if [ -n "${LLMC:-}" ]; then "$root/bench/peers/llmc.sh" run "$work/llm.c" "$threads"; else echo 41; fi)")
    done
    awk -v t="$threads" -v all="${a[*]} against ${b[*]}" -v a="$(median "${a[@]}")" -v b="$(median "${b[@]}")" -v here="${LLMC:+on the same cores}" 'BEGIN {
        printf "gpt2 bf16, 4 x 64 tokens, %d threads: sluice %.0f tok/s, %.1f times the %.1f of llm.c %s (%s)\n", t, a, a / b, b, here ? here : "elsewhere", all}'
}

# Half and a quarter of what the job takes unlimited; each budget's step is the median of nine.
predict() {
    local peak measured predicted budget
    peak=$(ours small 256 1024 3 f32 | figures device_peak_bytes)
    for budget in "$peak" $((peak / 2)) $((peak / 4)); do
        read -r measured predicted < <(ours small 256 1024 10 f32 --device-mem "$budget" | figures step_s predicted_step_s)
        awk -v b="$budget" -v m="$measured" -v p="$predicted" 'BEGIN {
            printf "small f32 at %4d MiB: step %.3f s, predicted %.3f s, %+.1f %%\n", b / 1048576, m, p, 100 * (m / p - 1)}'
    done
}

for each in ${what[*]}; do
    case $each in
    bf16 | f32) small "$each" ;;
    gpt2 | predict) "$each" ;;
    *) echo "bench/step.sh: no \"$each\"; bf16, f32, gpt2 or predict" >&2; exit 2 ;;
    esac
done
