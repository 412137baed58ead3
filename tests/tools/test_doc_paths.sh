#!/usr/bin/env bash
# Every file or folder that a document names in backticks or links to is in the tree. Not checked: docs/lab, whose pages describe
# earlier commits, and code blocks. In a name, `*`, `<name>` and NAME stand for anything. A guide that invents files for its example
# lists them in a comment: <!-- new files: src/ops/mul.c -->
set -euo pipefail
cd "$SLUICE_SOURCE"

check() { # tree
    (
        cd "$1"
        find . -mindepth 1 \( -name .git -o -path './build*' \) -prune -o -type d -printf '%P/\n' -o -printf '%P\n'
    ) | awk -v tree="$1" '
        function suffixes(path) { # "src/plan/check.c", "plan/check.c" and "check.c" all name one file
            all[path] = 1
            while (path != "") {
                known[path] = 1
                if (path ~ /\/$/) known[substr(path, 1, length(path) - 1)] = 1
                if (!sub(/^[^\/]*\//, "", path)) break
            }
        }
        function matches(word, from_root, pattern, path) {
            if (word in known && !from_root) return 1
            if (word in all || word "/" in all) return 1
            if (word !~ /[*]/) return 0
            pattern = word
            gsub(/[.+]/, "[&]", pattern)
            gsub(/[*]/, "[^/]*", pattern)
            pattern = (from_root ? "^" : "(^|/)") pattern "/?$"
            for (path in all) if (path ~ pattern) return 1
            return 0
        }
        function wrong(name, how) {
            printf "%s:%d: %s %s, which is not in the tree\n", document, line, how, name
            bad = 1
        }
        function named(word, root) {
            sub(/[,;:.)]+$/, "", word)
            sub(/:[0-9].*$/, "", word)
            if (word in invented || word ~ /\.\.\.|^[\/~]|[$"=\[\]]/) return
            gsub(/<[a-z_]+>|NAME/, "*", word)
            root = word ~ /^(include|src|tests|tools|bench|docs|examples|\.ci|\.github)\//
            if (!root && word !~ /^[A-Za-z0-9_*\/-]+\.(c|h|cu|cuh|def|sh|md|py)$/ && word !~ /^[a-z_\/-]+\/$/) return
            if (!matches(word, root)) wrong(word, "names")
        }
        function linked(target, path, n, i, part, kept) {
            sub(/#.*/, "", target)
            if (target == "" || target ~ /^[a-z]+:/ || target in invented) return
            path = document
            if (!sub(/[^\/]*$/, "", path)) path = ""
            n = split(path target, part, "/")
            path = ""
            kept = 0
            for (i = 1; i <= n; i++)
                if (part[i] == "..") kept--
                else if (part[i] != "." && part[i] != "") stack[++kept] = part[i]
            for (i = 1; i <= kept; i++) path = path (i > 1 ? "/" : "") stack[i]
            if (!(path in all) && !(path "/" in all)) wrong(target, "links to")
        }
        function read_document(text, fence, span, rest, n, i, word) {
            line = fence = 0
            while ((getline text < (tree "/" document)) > 0) {
                line++
                if (text ~ /^<!-- new files:/) {
                    n = split(text, word, /[ ,]+/)
                    for (i = 4; i <= n; i++) invented[word[i]] = 1
                    continue
                }
                if (text ~ /^ *```/) { fence = !fence; continue }
                if (fence || text ~ /^    /) continue
                rest = text
                while (match(rest, /`[^`]+`/)) {
                    span = substr(rest, RSTART + 1, RLENGTH - 2)
                    rest = substr(rest, RSTART + RLENGTH)
                    n = split(span, word, " ")
                    for (i = 1; i <= n; i++) named(word[i])
                }
                rest = text
                while (match(rest, /\]\([^)]+\)/)) {
                    linked(substr(rest, RSTART + 2, RLENGTH - 3))
                    rest = substr(rest, RSTART + RLENGTH)
                }
            }
            close(tree "/" document)
            split("", invented)
            documents++
        }
        { suffixes($0) }
        END {
            for (document in all)
                if (document ~ /\.md$/ && document !~ /^docs\/lab\//) read_document()
            if (!documents) { print "no document found"; bad = 1 }
            exit bad
        }'
}
check .

# It fails where it should.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/src/plan/search" "$dir/docs/lab"
touch "$dir/src/plan/search/rounds.c" "$dir/src/plan/plan.h"
accepts() { printf '%s\n' "$@" >"$dir/docs/page.md"; check "$dir" || { echo "refused: $*"; exit 1; }; }
refuses() {
    printf '%s\n' "$@" >"$dir/docs/page.md"
    if check "$dir" >/dev/null; then echo "accepted: $*"; exit 1; fi
}
accepts 'See `src/plan/plan.h`, `rounds.c`, `search/rounds.c`, `src/plan/` and `search/`; `src/plan/NAME.h`, `*/rounds.c`.'
accepts 'A [link](../src/plan/plan.h), [another](page.md#part), [a folder](lab), [the web](https://example.org/x.c).'
accepts '```' 'Code names what it likes: `gone.c`' '```'
accepts '<!-- new files: src/ops/mul.c mul.c -->' 'Write `src/ops/mul.c`, then see `mul.c`.'
accepts 'Not files of the tree: `config.json`, `/proc`, `~/.cache`, `a.b`, `$X/y.c`.'
refuses 'See `gone.c`.'
refuses 'See `src/plan/rounds.c`.'
refuses 'See `src/gone/`.'
refuses 'See `src/plan/NAME.cu`.'
refuses 'Run `sh tools/gone now`.'
refuses 'See `plan/plan.h` and `ops/plan.h`.'
refuses 'A [link](plan.h).'
refuses '<!-- new files: src/ops/mul.c -->' 'See `src/ops/add.c`.'
printf 'See `gone.c`.\n' >"$dir/docs/lab/page.md"
accepts 'The lab is not checked.'
echo ok
