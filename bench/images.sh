#!/bin/bash
# Images to normalized tensors on one thread, next to torchvision, in one run.
#   bench/images.sh [arguments of peers/images_torch.py]        PYTHON: an interpreter with torchvision; CC: the compiler
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=gnu17 -D_GNU_SOURCE -O2 -g -ffp-contract=off -fno-math-errno -DSL_HAVE_JPEG -DSL_HAVE_PNG -DSL_HAVE_AVX2 -I$root/include -I$root/src"
cd "$work"
for source in "$root"/src/core/*.c "$root"/src/image/*.c "$root/bench/images.c"; do
    case $source in *_avx2.c) isa="-mavx2 -mfma -mf16c" ;; *) isa= ;; esac
    # shellcheck disable=SC2086
    ${CC:-cc} $flags $isa -c "$source" -o "$(basename "$source" .c).o"
done
${CC:-cc} -o images ./*.o -ljpeg -lpng -lm -lpthread
"${PYTHON:-python3}" "$root/bench/peers/images_torch.py" --program "$work/images" "$@"
