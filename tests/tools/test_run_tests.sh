#!/usr/bin/env bash
# tools/run-tests on a folder of four small tests: what fails it, and which skips CI accepts.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >CTestTestfile.cmake <<'C'
add_test(passes true)
add_test(gpu sh -c "echo 'skipped: no GPU: none found'; exit 77")
add_test(browser sh -c "echo 'skipped: no chromium'; exit 77")
add_test(silent sh -c "exit 77")
add_test(fails sh -c "echo broken; exit 1")
set_tests_properties(gpu PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(browser PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(silent PROPERTIES SKIP_RETURN_CODE 77)
C

expect() { # CI, exit status, regex of tests, what the output has...
    local ci=$1 status=$2 got=0
    CI=$ci sh "$SLUICE_SOURCE/tools/run-tests" . -R "$3" >out 2>&1 || got=$?
    [ $((got != 0)) = "$status" ] || { cat out; echo "CI=$ci, $3: exit status $got"; exit 1; }
    shift 3
    for part; do grep -qF "$part" out || { cat out; echo "the output is without: $part"; exit 1; }; done
}
for ci in '' true; do
    expect "$ci" 0 '^passes$' "tests: 1 passed, 0 failed, 0 skipped"
    expect "$ci" 0 '^(passes|gpu)$' "skipped: gpu: no GPU: none found" "tests: 1 passed, 0 failed, 1 skipped"
    expect "$ci" 1 '^(passes|fails)$' "broken" "tests: 1 passed, 1 failed, 0 skipped"
    expect "$ci" 1 '^nothing$'
done
expect '' 0 '^(passes|browser|silent)$' "skipped: browser: no chromium" "skipped: silent: no reason given"
expect true 1 '^(passes|browser)$' "skipped: browser: no chromium" "CI skips nothing but"
expect true 1 '^(passes|silent)$' "CI skips nothing but"
echo ok
