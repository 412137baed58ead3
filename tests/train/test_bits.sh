#!/usr/bin/env bash
# The final weights of eighteen small jobs, on every instruction set of this machine, are those recorded in bits.txt (tools/bits).
set -eu
exec "${SLUICE_SOURCE:?source folder}/tools/bits" --sluice "${SLUICE:?path of the sluice program}" --check "$SLUICE_SOURCE/tests/train/bits.txt"
