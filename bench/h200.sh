#!/usr/bin/env bash
# The table of docs/lab/performance.md on one GPU: each job's speed against its prediction, PyTorch on the same job where it runs at
# all, and what must not depend on the budget or the device. One JSON line per job goes to bench/results/, with commit, versions,
# clock and temperature; a line per job is printed as it ends, the table last.
#   bench/h200.sh [-s STEPS] [-t TOKENS-PER-STEP] [-k STEPS] [-c CORES] [-r FOLDER] [-e FOLDER] [-p PYTHON PEER] [job ...]
# -s  steps of the speed jobs (default 3; the first is not counted), -t  tokens per step of the llama jobs (default 524288)
# -k  steps of `curve` (default 200); -c  cores its CPU half runs on, beside the other jobs, as taskset takes them (default: all)
# -r  where `curve` finds corpus.txt and the CPU's half made before: cpu-f32.out and cpu-bf16.out, what `sluice train --json` printed
# -e  where the speed jobs' event logs are kept, for `sluice report`
# -p  an interpreter with torch, and bench/peers/llama_torch.py: runs it after the jobs it knows
# Jobs: 8b-110 8b-24 8b-12 8b-1k 8b-64k 1b 1b-512k gpt2 small   speed
#       8b-64k-any 1b-any gpt2-any   the same with --nondeterministic
#       torch-8b-110 torch-8b-1k torch-1b torch-small torch-small-eager   PyTorch alone
#       hash-1b hash-small   10 steps at five budgets and one of them twice: are the weights the same?
#       curve   200 steps of `small` in f32 and bf16: how far is the loss from the CPU's?
# Needs build/sluice (or SLUICE) with the CUDA plugin, and nvidia-smi. Measured costs are kept and reused (~/.cache/sluice).
# A job may take LIMIT seconds (900). COMMIT: where git cannot tell. RESULTS: another file for the lines.
set -euo pipefail
export LC_ALL=C # one order of the files that make the corpus, and so one curve, everywhere
steps=3 tokens=524288 curve_steps=200 cores='' before='' events_to='' python='' peer=''
while getopts s:t:k:c:r:e:p: option; do
    case $option in
    s) steps=$OPTARG ;;
    t) tokens=$OPTARG ;;
    k) curve_steps=$OPTARG ;;
    c) cores=$OPTARG ;;
    r) before=$OPTARG ;;
    e) events_to=$OPTARG ;;
    p) python=$OPTARG peer=${!OPTIND} OPTIND=$((OPTIND + 1)) ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
