#!/bin/sh
# The first run: a small byte-level model on this project's own sources, under a device budget below what the job would
# like. Options given here are handed on, so `examples/first-run.sh --steps 20` is a shorter one.
set -eu
cd "$(dirname "$0")/.."
exec build/sluice train --config examples/first-run.json "$@"
