#!/bin/sh
# The first run: a small byte-level model on this project's own sources and documents, in 32 MiB of device memory where the fastest
# plan takes 50 or 79, as it comes out. Options given here are handed on: `examples/first-run.sh --steps 20` is a shorter run. A second run does not
# touch the first one's files: it gets the next free folder.
set -eu
cd "$(dirname "$0")/.."
sluice=build/sluice
[ -x "$sluice" ] || { echo "$sluice is not there; build it with make" >&2; exit 1; }

# Every thread has its own workspace in the device's memory, and this model is small: of many cores eight are enough.
few=""
if [ "$(nproc 2>/dev/null || echo 1)" -gt 8 ]; then
    few=" --threads 8"
    set -- --threads 8 "$@"
fi

run=runs/first
n=2
while [ -e "$run" ]; do
    run=runs/first-$n
    n=$((n + 1))
done
cat <<EOF
A model that learns to write this project's sources, byte by byte, in less device memory than it would like.
    $sluice train --config examples/first-run.json --out $run${*:+ $*}

EOF
"$sluice" train --config examples/first-run.json --out "$run" "$@"
echo
"$sluice" report "$run" --quiet
cat <<EOF

Open that page in a browser: what limited the run, its timeline and memory (docs/reading-a-report.md explains it).
What would other budgets do? None of them changes a bit of the result.
    $sluice plan --config examples/first-run.json --device-mem 10MiB$few
Go on where this run ended, in another budget:
    $sluice train --config examples/first-run.json --out $run --resume --steps 800 --device-mem 16MiB$few
EOF
