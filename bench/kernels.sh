#!/bin/bash
# CPU kernels against the speed of memory: bench/kernels.sh [THREADS [PART OF A NAME]]. CC: the compiler.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
cmake -S "$root" -B "$work" >/dev/null
cmake --build "$work" --target sluice_static -j"$(nproc)" >/dev/null
${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O2 -I"$root/include" -I"$root/src" "$root/bench/kernels.c" "$work/libsluice.a" -o "$work/kernels" \
    -lpthread -lm -ldl
"$work/kernels" "$@"
