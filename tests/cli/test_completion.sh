#!/bin/bash
# Completion scripts and manual pages hold every command and every option that --help shows; the scripts parse and complete, the pages
# render without a warning.
set -uo pipefail
sluice=${SLUICE:?path of the sluice program}
[ -x "$sluice" ] || { echo "skipped: $sluice is not built"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-completion-XXXXXX")
trap 'rm -rf "$dir"' EXIT
failures=0 checks=0
fail() { echo "$*"; failures=$((failures + 1)); }
check() { checks=$((checks + 1)); "${@:2}" || fail "$1"; }

for shell in bash zsh fish; do
    "$sluice" completion $shell > "$dir/$shell" || fail "completion $shell: exit code $?"
    "$sluice" completion --out "$dir/$shell.out" $shell && cmp "$dir/$shell" "$dir/$shell.out" || fail "completion $shell --out differs"
    command -v $shell > /dev/null && check "$shell does not parse its script" $shell -n "$dir/$shell"
done
"$sluice" man --all "$dir/man" || fail "man --all: exit code $?"

commands=$("$sluice" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
benches=$("$sluice" bench --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[[ $(wc -w <<< "$commands") -ge 11 && $(wc -w <<< "$benches") -ge 6 ]] || fail "commands: $commands; benches: $benches"
[[ $(ls "$dir/man" | wc -l) == $(($(wc -w <<< "$commands") + 1)) ]] || fail "pages: $(ls "$dir/man")"

# Every option of each page. $1: the page's name, $2: its manual page
options() {
    local name=$1 page=$2 plain=$dir/plain option
    sed 's/\\-/-/g; s/\\f[BIR]//g' "$page" > "$plain"
    for option in $("$sluice" $name --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'); do
        check "bash: $name --$option" grep -q "^    '$name') options=.*--$option " "$dir/bash"
        check "zsh: $name --$option" grep -q "^            '--$option[=[]" <(sed -n "/^    '$name')/,/;;/p" "$dir/zsh")
        check "fish: $name --$option" grep -q "__fish_seen_subcommand_from ${name##* }' -l $option " "$dir/fish"
        check "man: $name --$option" grep -q "^--$option\( \|\$\)" "$plain"
    done
}
for name in $commands; do
    check "bash has no $name" grep -q "words='.*\b$name " "$dir/bash"
    check "zsh has no $name" grep -q "^        '$name:" "$dir/zsh"
    check "fish has no $name" grep -q "__fish_use_subcommand -a $name " "$dir/fish"
    check "sluice.1 has no $name" grep -q "sluice..$name" "$dir/man/sluice.1"
    "$sluice" man $name | cmp -s - "$dir/man/sluice-$name.1" || fail "man $name is not what --all wrote"
    [[ $name == bench ]] || options "$name" "$dir/man/sluice-$name.1"
done
for name in $benches; do options "bench $name" "$dir/man/sluice-bench.1"; done

if command -v groff > /dev/null; then
    for page in "$dir"/man/*.1; do
        warnings=$(groff -man -ww -z "$page" 2>&1)
        [[ -z $warnings ]] || fail "$warnings"
        groff -man -Tascii -P-c -rLL=78n "$page" > "$dir/page.txt"
        name=$(basename "$page" .1)
        check "$page renders without its name" grep -q "$name" "$dir/page.txt"
    done
    groff -man -Tascii -P-c "$dir/man/sluice-train.1" > "$dir/page.txt"
    check "the rendered page has no --device-mem BYTES" grep -q -- "--device-mem.*BYTES" "$dir/page.txt"
fi

# What bash completes. The words before the last are the line so far.
cd "$dir" || exit 1
mkdir folder && touch folder/file text.txt 'two words.txt'
source "$dir/bash"
completes() { # line, as words; then --, then what is among the replies; "!x": what is not
    COMP_WORDS=(sluice)
    while [ "$1" != -- ]; do COMP_WORDS+=("$1"); shift; done
    shift
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _sluice 2> "$dir/err"
    [ ! -s "$dir/err" ] || fail "${COMP_WORDS[*]}: $(cat "$dir/err")"
    local want found reply
    for want in "$@"; do
        found=no
        for reply in "${COMPREPLY[@]}"; do [[ $reply == "${want#!}" ]] && found=yes; done
        checks=$((checks + 1))
        [[ $want == !* && $found == no || $want != !* && $found == yes ]] || fail "${COMP_WORDS[*]}: ${COMPREPLY[*]}: $want"
    done
}
completes tr -- train !plan
completes "" -- train plan bench completion man help version
completes train --prec -- --precision !--seqlen
completes train "" -- --model --data --device-mem --help
completes train --precision "" -- f32 bf16 bf16-master !--model
completes train --precision = bf -- bf16 bf16-master !f32
completes train --precision = -- f32
completes train --model byte-te -- byte-test !byte-tiny
completes plan --hw h2 -- h200 !h100
completes train --data te -- text.txt
completes train --data tw -- 'two words.txt'
completes train --out f -- folder
completes train --out te -- !text.txt
completes train --steps "" -- !--model !text.txt
completes train --resume --ke -- --keep
completes bench l -- lm !flops
completes bench lm --si -- --sizes
completes bench flops --si -- --sides
completes report te -- text.txt
completes report text.txt --tr -- --trace
completes man tr -- train
completes help sw -- sweep
completes completion z -- zsh !bash

says() { # exit code, part of the message, arguments
    local said code=0
    said=$("$sluice" "${@:3}" 2>&1 > /dev/null) || code=$?
    [[ $code == "$1" && $said == *"$2"* ]] || fail "sluice ${*:3}: exit code $code, \"$said\""
}
says 2 'there is no completion for "tcsh": use bash, zsh or fish' completion tcsh
says 2 'completion needs a shell' completion
says 2 'one argument too many' completion bash zsh
says 2 'did you mean "train"?' man trian
says 2 'did you mean "train"?' help trian
echo "$checks checks, $failures failures"
exit $((failures > 0))
