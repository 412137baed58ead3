#!/usr/bin/env bash
# tools/test-gpu must fail where there is an NVIDIA GPU that Sluice cannot use, and pass, saying so, where there is none.
set -u
script=${SLUICE_SOURCE:?source folder}/tools/test-gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\necho "sluice: the plugin is broken" >&2\nexit 1\n' > "$work/sluice" && chmod +x "$work/sluice"
export SLUICE_PLUGINS=$work

if SLUICE_TEST_EXPECT_CUDA=1 bash "$script" --build "$work" > "$work/log" 2>&1; then
    echo "passed although no check could run:"
    cat "$work/log"
    exit 1
fi
grep -q '^FAILED: .*the plugin is broken' "$work/log" || { echo "the message does not give the cause:"; cat "$work/log"; exit 1; }
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
    bash "$script" --build "$work" > "$work/log" 2>&1 || { echo "failed without a GPU:"; cat "$work/log"; exit 1; }
    grep -q '^skipped: ' "$work/log" || { echo "did not say that it checked nothing:"; cat "$work/log"; exit 1; }
fi
echo "1 passed, 0 failed"
