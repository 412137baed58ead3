#!/bin/sh
# The first run: a small byte-level model on this project's own sources and documents, in 60 % of the device memory that it takes
# without a budget, on any machine. Options given here are handed on: `examples/first-run.sh --steps 20` is a shorter run. A second
# run does not touch the first one's files: it gets the next free folder.
set -eu
cd "$(dirname "$0")/.."
sluice=build/sluice
[ -x "$sluice" ] || { echo "$sluice is not there; build it with make" >&2; exit 1; }

run=runs/first
n=2
while [ -e "$run" ]; do
    run=runs/first-$n
    n=$((n + 1))
done
cat <<EOF
A model that learns to write this project's sources, byte by byte, in 60 % of the device memory
that it takes without a budget.
    $sluice train --config examples/first-run.json --out $run${*:+ $*}

EOF
"$sluice" train --config examples/first-run.json --out "$run" "$@"
echo
"$sluice" report "$run" --quiet
cat <<EOF

What it writes after these few steps:
    $sluice generate --model $run --prompt "/* The " --max-tokens 200 --temperature 0.7 --device cpu

EOF
"$sluice" generate --model "$run" --prompt "/* The " --max-tokens 200 --temperature 0.7 --device cpu --quiet
echo
cat <<EOF

Open that page in a browser: what limited the run, its timeline and memory (docs/guide/reading-a-report.md explains it).
What would other budgets do? None of them changes a bit of the result.
    $sluice plan --config examples/first-run.json --device-mem 100%
Go on where this run ended, in another budget:
    $sluice train --config examples/first-run.json --out $run --resume --steps 800 --device-mem 50%
EOF
