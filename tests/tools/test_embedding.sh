#!/usr/bin/env bash
# The examples are built out of the tree against what is installed, by the command in their first comment, and train to the same bits
# under two budgets. train.c stops early, own_model.c resumes.
set -euo pipefail
if grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt"; then
    echo "skipped: a sanitized library is not for installing"
    exit 77
fi
for tool in cc pkg-config; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not here"; exit 77; }
done
dir=$(mktemp -d)
case $dir in *[[:space:]]*) rmdir "$dir"; dir=$(mktemp -d -p /tmp) ;; esac # pkg-config cannot write such a folder
trap 'rm -rf "$dir"' EXIT
DESTDIR=$dir/root cmake --install "$SLUICE_BUILD" >/dev/null
pc=$(find "$dir/root" -name sluice.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$dir/root
LD_LIBRARY_PATH=$(dirname "$(dirname "$pc")")
export LD_LIBRARY_PATH XDG_CACHE_HOME=$dir/cache
cp "$SLUICE_SOURCE"/examples/*.c "$dir"
cd "$dir"
for name in train own_model; do
    command=$(sed -n "s/^ \*     \(cc $name\.c -o $name .*\)/\1/p" $name.c)
    [ -n "$command" ] || { echo "$name.c does not say how it is built"; exit 1; }
    bash -c "${command/cc /cc -std=c11 -Wall -Wextra -Wpedantic -Werror } -lm"
done

# Without a budget, and in two thirds of what that takes.
cat "$SLUICE_SOURCE"/docs/guide/*.md >text
options="device cpu costs roofline"
for budget in "" "device-mem 66%"; do
    folder=run${budget//[!0-9]/}
    # shellcheck disable=SC2086
    ./train text $options steps 20 val-every 5 $budget out "$folder" >"train-$folder"
    # shellcheck disable=SC2086
    ./own_model data text $options steps 20 $budget out "own-$folder" >"own-$folder.out"
done
cmp train-run train-run66
grep -q '^step 20: loss .* validation ' train-run
grep -q '^done after step 20 and 4 validations' train-run
grep -q '^model.embed_tokens.weight \[256, 128\]: largest element 0\.[0-9]*$' train-run
cmp own-run.out own-run66.out
for file in model optimizer; do
    cmp {run,run66}/checkpoints/step-00000020/$file.safetensors
    cmp own-{run,run66}/checkpoints/step-00000020/$file.safetensors
done
[ "$(sed -n 's/^step 20: loss \([0-9]*\).*/\1/p' own-run.out)" -lt 5 ] # it learns: ln(256) is 5.5

# A small text is soon known by heart, and validation gets worse.
head -c 3000 text >small
# shellcheck disable=SC2086
./train small $options steps 400 lr 1e-2 warmup 1 schedule constant >stopped
grep -q '^stopped after step ' stopped

# Half a run, then the rest in less memory.
# shellcheck disable=SC2086
./own_model data text $options schedule constant steps 20 out whole >/dev/null
# shellcheck disable=SC2086
./own_model data text $options schedule constant warmup 1 steps 10 out half >/dev/null
# shellcheck disable=SC2086
./own_model data text $options schedule constant warmup 1 steps 20 out half resume true device-mem 66% >/dev/null
cmp {whole,half}/checkpoints/step-00000020/model.safetensors

# Mistakes are told.
! ./own_model data text stepz 3 2>error || exit 1
grep -q steps error
! ./train text 2>/dev/null steps || exit 1
