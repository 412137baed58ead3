#!/bin/bash
# A run killed with SIGKILL at random moments and resumed each time ends with the weights of the uninterrupted run, also when
# every resume has another device budget and thread count. KILLS=20 for the full bar; a few by default, for ctest.
set -euo pipefail
export LC_ALL=C
sluice=${SLUICE:?path of the sluice program}
source=${SLUICE_SOURCE:?source folder}
kills=${KILLS:-4}
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-kill-XXXXXX")
trap 'rm -rf "$dir" || true' EXIT
export XDG_CACHE_HOME=$dir/cache
[ -x "$sluice" ] || { echo "skipped: $sluice is not built"; exit 77; }

cp -r "$source/src/core" "$dir/data"
steps=${STEPS:-40}
job=(--model byte-test --data "$dir/data" --seqlen 64 --tokens-per-step 512 --steps "$steps" --lr 1e-3 --costs roofline
     --precision "${PRECISION:-bf16}" --checkpoint-every 4 --keep 2)
hash_of() { tail -n 1 "$1" | sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p'; }
number_of() { sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" <<<"$1"; }

"$sluice" train "${job[@]}" --out "$dir/whole" --json >"$dir/whole.log"
want=$(hash_of "$dir/whole.log")
[ -n "$want" ] || { echo "the uninterrupted run printed no weights_hash"; tail -n 5 "$dir/whole.log"; exit 1; }
plan=$("$sluice" plan "${job[@]}" --threads 2 --json | tail -n 1)
least=$(number_of "$plan" min_device_bytes)
most=$(number_of "$plan" device_peak_bytes)

# A kill comes when the run has logged so many steps more, and a moment later: the log says how far a run is on a machine of any speed.
# Up to eight steps at a time, so that four kills come before the end.
logged() { grep -c '"event":"step"' "$dir/part/events.jsonl" 2>/dev/null || true; }
RANDOM=${SEED:-1}
killed=0
attempts=0
while true; do
    attempts=$((attempts + 1))
    [ "$attempts" -le $((kills * 10)) ] || { echo "no end after $attempts attempts"; exit 1; }
    budget=$((least + (most - least) * (RANDOM % 5) / 4))
    target=$(($(logged) + RANDOM % 9))
    "$sluice" train "${job[@]}" --out "$dir/part" --resume --device-mem "$budget" --threads $((1 + RANDOM % 2)) --json \
        >"$dir/part.log" 2>"$dir/part.err" &
    run=$!
    if [ "$killed" -lt "$kills" ]; then
        while [ $(($(logged))) -lt "$target" ] && kill -0 "$run" 2>/dev/null; do sleep 0.005; done
        sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
        kill -9 "$run" 2>/dev/null || true
    fi
    code=0
    wait "$run" 2>/dev/null || code=$?
    if [ "$code" = 137 ]; then
        killed=$((killed + 1))
        continue
    fi
    [ "$code" = 0 ] || { echo "after $killed kills the run ended with $code"; cat "$dir/part.err"; exit 1; }
    [ "$killed" -lt "$kills" ] || break
    # It had ended before the signal came: set it back, and go on killing.
    got=$(hash_of "$dir/part.log")
    [ "$got" = "$want" ] || { echo "after $killed kills the weights are $got, not $want"; exit 1; }
    rm -rf "$dir/part"
done
got=$(hash_of "$dir/part.log")
[ "$got" = "$want" ] || { echo "after $killed kills the weights are $got, not $want"; exit 1; }
[ -z "$(find "$dir/part/checkpoints" -name '*.tmp')" ] || { echo "leftovers of killed writers remain"; exit 1; }
echo "$killed kills, $attempts attempts: weights $got as in the uninterrupted run"
