#!/bin/bash
# The CUDA device's own logic without a GPU: its files with a stand-in for CUDA (stand_in_cuda.c). A step issued plainly, captured and
# replayed, and one command at a time gives the same bits; errors that come late, errors of calls and errors in a capture name what
# they can and leave the last checkpoint intact; looking for a NaN does not disturb what was captured.
set -uo pipefail
source=${SLUICE_SOURCE:?source folder}
build=${SLUICE_BUILD:?build folder}
sluice=$(realpath "${SLUICE:?path of the sluice program}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-cuda-XXXXXX")
trap 'rm -rf "$dir"' EXIT
headers=''
for each in ${CUDA_HOME:+"$CUDA_HOME/include"} "$(dirname "$(dirname "$(command -v nvcc || echo /nowhere/bin/nvcc)")")/include" /usr/local/cuda/include /usr/include; do
    if [ -e "$each/cublasLt.h" ] && [ -e "$each/cudnn.h" ] && [ -z "$headers" ]; then headers=$each; fi
done
command -v cc > /dev/null && [ -n "$headers" ] || { echo "skipped: no CUDA headers, or no compiler"; exit 77; }
[ -x "$sluice" ] || { echo "skipped: $sluice is not built"; exit 77; }
# Not grep -q: nm would die of the closed pipe, and that would be the answer.
if nm "$sluice" 2> /dev/null | grep __asan_init > /dev/null; then echo "skipped: the stand-in is for programs without sanitizers"; exit 77; fi
cuda=$source/src/device/cuda
cc -std=gnu17 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-format-truncation -shared -fPIC -fvisibility=hidden -I"$source/src" -I"$source/include" -isystem "$headers" \
    -o "$dir/libsluice_cuda.so" "$source/tests/device/stand_in_cuda.c" "$cuda"/{runtime/{device,open,nvtx},gemm/choices}.c -lpthread -ldl || exit 1
export SLUICE_PLUGINS=$dir XDG_CACHE_HOME=$dir/cache
mkdir "$dir/data"
cp "$source"/src/core/*.h "$dir/data"
failures=0
fail() { echo "$*"; failures=$((failures + 1)); }
train() { # name, flags
    "$sluice" train --device cuda --model byte-test --data "$dir/data" --seqlen 32 --tokens-per-step 64 --chunk-tokens 32 --costs roofline --threads 2 \
        --precision bf16 --json --out "$dir/$1" "${@:2}" > "$dir/$1.out" 2> "$dir/$1.err"
}
hash_of() { tail -n 1 "$dir/$1.out" | sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p'; }

# Three ways to run a step.
train replayed --steps 5 || fail "replayed: $(tail -n 1 "$dir/replayed.err")"
STAND_IN=late train late --steps 5 || fail "late: $(tail -n 1 "$dir/late.err")"
SLUICE_CUDA_SYNC=1 train single --steps 5 || fail "single: $(tail -n 1 "$dir/single.err")"
[[ $(hash_of replayed) && $(hash_of replayed) == "$(hash_of late)" && $(hash_of replayed) == "$(hash_of single)" ]] ||
    fail "weights: $(hash_of replayed) replayed, $(hash_of late) late, $(hash_of single) one command at a time"
[[ $(grep -c "a capture" "$dir/replayed.err") == 1 && $(grep -c "a replay" "$dir/replayed.err") == 3 ]] || fail "replayed: not captured once and replayed since"
STAND_IN=full train full --steps 5 --tokens-per-step 1024 || fail "full: $(tail -n 1 "$dir/full.err")" # hundreds of commands more than wait
! grep -q "a capture" "$dir/late.err" "$dir/single.err" "$dir/full.err" || fail "captured where it must not be"

# The arena is touched while costs are measured, or found on file, and is what it would have been.
train ahead --steps 5 --costs measured --verbose --device-mem 64MiB --host-mem 64MiB || fail "ahead: $(tail -n 1 "$dir/ahead.err")"
train known --steps 5 --costs measured --verbose --device-mem 64MiB --host-mem 64MiB || fail "known: $(tail -n 1 "$dir/known.err")"
for run in ahead known; do
    grep -q "of host memory are touched while costs are measured" "$dir/$run.err" || fail "$run: nothing was touched ahead"
done
[[ $(hash_of ahead) == "$(hash_of replayed)" && $(hash_of known) == "$(hash_of replayed)" ]] || fail "ahead, known: other weights"

# Links that are not what the file says are measured again. (The stand-in's copies take no time.)
sed -i '/links beside compute/ s/\[[^]]*\]/[1e9,1e9,1e9,1e9,1e-6,0,0]/' "$dir/cache/sluice/costs.json"
train links --steps 5 --costs measured --verbose --device-mem 64MiB --host-mem 64MiB || fail "links: $(tail -n 1 "$dir/links.err")"
grep -q "measured links no longer hold (copies in: 1 GB/s on file" "$dir/links.err" || fail "links: taken from the file"
[[ $(hash_of links) == "$(hash_of replayed)" ]] || fail "links: other weights"

# A library that refuses: in a plain step, and in the one that is captured (the third; a step has about 30 products).
for nth in 5 75; do
    STAND_IN_FAIL=matmul:$nth train "refused-$nth" --steps 5 --checkpoint-every 1 && fail "refused-$nth: was not"
    said=$(tail -n 1 "$dir/refused-$nth.err")
    [[ $said == *": task layers."*", which reads "*", and writes "*": matmul bf16["*"] -> bf16["*"]: cublasLtStandIn: CUBLAS_STATUS_NOT_SUPPORTED; "* ]] ||
        fail "refused-$nth: \"$said\""
    train "refused-$nth" --steps 5 --resume || fail "refused-$nth, resumed: $(tail -n 1 "$dir/refused-$nth.err")"
    [[ $(hash_of "refused-$nth") == "$(hash_of replayed)" ]] || fail "refused-$nth, resumed: other weights"
done
grep -q "a capture" "$dir/refused-75.err" || fail "the 75th product is not in a captured step"

# A GPU that dies of a wrong address, at once and late.
for mode in eager late; do
    STAND_IN=$mode SLUICE_TEST_DEVICE=cuda "$build/tests/test_device_error" on_a_gpu > "$dir/error.out" 2>&1 || { fail "errors, $mode:"; tail -n 12 "$dir/error.out"; }
done
grep -q "issued when this or an earlier command of the step had failed, SLUICE_CUDA_SYNC=1 tells which: " "$dir/error.out" ||
    fail "late: the message does not say that an earlier command may be the cause"

# A NaN: the step is run again command by command.
train nan --steps 5 --lr 1e10 --warmup 0 --schedule constant && fail "nan: there was none"
[[ $(tail -n 1 "$dir/nan.err") == *"is not finite"*": task "* ]] || fail "nan: $(tail -n 1 "$dir/nan.err")"

# The example's budget fits a GPU, and is one.
example() { # flags
    (cd "$source" && "$sluice" plan --config examples/first-run.json --device cuda --json "$@") > "$dir/example.out" 2> "$dir/example.err" || return 1
    figure() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/example.out"; }
    budget=$(figure device_budget_bytes) unlimited=$(figure device_unlimited_bytes) peak=$(figure device_peak_bytes)
    [[ $budget && $unlimited && $peak ]] && ((peak <= budget && budget < unlimited / 10 * 7))
}
for costs in roofline measured; do
    example --costs $costs || fail "the example, costs $costs: $budget of $unlimited bytes, $(tail -n 1 "$dir/example.err")"
done

echo "$failures failures"
exit $((failures > 0))
