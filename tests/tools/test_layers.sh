#!/usr/bin/env bash
# Nothing includes upward, and the tool that says so can say no.
set -euo pipefail
sh "$SLUICE_SOURCE/tools/check-layers"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tools"
cp "$SLUICE_SOURCE/tools/check-layers" "$dir/tools/"

put() { # file line
    rm -rf "$dir/src"
    mkdir -p "$dir/$(dirname "$1")"
    for table in ops/ops.def optim/optimizers.def model/families.def device/devices.def; do
        mkdir -p "$dir/src/${table%/*}"
        cp "$SLUICE_SOURCE/src/$table" "$dir/src/$table"
    done
    printf '%s\n#include <stdio.h>\n' "$2" >"$dir/$1"
}
refuses() { # file line
    put "$1" "$2"
    if sh "$dir/tools/check-layers" >/dev/null; then
        echo "$1 may contain $2"
        exit 1
    fi
}
allows() {
    put "$1" "$2"
    sh "$dir/tools/check-layers" >/dev/null || { echo "$1 may not contain $2"; exit 1; }
}
include() { echo "#include \"$1\""; }
refuses src/core/a.c "$(include device/device.h)"
refuses src/plan/a.c "$(include engine/engine.h)"
refuses src/model/a.c "$(include plan/plan.h)"
refuses src/data/a.c "$(include ops/op.h)"
refuses src/engine/a.c "$(include device/cpu/kernel.h)"
refuses src/engine/a.c "$(include device/another/kernel.h)"
refuses src/engine/a.c "$(include engine.h)"
refuses src/surprise/a.c "$(include core/mem.h)"
allows src/core/a.c "$(include sluice/sluice.h)"
allows src/engine/a.c "$(include device/device.h)"
allows src/device/cpu/a.c "$(include device/cpu/kernel.h)"
allows src/model/a.c "$(include graph/graph.h)"
allows src/cli/a.c "$(include train/job.h)"

# Generic layers name nothing of a table: each kind of name, in each of the layers.
for layer in graph program cost plan engine report; do
    refuses src/$layer/a.c 'int a = SL_OP_MATMUL;'
    refuses src/$layer/a.c "$(include ops/attention.h)"
done
refuses src/plan/a.c 'int a = SL_OP_ADAMW;' # an optimizer's update is an op
refuses src/plan/a.c 'const void *a = &sl_op_rmsnorm_bwd;'
refuses src/plan/a.c 'int a = SL_OPTIMIZER_SGD;'
refuses src/plan/a.c 'const void *a = &sl_optimizer_adamw;'
refuses src/plan/a.c 'const void *a = sl_attention_attrs(b);'
refuses src/cost/a.c 'const void *a = &sl_family_llama;'
refuses src/cost/a.c 'int a = equal(b, "gpt2");'
refuses src/cost/a.c '/* closed */ int a = equal(b, "cuda");'
refuses src/cost/a.c 'int a = device.sim;'
refuses src/report/a.c 'int a = equal(b, "matmul");'
refuses src/program/a.c "$(include optim/element.h)"
allows src/plan/a.c "$(include ops/op.h)"
allows src/program/a.c "$(include optim/optimizer.h)"
allows src/plan/a.c 'const void *a = sl_op(id), *b = sl_op_of_role(SL_ROLE_ADD); /* SL_OP_MATMUL, cpu */'
allows src/plan/a.c 'int a = SL_OP_COUNT, simulate, cpus; const char *b = "on the cpu";'
allows src/model/a.c 'int a = SL_OP_MATMUL;'
allows src/device/a.c 'int a = SL_OP_MATMUL;'
echo ok