jobs=("$@")
((${#jobs[@]})) || jobs=(8b-110 8b-24 8b-12 8b-1k 8b-64k 1b gpt2 small hash-small hash-1b curve)
sluice=${SLUICE:-build/sluice}
device=${DEVICE:-cuda} # cpu: to try the script itself
smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2> /dev/null | head -n 1 || true; }
results=${RESULTS:-bench/results/$(smi name | tr 'A-Z ' 'a-z-')-$(date +%Y%m%d).jsonl}
commit=${COMMIT:-$(git describe --always --dirty 2> /dev/null || echo unknown)}
declare -A must=([8b-110]=11400 [8b-24]=10500 [8b-12]=9600 [8b-1k]=13050 [8b-64k]=5500 [8b-64k-any]=5500 [1b]=56000 [1b-any]=56000 [gpt2]=580000 [gpt2-any]=580000 [small]=170667)
work=$(mktemp -d)
cpu_runs=''
trap '[[ -z $cpu_runs ]] || pkill -P "$cpu_runs" || true; rm -rf "$work"' EXIT
mkdir -p "$(dirname "$results")"
: > "$work/rows"
cat src/*/*.h src/*/*.c docs/*/*.md > "$work/sources.txt"
cat "$work"/sources.txt{,,,} > "$work/corpus.txt"
[[ ! $before ]] || cp "$before/corpus.txt" "$before"/cpu-{f32,bf16}.out "$work/"

# The members `keys` of the JSON object on the last line of a file, as they stand there: "a":1,"b":[2,3]. Absent ones are null.
members() { # file, keys
    tail -n 1 "$1" | awk -v keys="$2" '{
        n = split(keys, key, " ")
        for (i = 1; i <= n; i++) {
            value = "null"
            if (at = index($0, "\"" key[i] "\":")) {
                rest = substr($0, at + length(key[i]) + 3)
                sub(/^ +/, "", rest)
                match(rest, /^(\[[^]]*\]|"(\\.|[^"\\])*"|[^],}]*)/)
                value = substr(rest, 1, RLENGTH)
            }
            printf "%s\"%s\":%s", (i > 1 ? "," : ""), key[i], value
        }
    }'
}
value() { members "$1" "$2" | sed 's/^"[^"]*"://; s/^"\(.*\)"$/\1/'; } # file, key
text() { printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | sed 's/\\/\\\\/g; s/"/\\"/g')"; }
about() { # kind, job, flags: how every line begins
    printf '{"kind":"%s","job":"%s","time":"%s","commit":%s,"flags":%s,"gpu":%s' "$1" "$2" "$(date -u +%FT%TZ)" "$(text "$commit")" \
        "$(text "$3")" "$(text "$(smi clocks.sm,temperature.gpu,driver_version)")"
}
row() { tee -a "$results" >> "$work/rows"; }
run() { # name, then the flags of sluice train: writes $work/NAME.out and $work/NAME/events.jsonl
    local name=$1
    shift
    timeout "${LIMIT:-900}" "$sluice" train --data "$work/corpus.txt" --data-format bytes --checkpoint-every -1 --out "$work/$name" --json --quiet "$@" \
        > "$work/$name.out" 2> "$work/$name.err"
}
why() { # name of a run that failed
    tail -n 1 "$work/$1.err" | cut -c 1-600 | grep . || echo "no message; longer than ${LIMIT:-900} s?"
}
failed() { # job, flags, name of the run
    echo "$1: FAILED: $(why "$3")"
    { about failed "$1" "$2"; printf ',"message":%s}\n' "$(text "$(why "$3")")"; } | row
}

speed() { # job, then the flags
    local job=$1 begin=$SECONDS began head first
    shift
    began=$(date +%s)
    head=$(about run "$job" "$*")
    if ! run "$job" --device "$device" "$@"; then
        failed "$job" "$*" "$job"
        return
    fi
    local events=$work/$job/events.jsonl out=$work/$job.out
    for event in run plan step end; do
        grep -m 1 "\"event\":\"$event\"" "$events" > "$work/$event.event"
    done
    # from the command on: event logs count seconds from where planning ends
    first=$(awk -v began="$began" -v begins="$(date -d "$(value "$work/run.event" time)" +%s)" -v at="$(value "$work/run.event" t)" \
        -v step="$(value "$work/step.event" t)" 'BEGIN {printf "%.0f", begins - began + step - at}')
    printf '%s,%s,%s,%s,"compute_busy_s":%s,"first_loss_s":%s,"wall_s":%d}\n' "$head" "$(members "$work/run.event" numerics)" \
        "$(members "$out" "tokens_per_s step_s predicted_step_s mfu hfu tflops device_peak_bytes device_budget_bytes device_context_bytes \
host_peak_bytes host_budget_bytes recompute_fraction weights_hash loss")" \
        "$(members "$work/plan.event" "plan_ms measure_s memory_s weights_s")" "$(value "$work/end.event" compute)" \
        "$first" $((SECONDS - begin)) > "$work/row"
    row < "$work/row"
    [[ ! $events_to ]] || { mkdir -p "$events_to" && cp "$events" "$events_to/$job.jsonl"; }
    awk -v job="$job" -v rate="$(value "$out" tokens_per_s)" -v step="$(value "$out" step_s)" -v predicted="$(value "$out" predicted_step_s)" \
        -v mfu="$(value "$out" mfu)" -v again="$(value "$out" recompute_fraction)" -v first="$first" \
        -v costs="$(value "$work/plan.event" measure_s)" -v wall=$((SECONDS - begin)) 'BEGIN {
        printf "%s: %.0f tok/s, step %.4g s = %.3f of predicted, MFU %.1f %%, recomputed %.1f %%, first loss after %.0f s (costs %.0f), %d s in all\n",
            job, rate, step, step / predicted, 100 * mfu, 100 * again, first, costs, wall}'
}

torch() { # job, then the flags of the peer
    local job=$1 begin=$SECONDS
    shift
    if [[ ! $peer ]]; then
        echo "torch-$job: needs -p PYTHON PEER"
        return
    fi
    timeout "${LIMIT:-900}" "$python" "$peer" --device "$device" "$@" > "$work/peer.out" 2> "$work/peer.err" || true
    if [[ $(value "$work/peer.out" tokens_per_s) == [0-9]* ]]; then
        { about peer "$job" "$*"; printf ',"wall_s":%d,%s\n' $((SECONDS - begin)) "$(tail -n 1 "$work/peer.out" | cut -c 2-)"; } | row
        echo "$job, PyTorch: $(value "$work/peer.out" tokens_per_s) tok/s, $((SECONDS - begin)) s in all"
    else
        cp "$work/peer.err" "$work/torch.err"
        failed "torch-$job" "$*" torch
    fi
}

same_bits() { # job, then the flags: five budgets from unlimited to the least, and the middle one again
    local job=$1 begin=$SECONDS least most share budgets=() hashes=() budget equal=true
    shift
    if ! "$sluice" plan --device "$device" --json "$@" > "$work/$job.out" 2> "$work/$job.err"; then
        failed "$job" "$*" "$job"
        return
    fi
    least=$(value "$work/$job.out" min_device_bytes) most=$(value "$work/$job.out" device_peak_bytes)
    for share in 100 60 30 10 0 30; do
        budgets+=($((least + (most - least) * share / 100)))
    done
    for budget in "${budgets[@]}"; do
        if ! run "$job-${#hashes[@]}" --device "$device" "$@" --device-mem "$budget"; then
            failed "$job" "$* --device-mem $budget" "$job-${#hashes[@]}"
            return
        fi
        hashes+=("$(value "$work/$job-${#hashes[@]}.out" weights_hash)")
        [[ ${hashes[-1]} == "${hashes[0]}" ]] || equal=false
        (($(value "$work/$job-$((${#hashes[@]} - 1)).out" device_peak_bytes) <= budget)) || equal=false
    done
    { about hash "$job" "$*"; printf ',"device_mem":[%s],"weights_hash":[%s],"equal":%s,"wall_s":%d}\n' \
        "$(IFS=,; echo "${budgets[*]}")" "$(printf '"%s",' "${hashes[@]}" | sed 's/,$//')" $equal $((SECONDS - begin)); } | row
    if [[ $equal == true ]]; then
        echo "$job: ${hashes[0]} at five budgets from $most to $least bytes, one of them twice; $((SECONDS - begin)) s in all"
    else
        echo "$job: DIFFERS: ${hashes[*]} at ${budgets[*]} bytes, or a peak is above its budget"
    fi
}

small=(--model small --seqlen 256 --tokens-per-step 1024)
# At the default rate of 3e-4 rounding grows: after 164 steps two orders of summation, both on the GPU, are 3e-4 apart.
curve_job=("${small[@]}" --lr 1e-4)
curve_cpu() { # the CPU's half, in the background
    local precision
    for precision in f32 bf16; do
        run "cpu-$precision" --device cpu "${curve_job[@]}" --precision $precision --steps "$curve_steps" --costs roofline || true
    done
}
curve() {
    local precision begin=$SECONDS bar
    for precision in f32 bf16; do
        run "gpu-$precision" --device "$device" "${curve_job[@]}" --precision $precision --steps "$curve_steps" || true
    done
    [[ ! $cpu_runs ]] || wait "$cpu_runs" || true
    cpu_runs=''
    for precision in f32 bf16; do
        for run in "cpu-$precision" "gpu-$precision"; do
            if [[ ! -s $work/$run.out || $(value "$work/$run.out" weights_hash) == null ]]; then
                failed "curve-$precision" "${curve_job[*]}" "$run"
                continue 2
            fi
        done
        bar=1e-4
        [[ $precision == f32 ]] || bar=1e-2
        paste -d ' ' <(value "$work/cpu-$precision.out" loss | tr -d '[]' | tr , '\n') <(value "$work/gpu-$precision.out" loss | tr -d '[]' | tr , '\n') |
            awk -v bar=$bar '{d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || !(d <= largest)) {largest = d; at = NR}}
                END {printf "\"steps\":%d,\"largest_difference\":%.6g,\"at_step\":%d,\"bar\":%s,\"within\":%s", NR, largest, at, bar, (largest <= bar ? "true" : "false")}' > "$work/curve.row"
        { about curve "curve-$precision" "${curve_job[*]} --precision $precision"; printf ',%s,"cpu_loss":%s,"gpu_loss":%s,"wall_s":%d}\n' \
            "$(cat "$work/curve.row")" "$(value "$work/cpu-$precision.out" loss)" "$(value "$work/gpu-$precision.out" loss)" $((SECONDS - begin)); } > "$work/row"
        row < "$work/row"
        echo "curve-$precision: $(value "$work/row" steps) steps, loss at most $(value "$work/row" largest_difference) from the CPU's (step $(value "$work/row" at_step); $bar wanted); $((SECONDS - begin)) s in all"
    done
}

llama=(--precision bf16 --tokens-per-step "$tokens" --steps "$steps")
both() { # job, flags of sluice, "--", flags of the peer
    local ours=() job=$1
    shift
    while [[ $1 != -- ]]; do ours+=("$1"); shift; done
    speed "$job" "${ours[@]}"
    [[ ! $peer ]] || torch "$job" "${@:2}"
}
peer_8b=(--model llama3-8b --seqlen 8192 --batch 1 --rounds 8 --iters 3) peer_8b_1k=(--model llama3-8b --seqlen 1024 --batch 8 --rounds 8 --iters 3)
peer_1b=(--model llama3-1.5b --seqlen 8192 --batch 4 --rounds 4 --iters 3) peer_small=(--model small --seqlen 256 --batch 4 --rounds 1 --iters 20)

if [[ " ${jobs[*]} " == *" curve "* && ! $before ]]; then
    (
        [[ ! $cores ]] || taskset -pc "$cores" "$BASHPID" > /dev/null
        curve_cpu
    ) &
    cpu_runs=$!
fi
for job in "${jobs[@]}"; do
    order=()
    [[ $job != *-any ]] || order=(--nondeterministic)
    case $job in
    8b-110) both "$job" --model llama3-8b --seqlen 8192 "${llama[@]}" --device-mem 110GiB --host-mem 100GiB -- "${peer_8b[@]}" ;;
    8b-24) speed "$job" --model llama3-8b --seqlen 8192 "${llama[@]}" --device-mem 24GiB --host-mem 100GiB ;;
    8b-12) speed "$job" --model llama3-8b --seqlen 8192 "${llama[@]}" --device-mem 12GiB --host-mem 100GiB ;;
    8b-1k) both "$job" --model llama3-8b --seqlen 1024 "${llama[@]}" --device-mem 78GiB --host-mem 100GiB -- "${peer_8b_1k[@]}" ;;
    8b-64k | 8b-64k-any)
        speed "$job" --model llama3-8b --seqlen 65536 --chunk-tokens 16384 "${llama[@]}" --device-mem 78GiB --host-mem 110GiB "${order[@]}" ;;
    1b) both "$job" --model llama3-1.5b --seqlen 8192 "${llama[@]}" --device-mem 78GiB --host-mem 60GiB -- "${peer_1b[@]}" ;;
    1b-any) speed "$job" --model llama3-1.5b --seqlen 8192 "${llama[@]}" --device-mem 78GiB --host-mem 60GiB "${order[@]}" ;;
    1b-512k) speed "$job" --model llama3-1.5b --seqlen 524288 --tokens-per-step 524288 --precision bf16 --steps 1 --device-mem 110GiB --host-mem 110GiB ;;
    gpt2 | gpt2-any)
        speed "$job" --model gpt2 --precision bf16-master --seqlen 1024 --tokens-per-step 524288 --chunk-tokens 65536 \
            --steps $((2 * steps)) --device-mem 130GiB "${order[@]}" ;;
    small) both "$job" "${small[@]}" --precision bf16 --steps 100 -- "${peer_small[@]}" --eager ;;
    torch-8b-110) torch 8b-110 "${peer_8b[@]}" ;;
    torch-8b-1k) torch 8b-1k "${peer_8b_1k[@]}" ;;
    torch-1b) torch 1b "${peer_1b[@]}" ;;
    torch-small) torch small "${peer_small[@]}" ;;
    torch-small-eager) torch small "${peer_small[@]}" --eager ;;
    hash-1b) same_bits "$job" --model llama3-1.5b --seqlen 8192 --tokens-per-step 16384 --precision bf16 --steps 10 --host-mem 60GiB ;;
    hash-small) same_bits "$job" "${small[@]}" --precision bf16 --steps 10 --host-mem 8GiB ;;
    curve) curve ;;
    *) echo "no job $job"; exit 2 ;;
    esac
done

echo
printf '%-20s %10s %10s %9s %9s %7s %7s %9s %7s\n' job tok/s must 'step s' 'of pred.' 'MFU %' 'rec. %' 'peak GiB' 'wall s'
while read -r line; do
    echo "$line" > "$work/row"
    job=$(value "$work/row" job)
    case $(value "$work/row" kind) in
    run) awk -v job="$job" -v rate="$(value "$work/row" tokens_per_s)" -v must="${must[$job]:--}" -v step="$(value "$work/row" step_s)" \
        -v predicted="$(value "$work/row" predicted_step_s)" -v mfu="$(value "$work/row" mfu)" -v again="$(value "$work/row" recompute_fraction)" \
        -v peak="$(value "$work/row" device_peak_bytes)" -v wall="$(value "$work/row" wall_s)" 'BEGIN {
        printf "%-20s %10.0f %10s %9.4g %9.3f %7.1f %7.1f %9.2f %7d\n", job, rate, must, step, step / predicted, 100 * mfu, 100 * again, peak / 1073741824, wall}' ;;
    peer) awk -v job="torch-$job" -v rate="$(value "$work/row" tokens_per_s)" -v mfu="$(value "$work/row" mfu)" -v peak="$(value "$work/row" peak_gib)" \
        -v wall="$(value "$work/row" wall_s)" 'BEGIN {printf "%-20s %10.0f %10s %9s %9s %7.1f %7s %9s %7d\n", job, rate, "-", "-", "-", 100 * mfu, "-", peak, wall}' ;;
    hash) printf '%-20s %s\n' "$job" "weights equal and peaks within budgets: $(value "$work/row" equal)" ;;
    curve) printf '%-20s %s\n' "$job" "largest loss difference $(value "$work/row" largest_difference), within $(value "$work/row" bar): $(value "$work/row" within)" ;;
    *) printf '%-20s %s\n' "$job" "failed: $(value "$work/row" message)" ;;
    esac
done < "$work/rows"
echo "$SECONDS s; lines added to $results"
! grep -q '"kind":"failed"\|"equal":false\|"within":false' "$work/rows" # speeds are for a reader to assess, these are not
