#!/usr/bin/env bash
# A sweep that is killed again and again comes to the same cells as one that is not, does none of them twice, and never spoils a
# line it has written. Beside that: what does not fit is a row, grids can grow, other options and other files are refused.
set -euo pipefail
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work" || true' EXIT
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }
# Two threads on any machine: each one more takes its workspace of the budgets.
grid=(--model byte-test --seqlen 32 --tokens-per-step 64 --costs roofline --device cpu --threads 2 --device-mem 64KiB,1MiB:3MiB:1MiB
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

# Killed again and again: at once, before the file's first line or behind it, and after each of the next ones. One cell at a time, so
# that there is always something left to kill; where a kill came too late all the same, the sweep begins anew.
kills=0
attempts=0
wanted=(0 0 0 1 2 3 5 7) # whole lines, of the sweep that is killed next
delays=(0 0.02 0.05 0 0 0.01 0 0)
while [ $kills -lt ${#wanted[@]} ]; do
    attempts=$((attempts + 1))
    [ $attempts -le 40 ] || fail "only $kills kills of $attempts came in time"
    cp killed.jsonl before.jsonl 2>/dev/null || : >before.jsonl
    "$SLUICE" sweep "${grid[@]}" --jobs 1 --out killed.jsonl --quiet >/dev/null 2>killed.err &
    run=$!
    sleep ${delays[kills]}
    while [ "$(cat killed.jsonl 2>/dev/null | wc -l)" -lt ${wanted[kills]} ] && kill -0 $run 2>/dev/null; do sleep 0.002; done
    kill -KILL $run 2>/dev/null || true
    code=0; wait $run 2>/dev/null || code=$?
    [ $code = 137 ] || [ $code = 0 ] || fail "a sweep to be killed after ${wanted[kills]} lines ended with $code: $(cat killed.err)"
    # Only whole lines count; those that were there are there still.
    if [ -e killed.jsonl ]; then
        head -c "$(head -n "$(wc -l <before.jsonl)" before.jsonl | wc -c)" killed.jsonl | cmp - <(head -n "$(wc -l <before.jsonl)" before.jsonl) ||
            fail "a kill spoiled lines that were written"
    fi
    if [ $code = 0 ]; then
        cmp <(plain whole.jsonl) <(plain killed.jsonl) || fail "after $kills kills the sweep came to other cells"
        rm killed.jsonl
        continue
    fi
    kills=$((kills + 1))
    # As if a write had been cut, where this kill did not cut one: the first line's, or a cell's behind whole lines.
    if [ -e killed.jsonl ] && [ ! -s killed.jsonl ]; then
        printf '{"event":"swe' >>killed.jsonl
    elif [ -e killed.jsonl ] && [ -z "$(tail -c 1 killed.jsonl)" ]; then
        printf '{"event":"cell","cell":"half a li' >>killed.jsonl
    fi
done
had=$(($(grep -c '"event":"cell".*}$' killed.jsonl || true)))
"$SLUICE" sweep "${grid[@]}" --out killed.jsonl --quiet >end.log
grep -q "; $((cells - had)) done in" end.log || fail "cells were recomputed: $(head -1 end.log), of which $had were there"
cmp <(plain whole.jsonl) <(plain killed.jsonl) || fail "the killed sweep came to other cells"
"$SLUICE" sweep "${grid[@]}" --out killed.jsonl --quiet >again.log
grep -q "; 0 done in" again.log || fail "a finished sweep was recomputed"

# One sweep at a time writes a file. A lock that is gone in a moment, as a killed sweep's is, is waited for.
if command -v flock >/dev/null; then
    exec 9<>killed.jsonl
    flock 9
    "$SLUICE" sweep "${grid[@]}" --out killed.jsonl --quiet 9>&- >again.log &
    sleep 0.2
    flock -u 9
    wait $! || fail "a lock that was there for a moment was not waited for"
    flock 9
    code=0; "$SLUICE" sweep "${grid[@]}" --out killed.jsonl 9>&- >/dev/null 2>err.log || code=$?
    exec 9>&-
    [ $code = 2 ] && grep -q "another sweep" err.log || fail "two sweeps may write one file: exit code $code, $(cat err.log)"
fi

# A larger grid goes into the same file; other options do not.
"$SLUICE" sweep "${grid[@]}" --device-mem 64KiB:1152KiB:64KiB --host-mem 4MiB --out killed.jsonl --quiet >more.log
grep -q "; 16 done in" more.log || fail "the larger grid: $(head -1 more.log)"
code=0; "$SLUICE" sweep "${grid[@]}" --precision bf16 --out killed.jsonl >/dev/null 2>err.log || code=$?
[ $code = 2 ] && grep -q "other options" err.log || fail "a sweep with other options was mixed in"
printf 'precious diary' >diary.txt
code=0; "$SLUICE" sweep "${grid[@]}" --out diary.txt >/dev/null 2>err.log || code=$?
[ $code = 2 ] && [ "$(cat diary.txt)" = 'precious diary' ] || fail "somebody's file was touched"
for wrong in "--device-mem 4GiB:2GiB:1GiB" "--device-mem 1GiB,,2GiB" "--seqlen 0" "--model no-such-model" "--jobs 1000" "--device-mem 1:9999999:1"; do
    code=0; "$SLUICE" sweep "${grid[@]}" $wrong --out wrong.jsonl >/dev/null 2>err.log || code=$?
    [ $code = 2 ] && [ "$(wc -l <err.log)" = 1 ] && grep -q '^sluice: ' err.log || fail "$wrong: exit code $code, $(cat err.log)"
done

# What cannot be written is told before the first cell, with what to do.
code=0; "$SLUICE" sweep "${grid[@]}" --out nodir/s.jsonl >out.log 2>err.log || code=$?
[ $code = 1 ] && grep -q 'cannot write nodir/s.jsonl: no such file or folder; check the path' err.log || fail "--out into no folder: $(cat err.log)"
code=0; "$SLUICE" sweep "${grid[@]}" --out early.jsonl --csv nodir/x.csv >out.log 2>err.log || code=$?
[ $code = 1 ] && grep -q 'cannot write nodir/x.csv: no such file or folder' err.log && [ ! -e early.jsonl ] || fail "--csv into no folder: $(cat err.log)"
code=0; "$SLUICE" sweep "${grid[@]}" --out early.jsonl --csv . >out.log 2>err.log || code=$?
[ $code = 1 ] && grep -q 'it is a folder' err.log && [ ! -e early.jsonl ] || fail "--csv onto a folder: $(cat err.log)"
"$SLUICE" sweep "${grid[@]}" --device-mem 3MiB --host-mem 32MiB --out one.jsonl --quiet >one.log
grep -q '^1 cell: ' one.log || fail "one cell: $(head -1 one.log)"

# Measured instead of planned.
"$SLUICE" sweep --run --model byte-test --data "$SLUICE_SOURCE/README.md" --seqlen 32 --tokens-per-step 64 --steps 3 --costs roofline \
    --threads 2 --device-mem 300KiB,8MiB --out run.jsonl --quiet >/dev/null
[ "$(grep -c '"feasible":true.*"predicted_step_s"' run.jsonl)" = 1 ] || fail "the run's cells: $(cat run.jsonl)"
[ "$(grep -c '"feasible":false' run.jsonl)" = 1 ] || fail "the run's cell that does not fit"

# Models whose paths begin alike are cells of their own.
long=$(printf 'a%.0s' {1..70})
"$SLUICE" init --model byte-test --out "$long-1" >/dev/null
"$SLUICE" init --model byte-nano --out "$long-2" >/dev/null
"$SLUICE" sweep --model "$long-1,$long-2" --seqlen 32 --tokens-per-step 64 --costs roofline --threads 2 --out long.jsonl --quiet >long.log
"$SLUICE" sweep --model "$long-1,$long-2" --seqlen 32 --tokens-per-step 64 --costs roofline --threads 2 --out long.jsonl --quiet --csv long.csv >again.log
grep -q "; 0 done in" again.log && [ "$(wc -l <long.csv)" = 3 ] || fail "two models with long names: $(cat long.jsonl)"

# A cell that failed is recomputed, and counts as it came out last; one that does not fit is not.
sed -E '0,/"feasible":true/s/"feasible":true.*"seconds":/"feasible":false,"seconds":/' whole.jsonl | sed -E '/"feasible":false,"seconds":/s/\}$/,"error":"exit code 1"}/' >failed.jsonl
[ "$(grep -c '"error":"exit code 1"' failed.jsonl)" = 1 ] || fail "no cell was made to fail"
"$SLUICE" sweep "${grid[@]}" --out failed.jsonl --csv failed.csv --quiet >failed.log
grep -q "; 1 done in" failed.log || fail "a failed cell is not recomputed: $(head -1 failed.log)"
cmp <(grep -o '^.*: .* do not' whole.log) <(grep -o '^.*: .* do not' failed.log) || fail "the failed cell is still counted: $(head -1 failed.log)"
[ "$(wc -l <failed.csv)" = $((cells + 1)) ] && ! grep -q "exit code 1" failed.csv || fail "the failed cell is still shown"

# The sweep's own process loads no plugin: what it forks could not use a GPU that was found before.
if command -v cc >/dev/null; then
    mkdir plugin
    cat >plugin/plugin.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
    FILE *file = fopen(getenv("LOADED_BY"), "a");
    if (file) {
        fprintf(file, "%d\n", (int) getpid());
        fclose(file);
    }
}
END
    cc -shared -fPIC -o plugin/libsluice_cuda.so plugin/plugin.c
    SLUICE_PLUGINS=$PWD/plugin LOADED_BY=$PWD/loaded "$SLUICE" sweep --model byte-test --seqlen 32 --tokens-per-step 64 --costs roofline \
        --threads 2 --out plugin.jsonl --quiet >/dev/null 2>plugin.err &
    run=$!
    wait $run || fail "with a plugin that is none: $(cat plugin.err)"
    [ -s loaded ] || fail "the plugin was not looked at"
    ! grep -qx $run loaded || fail "the sweep loaded the plugin before it forked"
fi
echo "sweep: $cells cells, $kills kills, ok"
