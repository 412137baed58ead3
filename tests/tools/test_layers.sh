#!/usr/bin/env bash
# Nothing includes upward, and the tool that says so can say no.
set -euo pipefail
sh "$SLUICE_SOURCE/tools/check-layers"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tools"
cp "$SLUICE_SOURCE/tools/check-layers" "$dir/tools/"

refuses() { # file include
    rm -rf "$dir/src"
    mkdir -p "$dir/$(dirname "$1")"
    printf '#include "%s"\n' "$2" >"$dir/$1"
    if sh "$dir/tools/check-layers" >/dev/null; then
        echo "$1 may include $2"
        exit 1
    fi
}
allows() {
    rm -rf "$dir/src"
    mkdir -p "$dir/$(dirname "$1")"
    printf '#include "%s"\n#include <stdio.h>\n' "$2" >"$dir/$1"
    sh "$dir/tools/check-layers" >/dev/null || { echo "$1 may not include $2"; exit 1; }
}
refuses src/core/a.c device/device.h
refuses src/plan/a.c engine/engine.h
refuses src/model/a.c plan/plan.h
refuses src/data/a.c ops/op.h
refuses src/engine/a.c device/cpu/kernel.h
refuses src/engine/a.c engine.h
refuses src/surprise/a.c core/mem.h
allows src/core/a.c sluice/sluice.h
allows src/engine/a.c device/device.h
allows src/device/cpu/a.c device/cpu/kernel.h
allows src/model/a.c graph/graph.h
allows src/cli/a.c train/job.h
echo ok
