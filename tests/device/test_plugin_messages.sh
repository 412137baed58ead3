#!/bin/bash
# Why the GPU is not used: one sentence each for no plugin, one that does not load, one that is none, no driver, a driver that is too
# old, a GPU that is not there. What can be put right is said unasked when the CPU steps in; that there is no GPU only to those who ask.
set -uo pipefail
sluice=${SLUICE:?path of the sluice program}
build=${SLUICE_BUILD:?build folder}
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-plugin-XXXXXX")
trap 'rm -rf "$dir"' EXIT
[ -x "$sluice" ] || { echo "skipped: $sluice is not built"; exit 77; }
job=(plan --model byte-test --seqlen 64 --tokens-per-step 64 --costs roofline)
failures=0
plan() { { SLUICE_PLUGINS=$dir/$1 LD_LIBRARY_PATH=$dir/$1:${LD_LIBRARY_PATH:-} "$sluice" "${job[@]}" "${@:2}" > /dev/null; } 2>&1; }

expect() { # folder, unasked or asked, part of the sentence
    local said code=0
    said=$(plan "$1" --device cuda) || code=$?
    [[ $code == 1 && $said == *"$3"* && $(wc -l <<< "$said") == 1 ]] ||
        { echo "$1, --device cuda: exit code $code, \"$said\", without \"$3\""; failures=$((failures + 1)); }
    said=$(plan "$1" --device auto) || { echo "$1, --device auto: fails: $said"; failures=$((failures + 1)); }
    [[ $2 == unasked ]] || { [[ -z $said ]] || { echo "$1: said unasked: \"$said\""; failures=$((failures + 1)); }; said=$(plan "$1" --device auto --verbose); }
    [[ $said == *"the CPU is used: "*"$3"* ]] || { echo "$1, --device auto: \"$said\", without \"$3\""; failures=$((failures + 1)); }
}

mkdir "$dir"/{none,text,other,here,old,empty}
expect none asked "was not built or is not beside the program"
echo "no library" > "$dir/text/libsluice_cuda.so"
expect text unasked "does not load"
mkdir "$dir/beside" # where nobody names a folder: beside the program, and a second place does not hide what is wrong there
cp "$sluice" "$dir/beside/sluice" && cp "$dir/text/libsluice_cuda.so" "$dir/beside/"
said=$(env -u SLUICE_PLUGINS "$dir/beside/sluice" "${job[@]}" --device cuda 2>&1 > /dev/null)
[[ $said == *"does not load"* ]] || { echo "beside the program: \"$said\""; failures=$((failures + 1)); }
# Without a GPU nobody who does not ask for one loads the plugin and its libraries. Only where there is none: elsewhere it is wanted.
gpu=no
grep -qs 0x10de /sys/bus/pci/devices/*/vendor || [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] || [ -e /dev/dxg ] && gpu=maybe
if [ $gpu = no ] && command -v cc > /dev/null; then
    echo '#include <stdio.h>
    #include <stdlib.h>
    __attribute__((constructor)) static void loaded(void) { FILE *file = fopen(getenv("LOADED"), "w"); if (file) fclose(file); }' > "$dir/loaded.c"
    cc -shared -fPIC -o "$dir/beside/libsluice_cuda.so" "$dir/loaded.c" || exit 1
    beside() { LOADED=$dir/loaded env -u SLUICE_PLUGINS "$dir/beside/sluice" "$@" 2>&1 > /dev/null; }
    said=$(beside "${job[@]}" --device auto --verbose)
    [[ ! -e $dir/loaded && $said == *"the CPU is used: this machine has no NVIDIA GPU"* ]] || { echo "auto, no GPU: \"$said\", $(ls "$dir")"; failures=$((failures + 1)); }
    beside system --probe > /dev/null || { echo "system without a GPU: fails"; failures=$((failures + 1)); }
    [[ ! -e $dir/loaded ]] || { echo "system loads the plugin where there is no GPU"; failures=$((failures + 1)); }
    said=$(beside "${job[@]}" --device cuda)
    [[ -e $dir/loaded && $said == *"it is no plugin of Sluice"* ]] || { echo "--device cuda, no GPU: \"$said\""; failures=$((failures + 1)); }
fi
if [ -e "$build/libsluice.so" ]; then
    cp "$build/libsluice.so" "$dir/other/libsluice_cuda.so"
    expect other unasked "rebuild it"
fi

# The plugin itself, where it was built and its libraries are. A driver's version is all that it asks of a driver at first.
parts=4
if [ -e "$build/libsluice_cuda.so" ] && ! ldd "$build/libsluice_cuda.so" | grep "not found" > /dev/null; then # not -q: ldd would die of the closed pipe
    for each in here old empty; do ln -s "$build/libsluice_cuda.so" "$dir/$each/"; done
    if ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null | grep libcuda.so.1 > /dev/null; then
        expect here asked "no driver is installed"
        parts=$((parts + 1))
    fi
    if command -v cc > /dev/null; then
        cat > "$dir/driver.c" << 'C'
#include <string.h>
int cuInit(unsigned flags) { (void) flags; return INIT; }
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found)
{
    (void) version, (void) flags;
    *function = !strcmp(name, "cuInit")                ? (void *) cuInit
                : !strcmp(name, "cuDriverGetVersion")  ? (void *) cuDriverGetVersion
                : !strcmp(name, "cuGetProcAddress")    ? (void *) cuGetProcAddress_v2
                                                       : 0;
    if (found)
        *found = *function ? 0 : 1;
    return 0;
}
C
        cc -w -shared -fPIC -DVERSION=11040 -DINIT=0 -o "$dir/old/libcuda.so.1" "$dir/driver.c" || exit 1
        expect old unasked "the NVIDIA driver is too old: it knows CUDA 11.4, "
        cc -w -shared -fPIC -DVERSION=990000 -DINIT=100 -o "$dir/empty/libcuda.so.1" "$dir/driver.c" || exit 1 # no device
        expect empty asked "no usable NVIDIA GPU: the driver lists none"
        parts=$((parts + 2))
    fi
fi
echo "$parts cases, $failures failures"
exit $((failures > 0))
