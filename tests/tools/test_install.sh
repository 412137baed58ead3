#!/usr/bin/env bash
# What `make install` puts down is enough to build against: header, pkg-config file, shared and static library; with it come manual
# pages and completion scripts, and no test is built for it.
set -euo pipefail
if grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt"; then
    echo "skipped: a sanitized library is not for installing"
    exit 77
fi
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not here"; exit 77; }
sh "$SLUICE_SOURCE/tools/check-symbols" "$SLUICE_BUILD"

dir=$(mktemp -d)
case $dir in *[[:space:]]*) rmdir "$dir"; dir=$(mktemp -d -p /tmp) ;; esac # pkg-config cannot write such a folder
trap 'rm -rf "$dir"' EXIT
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$SLUICE_BUILD/CMakeCache.txt")
DESTDIR=$dir cmake --install "$SLUICE_BUILD" >/dev/null
pc=$(find "$dir" -name sluice.pc)
lib=$(dirname "$(dirname "$pc")")
cat >"$dir/user.c" <<'C'
#include <sluice/sluice.h>
#include <stdio.h>
int main(void)
{
    sl_job *job;
    if (sl_job_create(&job) != SL_OK)
        return 1;
    int known = sl_job_set(job, "no-such-option", "1") == SL_OK;
    printf("%s: %s\n", sl_version(), sl_error_message());
    sl_job_destroy(job);
    return known;
}
C
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$dir
[ "$(pkg-config --modversion sluice)" = "$(sed -n 's/^#define SL_VERSION "\(.*\)"/\1/p' "$SLUICE_SOURCE/include/sluice/sluice.h")" ]
# shellcheck disable=SC2046
cc "$dir/user.c" -o "$dir/shared" $(pkg-config --cflags --libs sluice)
LD_LIBRARY_PATH=$lib "$dir/shared"
# shellcheck disable=SC2046
cc "$dir/user.c" -o "$dir/static" $(pkg-config --cflags sluice) "$lib/libsluice.a" $(pkg-config --static --libs-only-l sluice | sed 's/-lsluice//')
"$dir/static"
"$dir$prefix/bin/sluice" --version

# Manual pages and completion scripts are where man and the shells look for them.
share=$(find "$dir" -type d -name man1)
share=${share%/man/man1}
for page in sluice sluice-train sluice-bench sluice-version; do [ -s "$share/man/man1/$page.1" ]; done
bash -n "$share/bash-completion/completions/sluice"
[ -s "$share/zsh/site-functions/_sluice" ] && [ -s "$share/fish/vendor_completions.d/sluice.fish" ]
if command -v man >/dev/null; then
    MANPATH=$share/man man -w sluice-train >/dev/null
    MANPATH=$share/man man sluice-train 2>&1 | grep -e --device-mem >/dev/null # not -q: man would die of the closed pipe
fi

# Neither `make build` nor `make install` builds a test.
for target in build install; do
    make -C "$SLUICE_SOURCE" -n $target BUILD="$dir/build" >"$dir/commands"
    grep -e '--build.*--target runtime' "$dir/commands" >/dev/null
    ! grep -e --build "$dir/commands" | grep -v -e '--target runtime' || exit 1
done
if command -v ninja >/dev/null; then
    cmake -S "$SLUICE_SOURCE" -B "$dir/build" -G Ninja -DSLUICE_CUDA=OFF >/dev/null
    ninja -C "$dir/build" -t commands runtime >"$dir/commands"
    grep -e cli/main.c "$dir/commands" >/dev/null
    ! grep -e 'tests/[a-z]*/[a-z_]*\.c' "$dir/commands" || exit 1
fi
