#!/bin/bash
# Tests with a GPU part fail, with the plugin's own message, where a GPU is expected and cannot be used; elsewhere they skip that part.
set -uo pipefail
build=${SLUICE_BUILD:?build folder}
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-expected-XXXXXX")
trap 'rm -rf "$dir"' EXIT
mkdir "$dir"/{none,text}
echo "no library" > "$dir/text/libsluice_cuda.so"
unset SLUICE_TEST_DEVICE
failures=0 cases=0
try() { # folder of plugins, expected or not, exit codes that are right, a pattern in the output, program, argument
    local code=0 said
    [ -x "$build/tests/$5" ] || { echo "skipped: $5 is not built"; exit 77; }
    said=$(SLUICE_PLUGINS=$dir/$1 SLUICE_TEST_EXPECT_CUDA=$2 "$build/tests/$5" "${@:6}" 2>&1) || code=$?
    cases=$((cases + 1))
    [[ " $3 " == *" $code "* && $said == *$4* ]] ||
        { echo "$5, plugin $1, expected $2: exit code $code, not $3, or without \"$4\": $said"; failures=$((failures + 1)); }
}
for each in "test_conformance cast" "test_cuda_attention" "test_golden_devices on_a_gpu" "test_device_error on_a_gpu_too"; do
    # shellcheck disable=SC2086
    {
        try none 1 "1" "expected but cannot be used: *was not built" $each
        try text 1 "1" "expected but cannot be used: *does not load: $dir" $each
        try none 0 "0 77" "was not built" $each
    }
done
echo "$cases cases, $failures failures"
exit $((failures > 0))
