#!/usr/bin/env bash
# The mutations of tools/mutate on a small file: every operator, nothing inside messages or declarations, the same for the same seed.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
${CC:-cc} -Wall -Wextra -Werror -o "$dir/mutate" "$SLUICE_SOURCE/tools/mutate.c"
cd "$dir"
cat >a.c <<'C'
#include "x.h"
#define TWICE(x) ((x) + (x))
enum { MOST = 40 };
static const int table[2] = {1, 2};
/* a comment: if (a < b) return 1 + 2; */
static sl_status work(int64_t *out, int n, const char *name)
{
    char text[2][64], *more[MOST];
    SL_ASSERT(n > 3);
    if (n < 0 && !name)
        return sl_fail(SL_BAD, "n %d < %d", n + 1, MOST);
    for (int i = 0; i < n; i++) {
        if (i == 5)
            continue;
        out[i] = n - i;
    }
    sl_copy(out, text, (pair){n, 2});
    sl_free(text);
    return SL_OK;
}
static bool odd(int n)
{
    switch (n) {
    case 7:
        return true;
    default:
        return n % 2 == 1;
    }
}
C
fail() { echo "$1"; exit 1; }
./mutate list 1 a.c >one
./mutate list 1 a.c | cmp -s - one || fail "the same seed gives different mutants"
./mutate list 2 a.c >two
! cmp -s one two || fail "the seed makes no difference"
sort one >sorted
sort two | cmp -s - sorted || fail "the seed changes which mutants exist, not only their order"

has() { cut -f1,3 one | grep -qxF "$(printf '%s\t%s' "$1" "$2")" || { cat one; fail "without $1: $2"; }; }
has a.c:10:11:negate 'if (n >= 0 && !name)'
has a.c:10:11:bound 'if (n <= 0 && !name)'
has a.c:10:15:logic 'if (n < 0 || !name)'
has a.c:10:18:not 'if (n < 0 && name)'
has a.c:10:8:cond-true 'if ((n < 0 && !name) || 1)'
has a.c:10:8:cond-false 'if ((n < 0 && !name) && 0)'
has a.c:11:9:delete-jump ';'
has a.c:11:9:return-zero 'return 0;'
has a.c:12:29:arith 'for (int i = 0; i < n; i--) {'
has a.c:13:18:const-more 'if (i == 6)'
has a.c:13:18:const-less 'if (i == 4)'
has a.c:14:13:delete-jump ';'
has a.c:15:9:delete ';'
has a.c:15:13:index 'out[(i) + 1] = n - i;'
has a.c:15:20:arith 'out[i] = n + i;'
has a.c:17:13:swap 'sl_copy(text, out, (pair){n, 2});'
has a.c:17:5:delete ';'
has a.c:25:9:return-other 'return false;'
has a.c:27:18:arith 'return n * 2 == 1;'
! grep -q '^a.c:27:.*:delete-jump' one || fail "the last return of a function is deleted"
for line in 1 2 3 4 5 6 8 9 18 19; do # preprocessor, declarations, comments, assertions, frees, SL_OK at the end
    ! grep -q "^a.c:$line:" one || fail "line $line is mutated: $(grep "^a.c:$line:" one)"
done
! grep -q '^a.c:11:[0-9]*:\(arith\|const\|swap\)' one || fail "arguments of a message are mutated"

./mutate apply a.c:10:11:bound >b.c
[ "$(diff a.c b.c | grep -c '^[<>]')" = 2 ] && grep -q 'n <= 0' b.c || fail "apply changes something else"
if ./mutate apply a.c:10:11:swap >/dev/null 2>&1; then fail "a mutation that does not exist is applied"; fi

# Every line gives one mutant before any gives two.
lines=$(cut -d: -f2 one | sort -u | wc -l)
[ "$(head -n "$lines" one | cut -d: -f2 | sort -u | wc -l)" = "$lines" ] || fail "lines are not sampled uniformly"

# Limits of a test: processor time, wall time, and what it started ends with it.
ends() { # status, command...
    local got=0
    "${@:2}" >out 2>times || got=$?
    [ "$got" = "$1" ] || fail "${*:2}: exit status $got, not $1"
}
ends 0 ./mutate run 9 9 true
ends 3 ./mutate run 9 9 sh -c 'exit 3'
ends 134 ./mutate run 9 9 sh -c 'kill -ABRT $$'
ends 124 ./mutate run 0.1 60 sh -c 'while :; do :; done'
ends 124 ./mutate run 9 0.1 sh -c 'sleep 60 & sleep 60'
awk '{ exit !($1 >= 0.1 && $1 < 30) }' times || fail "limit of wall time: $(cat times)"
echo ok
