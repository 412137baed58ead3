#!/usr/bin/env bash
# What `make install` puts down is enough to build against: header, pkg-config file, shared and static library.
set -euo pipefail
if grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt"; then
    echo "skipped: a sanitized library is not for installing"
    exit 77
fi
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
cc "$dir/user.c" -o "$dir/static" $(pkg-config --cflags sluice) "$lib/libsluice.a" -lm -lpthread -ldl
"$dir/static"
"$dir$prefix/bin/sluice" --version
