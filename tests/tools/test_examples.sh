#!/bin/bash
# Every example works. C programs in the public headers and the documents are compiled against the static library and run. Command lines
# of sluice in the documents are run where that takes seconds (plan, models, init), and checked otherwise: `train` and `sweep` with
# --dry-run, which needs the files they name; options, benches and choices of the rest against --help.
set -uo pipefail
sluice=${SLUICE:?path of the sluice program}
source=${SLUICE_SOURCE:?source folder}
build=${SLUICE_BUILD:?build folder}
[ -x "$sluice" ] && [ -e "$build/libsluice.a" ] || { echo "skipped: sluice is not built"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-examples-XXXXXX")
trap 'rm -rf "$dir"' EXIT
failures=0
fail() { echo "$*"; failures=$((failures + 1)); }

# What the examples speak of.
mkdir -p "$dir/corpus" && cd "$dir" && ln -s "$source/tests" tests || exit 1
cp -r "$source"/docs/guide "$source"/docs/design corpus
export XDG_CACHE_HOME=$dir/cache
documents=("$source/README.md" "$source"/docs/*.md "$source"/docs/*/*.md)
for i in "${!documents[@]}"; do [ -e "${documents[i]}" ] || unset "documents[i]"; done

# ---- C ----

# Programs: of a header, the blocks of its comments that are indented by five columns and have a main(); of a document, those fenced as c.
programs() { # file, prefix
    case $1 in
    *.h) sed -n 's/^ \*     \(.*\)/\1/p; s/^ \*$//p' "$1" ;;
    *) awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$1" ;;
    esac > "$2"
    grep -q 'int main(' "$2"
}
c_programs=0
for file in "$source"/include/sluice/*.h "${documents[@]}"; do
    programs "$file" example.c || continue
    command -v cc > /dev/null || { echo "no compiler: $file is not tried"; continue; }
    libraries=(-lm -lpthread -ldl)
    for name in HWLOC ZLIB ZSTD SNAPPY PCRE2 UTF8PROC; do
        library=$(sed -n "s|^${name}_LIBRARY:FILEPATH=\(/.*\)|\1|p" "$build/CMakeCache.txt")
        [ -n "$library" ] && grep -q "^SLUICE_$name:BOOL=ON" "$build/CMakeCache.txt" && libraries+=("$library")
    done
    sanitize=$(sed -n 's/^SLUICE_SANITIZE:STRING=\(..*\)/\1/p' "$build/CMakeCache.txt")
    [ "$sanitize" = address ] && libraries+=(-fsanitize=address,undefined)
    [ "$sanitize" = thread ] && libraries+=(-fsanitize=thread)
    cc -std=c17 -Wall -Wextra -Werror -I"$source/include" -o example example.c "$build/libsluice.a" "${libraries[@]}" ||
        { fail "$file: its example does not compile"; continue; }
    ./example > example.out 2> example.err || fail "$file: its example fails: $(cat example.err)"
    steps=$(sed -n 's/.*"steps", "\([0-9]*\)".*/\1/p' example.c)
    [ "$(grep -c '^step [0-9]*: loss [0-9.]*$' example.out)" = "$steps" ] && grep -q "^step $steps: loss " example.out ||
        fail "$file: its example prints not $steps losses: $(cat example.out)"
    c_programs=$((c_programs + 1))
done
[ $c_programs -ge 1 ] || fail "no example in C was found"

# ---- command lines ----

# Lines of fenced blocks that run sluice, continued lines joined, comments and the shell's `... &&` cut off.
command_lines() {
    awk '
    /^```/ { inside = !inside; next }
    inside { line = line $0; if (sub(/\\$/, "", line)) next; print line; line = "" }
    ' "$1" | sed 's/ #.*//; s/ && /\n/g' | sed -n 's/^\([A-Z_]*=[^ ]* \)*\(build\/\)\{0,1\}sluice /\1/p' | sed 's/ *>.*//'
}

# Is every option of the line known to the command, and every choice among those it offers?
known() { # command or "bench NAME", then the arguments
    local name=$1 help option value
    shift
    help=$("$sluice" $name --help 2>&1) || { echo "there is no $name"; return 1; }
    while [ $# -gt 0 ]; do
        option=$1
        shift
        [[ $option == --* ]] || continue
        grep -q "^  ${option%%=*}\( \|\$\)" <<< "$help" || { echo "there is no $option"; return 1; }
    done
}

try() { # one command line, without `sluice`
    local line=$1 environment=() code=0
    read -r -a words <<< "$line"
    while [[ ${words[0]} == *=* && ${words[0]} != --* ]]; do environment+=("${words[0]}"); words=("${words[@]:1}"); done
    local command=${words[0]} arguments=("${words[@]:1}") first=()
    # `...` stands for the rest of a job; what the line gives itself comes behind and wins.
    for i in "${!arguments[@]}"; do
        [[ ${arguments[i]} == ... ]] && unset "arguments[i]" && first=(--model byte-test --data corpus --seqlen 32 --tokens-per-step 64)
    done
    case $command in
    plan) env "${environment[@]}" "$sluice" plan "${first[@]}" --costs roofline "${arguments[@]}" ;;
    train | sweep) env "${environment[@]}" "$sluice" $command "${first[@]}" --costs roofline "${arguments[@]}" --dry-run ;;
    models) "$sluice" models "${arguments[@]}" ;;
    init) # weights of a small model
        arguments=("${arguments[@]/#llama3.2-1b/byte-test}")
        "$sluice" init "${arguments[@]}" ;;
    bench) known "bench ${arguments[0]}" "${arguments[@]:1}" ;;
    *) known "$command" "${arguments[@]}" ;;
    esac > try.out 2>&1 || code=$?
    [ $code = 0 ] || fail "$document: sluice $line: exit code $code: $(tail -n 1 try.out)"
}

# Files that lines of the documents speak of.
for i in 1 2 3 4 5 6 7 8 9; do printf '{"prompt": "question %d", "completion": "an answer to it"}\n' $i; done > records.jsonl
cp records.jsonl chats.jsonl
mkdir -p path/to && cp -r "$source/tests/golden/folder" path/to/folder || exit 1
cp -r path/to/folder my-8b && cp records.jsonl held-out.jsonl
cp corpus/guide/data.md held-out.txt
printf '{"model": "byte-test", "data": "corpus", "seqlen": 32, "tokens-per-step": 64, "steps": 2}\n' > job.json
"$sluice" init --model byte-test --out other --weights > /dev/null || fail "no folder with weights"
"$sluice" plan --config job.json --costs roofline > /dev/null || fail "job.json does not plan"
lines=0
for document in "${documents[@]}"; do
    command_lines "$document" > "lines"
    while read -r line; do
        try "$line"
        lines=$((lines + 1))
    done < lines
done
[ $lines -ge 15 ] || fail "only $lines command lines were found"

# Does it find mistakes at all?
expected=$failures
document=itself
for wrong in 'train --stepz 3 ...' 'plan --model nosuch --hw h200' 'bench nosuch' 'bench lm --sizez x' 'report x --nosuch' 'nosuch' \
    'train --data nosuch --model byte-test' 'sweep --model byte-test --hw nosuch'; do
    try "$wrong" > /dev/null
    expected=$((expected + 1))
    [ $failures = $expected ] || { echo "\"$wrong\" is taken for right"; failures=$((expected + 100)); }
done
failures=$((failures - 8))
echo "$c_programs programs, $lines command lines, $failures failures"
exit $((failures > 0))
