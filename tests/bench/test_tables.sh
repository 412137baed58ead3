#!/bin/bash
# The script of the GPU's tables on a CPU with small shapes, and its figures as Markdown: every table has rows, a figure of a file is the
# figure of the page, a page can be rematerialized, and what fails is told.
set -euo pipefail
sluice=${SLUICE:?path of the sluice program}
source=${SLUICE_SOURCE:?source folder}
[ -x "$sluice" ] || { echo "skipped: $sluice is not built"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-tables-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export SLUICE=$sluice DEVICE=cpu QUICK=1
cd "$source"
fail() { echo "test_tables: $*"; exit 1; }

bench/tables.sh "$dir/t" attention lm > "$dir/log" || { cat "$dir/log"; fail "the script failed"; }
[ "$(wc -l < "$dir/t/attention.jsonl")" = 4 ] || fail "attention.jsonl has not four lines"
[ "$(wc -l < "$dir/t/lm.jsonl")" = 3 ] || fail "lm.jsonl has not three lines"

printf 'before\n<!-- tables -->\nold\n<!-- end of tables -->\nbehind\n' > "$dir/page.md"
bench/tables-md.sh "$dir/t" "$dir/page.md"
cp "$dir/page.md" "$dir/first.md"
bench/tables-md.sh "$dir/t" "$dir/page.md"
cmp "$dir/first.md" "$dir/page.md" || fail "the same tables twice make two pages"
[ "$(head -n 1 "$dir/page.md"), $(tail -n 1 "$dir/page.md")" = "before, behind" ] || fail "the page lost what stood around the tables"
if grep -q '^old$' "$dir/page.md"; then fail "the old tables are still there"; fi

grep -q '^| published, verified | H100 | - | - | 5.364 | 359 | - |$' "$dir/page.md" || fail "no published figure of the long shape"
awk '/^\|---/ { want = 1; tables++; next } want && !/^\| / { bad = 1 } { want = 0 } END { exit bad || tables != 7 }' "$dir/page.md" ||
    { cat "$dir/page.md"; fail "a table is missing or has no rows"; }
rate=$(grep -o '"size":"byte-nano","context":64,"precision":"f32"[^}]*' "$dir/t/lm.jsonl" | sed 's/.*"tokens_per_s":\([0-9]*\)\(\.[0-9]*\)\?.*/\1\2/')
awk -F ' [|] ' -v want="$rate" '/^\| byte-nano \| 64 \| f32 / { d = $8 - want; found = d < 1 && d > -1 } END { exit !found }' "$dir/page.md" ||
    fail "the page's tokens per second are not the file's $rate"

printf '#!/bin/sh\necho "sluice: no GPU" >&2\nexit 1\n' > "$dir/broken"
chmod +x "$dir/broken"
if SLUICE=$dir/broken bench/tables.sh "$dir/u" ops > "$dir/log"; then fail "a failed bench is not told by the exit code"; fi
grep -q 'sluice: no GPU' "$dir/log" || fail "why a bench failed is not told"
if bench/tables.sh "$dir/u" everything > /dev/null; then fail "a part that does not exist is accepted"; fi
