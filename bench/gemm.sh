#!/bin/bash
# Matrix products against PyTorch, and against OpenBLAS and oneDNN where they are installed, in one run.
#   bench/gemm.sh [arguments of peers/gemm_torch.py]        PYTHON: an interpreter with torch; CC: the compiler
# GEMM_FLAGS: for the compiler, to try other blockings, as -DKC=512 -DTILE_ROWS=128 for AMX (gemm_amx.c).
# OpenBLAS is looked for at run time (GEMM_OPENBLAS: its path), oneDNN at compile time (DNNL: a prefix with include/ and lib/).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}
flags="-std=gnu17 -D_GNU_SOURCE -O2 -g -ffp-contract=off -fno-math-errno -I$root/include -I$root/src ${GEMM_FLAGS:-}"
avx2="-mavx2 -mfma -mf16c"
avx512="$avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq"
amx="$avx512 -mamx-tile -mamx-bf16"
dnnl=()
if [ -n "${DNNL:-}" ]; then
    lib=$(dirname "$(find "$DNNL" -name libdnnl.so | head -1)")
    dnnl=(-I"$DNNL/include" -L"$lib" -ldnnl -Wl,-rpath,"$lib")
    export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
elif echo '#include <dnnl.h>' | $cc -E - >/dev/null 2>&1; then
    dnnl=(-ldnnl)
fi
cd "$work"
for source in core/status core/log core/mem core/text core/fault core/clock core/pool device/cpu/gemm/gemm; do
    $cc $flags -c "$root/src/$source.c"
done
vector() { $cc $flags -DSL_ISA="$1" -DSL_ISA_ID="SL_ISA_${1^^}" $2 -c "$root/src/device/cpu/gemm/gemm_vector.c" -o "gemm_$1.o"; }
vector avx2 "$avx2"
vector avx512 "$avx512"
$cc $flags $amx -c "$root/src/device/cpu/gemm/gemm_amx.c"
$cc $flags -DGEMM_AMX "$root/bench/gemm.c" ./*.o -o gemm "${dnnl[@]}" -lpthread -lm -ldl
"${PYTHON:-python3}" "$root/bench/peers/gemm_torch.py" ./gemm "$@"
