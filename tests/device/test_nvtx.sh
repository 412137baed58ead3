#!/bin/bash
# Scopes as NVTX ranges: a library that stands in for a profiler sees the domain, the nested names and the closings; without one
# nobody looks, unless SLUICE_NVTX=1. Needs a compiler and the CUDA headers, but no GPU.
set -euo pipefail
source=${SLUICE_SOURCE:?source folder}
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-nvtx-XXXXXX")
trap 'rm -rf "$dir"' EXIT
headers=''
for each in ${CUDA_HOME:+"$CUDA_HOME/include"} "$(dirname "$(dirname "$(command -v nvcc || echo /nowhere/bin/nvcc)")")/include" /usr/local/cuda/include /usr/include; do
    if [ -e "$each/nvtx3/nvToolsExt.h" ] && [ -z "$headers" ]; then headers=$each; fi
done
command -v cc > /dev/null && [ -n "$headers" ] || { echo "skipped: no CUDA headers (nvtx3/nvToolsExt.h), or no compiler"; exit 77; }

cat > "$dir/profiler.c" << 'C'
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
static nvtxDomainHandle_t create(const char *name) { printf("domain %s\n", name); return (nvtxDomainHandle_t) 1; }
static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) { printf("open %d %s\n", domain != 0, a->message.ascii); return 0; }
static int pop(nvtxDomainHandle_t domain) { printf("close %d\n", domain != 0); return 0; }
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table)
{
    const NvtxExportTableCallbacks *callbacks = table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable core;
    unsigned size;
    callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core, &size);
    *core[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer) create;
    *core[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer) push;
    *core[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer) pop;
    return 1;
}
C
cat > "$dir/step.c" << 'C'
#include <stdio.h>
#include "device/cuda/runtime/nvtx.h"
int main(void)
{
    bool looks = sl_cuda_scope(NULL, SL_SCOPE_STEP, "Step 1");
    if (looks) {
        sl_cuda_scope(NULL, SL_SCOPE_OP, "Op matmul");
        sl_cuda_scope(NULL, SL_SCOPE_OP, NULL);
        sl_cuda_scope(NULL, SL_SCOPE_STEP, NULL);
    }
    printf("%s\n", looks ? "looks" : "nobody looks");
    return 0;
}
C
cc -w -shared -fPIC -I"$headers" -o "$dir/profiler.so" "$dir/profiler.c"
cc -w -D_GNU_SOURCE -I"$source/src" -I"$source/include" -I"$headers" -o "$dir/step" "$dir/step.c" "$source/src/device/cuda/runtime/nvtx.c" -ldl -lpthread
failures=0
expect() { # what, wanted output, got
    [ "$3" = "$2" ] || { echo "$1: got \"$3\", not \"$2\""; failures=$((failures + 1)); }
}
seen=$'domain sluice\nopen 1 Step 1\nopen 1 Op matmul\nclose 1\nclose 1\nlooks'
unset SLUICE_NVTX NVTX_INJECTION64_PATH
expect "no profiler" "nobody looks" "$("$dir/step")"
expect "no profiler, asked for" "looks" "$(SLUICE_NVTX=1 "$dir/step")"
expect "a profiler" "$seen" "$(NVTX_INJECTION64_PATH=$dir/profiler.so "$dir/step")"
expect "a profiler, refused" "nobody looks" "$(SLUICE_NVTX=0 NVTX_INJECTION64_PATH=$dir/profiler.so "$dir/step")"
echo "4 cases, $failures failures"
exit $((failures > 0))
