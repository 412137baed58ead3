#!/usr/bin/env bash
# bench/published.sh [FOLDER]: plans every cell that als244/ml_dataflow has published a speed for (docs/lab/sweeps.md) and prints its
# figure and ours side by side, as a table in Markdown. Ours are predictions from the roofline of the card's profile, for steps
# of 512k tokens (1M where one sequence is longer), everything in bf16, AdamW. Stopped, it goes on where it was.
set -euo pipefail
cd "$(dirname "$0")/.."
sluice=${SLUICE:-build/sluice}
out=${1:-runs/published}
mkdir -p "$out"

# model, sequence length, device GiB, host GiB, tok/s as published, card, what is assumed
cells() {
    cat <<END
llama3-8b 1k 78 75 13014 h100
llama3-8b 1k 24 75 10966 h100
llama3-8b 4k 78 75 12255 h100
llama3-8b 4k 24 70 10420 h100
llama3-8b 8k 78 75 11406 h100
llama3-8b 8k 70 75 11384 h100
llama3-8b 8k 60 75 11034 h100
llama3-8b 8k 50 75 10711 h100
llama3-8b 8k 40 75 10325 h100
llama3-8b 8k 30 75 10188 h100
llama3-8b 8k 24 75 9781 h100
llama3-8b 16k 78 75 10023 h100 budgets
llama3-8b 16k 24 75 8763 h100
llama3-8b 64k 78 144 5487 h100
llama3-8b 64k 30 128 5021 h100
llama3-8b 256k 78 496 2073 h100 budgets
llama3-8b 512k 78 496 1128 h100 budgets
llama3-8b 1M 78 496 505 h100 budgets
llama3-1.5b 8k 78 192 55090 h100 budgets
llama3-1.5b 8k 16 24 49151 h100
llama3-1.5b 64k 78 192 21022 h100 budgets
llama3-1.5b 1M 78 192 1835 h100 budgets
llama3-15b 8k 78 256 5467 h100 budgets
llama3-15b 8k 24 160 4954 h100
llama3-15b 64k 78 256 2719 h100 budgets
llama3-32b 8k 78 416 2601 h100 budgets
llama3-32b 8k 40 356 2521 h100
llama3-32b 64k 78 416 1618 h100 budgets
llama3-8b 8k 78 75 3260 a100 budgets
llama3-8b 8k 30 72 3175 rtx5090
llama3-8b 8k 22 80 1061 rtx3090
END
}

cells | while read -r model seqlen device host published card _; do
    tokens=512k
    [ "$seqlen" = 1M ] && tokens=1M
    "$sluice" sweep --model "$model" --seqlen "$seqlen" --tokens-per-step $tokens --precision bf16 --hw "$card" --device-mem "${device}GiB" \
        --host-mem "${host}GiB" --out "$out/$card-$tokens.jsonl" --quiet >/dev/null
done

cells | python3 -c '
import glob, json, sys
scale = {"k": 1024, "M": 1048576}
rows = {}
for path in glob.glob(sys.argv[1] + "/*.jsonl"):
    card = path.rsplit("/", 1)[1].split("-")[0]
    for line in open(path):
        cell = json.loads(line)
        if cell["event"] == "cell":
            rows[card, cell["model"], cell["seqlen"], cell["device_budget_bytes"] >> 30, cell["host_budget_bytes"] >> 30] = cell
print("| card | model | sequence | device GiB | host GiB | published tok/s | ours, predicted | ratio | MFU | limited by |")
print("|---|---|---:|---:|---:|---:|---:|---:|---:|---|")
for line in sys.stdin:
    model, seqlen, device, host, published, card, *assumed = line.split()
    cell = rows[card, model, int(seqlen[:-1]) * scale[seqlen[-1]], int(device), int(host)]
    mark = "*" if assumed else ""
    if cell["feasible"]:
        ours = "{:,.0f} | {:.2f} | {:.1f} % | {}".format(cell["tokens_per_s"], cell["tokens_per_s"] / float(published), 100 * cell["mfu"], cell["limit"])
    else:
        ours = "does not fit | | | |"
    print("| {} | {} | {} | {}{} | {}{} | {:,} | {} |".format(card, model, seqlen, device, mark, host, mark, int(published), ours))
' "$out"
