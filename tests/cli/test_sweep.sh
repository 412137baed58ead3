#!/usr/bin/env bash
# A sweep that is killed again and again comes to the same cells as one that is not, does none of them twice, and never spoils a
# line it has written. Beside that: what does not fit is a row, grids can grow, other options and other files are refused.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }
grid=(--model byte-test --seqlen 32 --tokens-per-step 64 --costs roofline --device cpu --device-mem 64KiB,1MiB:3MiB:1MiB
    --host-mem 4MiB,32MiB,unlimited)
cells=12

# What a cell is, without when and how long.
plain() { grep '"event":"cell"' "$1" | sed -E 's/"t":[^,]*,//; s/"seconds":[^,}]*//' | sort; }

"$SLUICE" sweep "${grid[@]}" --out whole.jsonl --csv whole.csv --quiet >whole.log
[ "$(grep -c '"event":"cell"' whole.jsonl)" = $cells ] || fail "not $cells cells"
grep -q "^$cells cells: " whole.log || fail "the end does not tell the cells"
grep -q '"feasible":false.*"min_device_bytes":' whole.jsonl || fail "no cell that does not fit"
grep -q '"feasible":true.*"tokens_per_s":[1-9]' whole.jsonl || fail "no cell that fits"
[ "$(wc -l <whole.csv)" = $((cells + 1)) ] || fail "the CSV has not a line for each cell"

# Killed at any moment: before the file is there, before its first line, and after each of the next ones.
kills=0
for lines in 0 0 0 1 2 3 5 7; do
    cp killed.jsonl before.jsonl 2>/dev/null || : >before.jsonl
    "$SLUICE" sweep "${grid[@]}" --out killed.jsonl --quiet >/dev/null &
    run=$!
    sleep 0.0$((RANDOM % 10))
    while [ "$(cat killed.jsonl 2>/dev/null | wc -l)" -lt $lines ] && kill -0 $run 2>/dev/null; do sleep 0.002; done
    kill -KILL $run 2>/dev/null || true
    code=0; wait $run 2>/dev/null || code=$?
    [ $code = 137 ] && kills=$((kills + 1))
    [ $code = 137 ] || [ $code = 0 ] || fail "a sweep of $lines lines and more ended with $code"
    [ -e killed.jsonl ] || continue
    # Only whole lines count; those that were there are there still.
    head -c "$(head -n "$(wc -l <before.jsonl)" before.jsonl | wc -c)" killed.jsonl | cmp - <(head -n "$(wc -l <before.jsonl)" before.jsonl) ||
        fail "a kill spoiled lines that were written"
    # As if a write had been cut, where this kill did not cut one: the first line's, or a cell's behind whole lines.
    if [ ! -s killed.jsonl ]; then
        printf '{"event":"swe' >>killed.jsonl
    elif [ -z "$(tail -c 1 killed.jsonl)" ]; then
        printf '{"event":"cell","cell":"half a li' >>killed.jsonl
    fi
done
[ $kills -ge 3 ] || fail "only $kills kills came in time"
had=$(($(grep -c '"event":"cell".*}$' killed.jsonl || true)))
"$SLUICE" sweep "${grid[@]}" --out killed.jsonl --quiet >end.log
grep -q "; $((cells - had)) done in" end.log || fail "cells were done again: $(head -1 end.log), of which $had were there"
cmp <(plain whole.jsonl) <(plain killed.jsonl) || fail "the killed sweep came to other cells"
"$SLUICE" sweep "${grid[@]}" --out killed.jsonl --quiet >again.log
grep -q "; 0 done in" again.log || fail "a finished sweep was done again"

# A larger grid goes into the same file; other options do not.
"$SLUICE" sweep "${grid[@]}" --device-mem 64KiB:1152KiB:64KiB --host-mem 4MiB --out killed.jsonl --quiet >more.log
grep -q "; 16 done in" more.log || fail "the larger grid: $(head -1 more.log)"
code=0; "$SLUICE" sweep "${grid[@]}" --precision bf16 --out killed.jsonl >/dev/null 2>err.log || code=$?
[ $code = 2 ] && grep -q "other options" err.log || fail "a sweep with other options was mixed in"
printf 'dear diary' >diary.txt
code=0; "$SLUICE" sweep "${grid[@]}" --out diary.txt >/dev/null 2>err.log || code=$?
[ $code = 2 ] && [ "$(cat diary.txt)" = 'dear diary' ] || fail "somebody's file was touched"
for wrong in "--device-mem 4GiB:2GiB:1GiB" "--device-mem 1GiB,,2GiB" "--seqlen 0" "--model no-such-model" "--jobs 1000" "--device-mem 1:9999999:1"; do
    code=0; "$SLUICE" sweep "${grid[@]}" $wrong --out wrong.jsonl >/dev/null 2>err.log || code=$?
    [ $code = 2 ] && [ "$(wc -l <err.log)" = 1 ] && grep -q '^sluice: ' err.log || fail "$wrong: exit code $code, $(cat err.log)"
done

# Measured instead of planned.
"$SLUICE" sweep --run --model byte-test --data "$SLUICE_SOURCE/README.md" --seqlen 32 --tokens-per-step 64 --steps 3 --costs roofline \
    --device-mem 300KiB,8MiB --out run.jsonl --quiet >/dev/null
[ "$(grep -c '"feasible":true.*"predicted_step_s"' run.jsonl)" = 1 ] || fail "the run's cells: $(cat run.jsonl)"
[ "$(grep -c '"feasible":false' run.jsonl)" = 1 ] || fail "the run's cell that does not fit"
echo "sweep: $cells cells, $kills kills, ok"
