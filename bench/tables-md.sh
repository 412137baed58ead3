#!/usr/bin/env bash
# Markdown of what bench/tables.sh measured, with the published figures beside ours: for docs/lab/performance.md.
#   bench/tables-md.sh FOLDER              prints it
#   bench/tables-md.sh FOLDER FILE.md      puts it into the file, in place of what stands between the two marks
#                                          <!-- tables --> and <!-- end of tables --> (behind its last line where there are none)
# Published figures are those the benches carry themselves (tables "published" of the files), hardware named there.
set -euo pipefail
folder=${1:?usage: bench/tables-md.sh FOLDER [FILE.md]} doc=${2:-}

# JSON to lines of "row <tab> table <tab> key <tab> value" for tables, "fact <tab> key <tab> value" for machines.
flatten() {
    { cat "$@" 2> /dev/null || true; } | awk '
    function skip() { while (substr(s, p, 1) ~ /[ \t\r\n]/) p++ }
    function text(   out, c) {
        for (p++; (c = substr(s, p, 1)) != "\""; p++) {
            if (c == "\\") { p++; c = substr(s, p, 1); if (c == "n" || c == "t") c = " " }
            out = out c
        }
        p++
        return out
    }
    # Values are known by the path to them; arrays count from 1.
    function value(path,   c, key, i, from) {
        skip()
        c = substr(s, p, 1)
        if (c == "{") {
            for (p++; ; p++) {
                skip()
                if (substr(s, p, 1) == "}") break
                key = text(); skip(); p++
                value(path == "" ? key : path SUBSEP key)
                skip()
                if (substr(s, p, 1) != ",") break
            }
            p++
        } else if (c == "[") {
            for (p++; ; p++) {
                skip()
                if (substr(s, p, 1) == "]") break
                i++
                value(path SUBSEP i)
                skip()
                if (substr(s, p, 1) != ",") break
            }
            p++
        } else if (c == "\"") {
            leaf(path, text())
        } else {
            for (from = p; substr(s, p, 1) ~ /[-+.0-9a-zA-Z]/; p++) ;
            leaf(path, substr(s, from, p - from))
        }
    }
    function leaf(path, v,   k, n) {
        n = split(path, k, SUBSEP)
        if (v == "null") v = ""
        if (k[1] == "machine") print "fact\t" k[2] "\t" v
        else if (path == "table") name = v
        else if (k[1] == "tables" && k[3] == "name" && n == 3) name = v
        else if (k[1] == "rows") print "row\t" line "." 1 "." k[2] "\t" name "\t" k[3] "\t" v
        else if (k[1] == "tables" && k[3] == "rows") print "row\t" line "." k[2] "." k[4] "\t" name "\t" k[5] "\t" v
    }
    { s = $0; p = 1; line++; name = ""; value("") }'
}

# Rows of one table as arrays: has[i, key]; count in n. The rest of the program is given.
with() { # table, awk program
    awk -F '\t' -v want="$1" '
    function num(v, digits) { return v == "" ? "-" : sprintf("%." digits "f", v) }
    function ms(v) { return v == "" ? "-" : v >= 100 ? sprintf("%.0f", v) : v >= 10 ? sprintf("%.1f", v) : sprintf("%.2f", v) }
    function pair(a, b) { return (a == "" && b == "") ? "-" : ms(a) " / " ms(b) }
    $1 == "row" && $3 == want { if ($2 != last) { n++; last = $2 } has[n, $4] = $5 }
    $1 == "row" && $3 == "published" { if ($2 != lastp) { np++; lastp = $2 } pub[np, $4] = $5 }
    $1 == "fact" { fact[$2] = $3 }
    '"$2"
}

machine() {
    flatten "$folder/system.json" "$folder/lm.jsonl" "$folder/attention.jsonl" "$folder/ops.jsonl" | awk -F '\t' '
    $1 == "fact" && !($2 in f) { f[$2] = $3 }
    END { printf "Measured on %s (%s; %s, %s threads), %s, `bench/tables.sh`; files in `bench/results/`.\n\n", f["device_name"], f["numerics"], f["cpu"],
          f["threads"], f["time"] }'
}

lm() {
    echo '### Language models: 4 sequences, forward alone, and steps with their parts (ms)'
    echo 'Published: forward / forward and backward (+ optimizer), by hardware. Ours: parts of a step as the device timed them.'
    echo
    echo '| size | context | precision | forward | forward + backward | optimizer | step ± std (steps) | tok/s | MFU | device memory | published |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|'
    flatten "$folder/lm.jsonl" | with times '
    END {
        for (i = 1; i <= n; i++) {
            beside = ""
            for (j = 1; j <= np; j++)
                if (pub[j, "size"] == has[i, "size"] && pub[j, "context"] == has[i, "context"] &&
                    index(pub[j, "how"], has[i, "precision"]) == 1 && !((i, pub[j, "hardware"] pub[j, "how"]) in seen)) {
                    seen[i, pub[j, "hardware"] pub[j, "how"]] = 1
                    beside = beside (beside == "" ? "" : "; ") pub[j, "hardware"] ", " pub[j, "how"] ": " pair(pub[j, "forward_ms"], pub[j, "both_ms"]) \
                        (pub[j, "optimizer_ms"] == "" ? "" : " + " ms(pub[j, "optimizer_ms"]))
                }
            none = has[i, "step_ms"] == ""
            printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", has[i, "size"], has[i, "context"], has[i, "precision"], ms(has[i, "forward_ms"]),
                none ? "-" : ms(has[i, "in_step_forward_ms"] + has[i, "in_step_backward_ms"]), ms(has[i, "in_step_optimizer_ms"]),
                none ? "-" : ms(has[i, "step_ms"]) " ± " ms(has[i, "step_std_ms"]) " (" has[i, "steps"] ")", num(has[i, "tokens_per_s"], 0),
                none ? "-" : num(has[i, "mfu_percent"], 1) " %", has[i, "device_memory"], beside
        }
    }'
    echo
    echo 'Warming up, `small`, f32 (published on an A100: std 266 to 360 ms without, 0.4 to 8 with five):'
    echo
    echo '| warm-up steps | mean ms | std | first | last |'
    echo '|---|---|---|---|---|'
    flatten "$folder/lm.jsonl" | with warmup '
    END { for (i = 1; i <= n; i++) printf "| %s | %s | %s | %s | %s |\n", has[i, "warmup"], ms(has[i, "mean_ms"]), num(has[i, "std_ms"], 3),
          ms(has[i, "first_ms"]), ms(has[i, "last_ms"]) }'
    echo
    echo 'What profiling costs and shows, `small`, bf16-master (published: matrix products 78 % of inference, 63 % of a step):'
    echo
    echo '| | forward | step | |'
    echo '|---|---|---|---|'
    flatten "$folder/lm.jsonl" | with profile_summary '
    END { for (i = 1; i <= n; i++) printf "| %s | %s | %s | %s |\n", has[i, "question"], num(has[i, "forward"], 3), num(has[i, "step"], 3), has[i, "unit"] }'
    echo
}

attention() {
    echo '### Attention'
    echo '16 heads of 16384 x 64, causal, bf16, forward and backward; a second of warming up, ten of runs:'
    echo
    echo '| way | hardware | forward | backward | both, mean ± std | TFLOP/s | MiB |'
    echo '|---|---|---|---|---|---|---|'
    flatten "$folder/attention.jsonl" | with leaderboard '
    END { for (i = 1; i <= n; i++) printf "| %s | %s | %s | %s | %s%s | %s | %s |\n", has[i, "way"], has[i, "hardware"], ms(has[i, "forward_ms"]),
          ms(has[i, "backward_ms"]), has[i, "both_ms"] == "" ? has[i, "verdict"] : num(has[i, "both_ms"], 3),
          has[i, "std_ms"] == "" ? "" : " ± " num(has[i, "std_ms"], 3), num(has[i, "tflops"], 0), num(has[i, "memory_mib"], 0) }'
    local which
    for which in grid long; do
        echo
        if [[ $which == grid ]]; then
            echo 'Batch 8, one head of 64 (16, 32 and 128 are in the file): forward / backward in ms, MiB in all.'
        else
            echo 'One causal sequence, one head of 64:'
        fi
        echo
        echo '| dtype | T | naive | MiB | tiled | MiB | forward speed-up | published, forward / backward |'
        echo '|---|---|---|---|---|---|---|---|'
        flatten "$folder/attention.jsonl" | with $which '
        function times(i) { return has[i, "forward_ms"] == "" ? has[i, "verdict"] : pair(has[i, "forward_ms"], has[i, "backward_ms"]) }
        END {
            for (i = 1; i + 1 <= n; i += 2) {
                if (has[i, "dim"] != 64) continue
                beside = ""
                for (j = 1; j <= np && want == "grid"; j++)
                    if (pub[j, "dtype"] == has[i, "dtype"] && pub[j, "seqlen"] == has[i, "seqlen"])
                        beside = beside (beside == "" ? "" : "; ") pub[j, "hardware"] " " pub[j, "how"] " " pair(pub[j, "forward_ms"], pub[j, "backward_ms"]) \
                            (pub[j, "memory_mb"] == "" ? "" : ", " pub[j, "memory_mb"] " MB")
                printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", has[i, "dtype"], has[i, "seqlen"], times(i), num(has[i, "memory_mib"], 0), times(i + 1),
                    num(has[i + 1, "memory_mib"], 0), num(has[i + 1, "speed_up"], 2), beside
            }
        }'
    done
    echo
    echo 'Queries per launch at 16 x 16384 x 64 (published tile sweep, MI300X: 16: 75.4, 32: 71.7, 64: 64.4, 128: 58.1 ms; 256 out of shared memory):'
    echo
    echo '| queries | launches | forward | backward | both ms | |'
    echo '|---|---|---|---|---|---|'
    flatten "$folder/attention.jsonl" | with tiles '
    END { for (i = 1; i <= n; i++) printf "| %s | %s | %s | %s | %s | %s |\n", has[i, "queries"], has[i, "launches"], ms(has[i, "forward_ms"]),
          ms(has[i, "backward_ms"]), ms(has[i, "both_ms"]), has[i, "verdict"] }'
    echo
}

ops() {
    echo '### Every op, under load'
    flatten "$folder/ops.jsonl" | awk -F '\t' '$1 == "fact" { f[$2] = $3 } END {
        printf "The roof: %.0f TFLOP/s in bf16, %.1f in f32, %.0f GB/s, measured in the same minute.\n\n", 1e-12 * f["peak_flops_bf16"], 1e-12 * f["peak_flops_f32"],
            1e-9 * f["memory_bandwidth"] }'
    echo '| op | dtype | shape | us | GB/s | TFLOP/s | of the roof |'
    echo '|---|---|---|---|---|---|---|'
    flatten "$folder/ops.jsonl" | with ops '
    END { for (i = 1; i <= n; i++) printf "| %s | %s | %s | %s | %s | %s | %s |\n", has[i, "op"], has[i, "dtype"], has[i, "shape"],
          has[i, "mean_us"] == "" ? has[i, "verdict"] : num(has[i, "mean_us"], 1), num(has[i, "gbps"], 0),
          has[i, "gflops"] == "" ? "-" : num(has[i, "gflops"] / 1000, 1), has[i, "roofline_percent"] == "" ? "-" : num(has[i, "roofline_percent"], 0) " %" }'
    echo
}

precision() {
    echo '### Precision: a step of 4 x 256 tokens, weights and tokens alike'
    echo
    echo '| model | policy | step ms ± std | speed-up | first loss | against f32 |'
    echo '|---|---|---|---|---|---|'
    flatten "$folder/precision.jsonl" | with speed '
    END {
        for (i = 1; i <= n; i++) printf "| %s | %s | %s | %s | %s | %s |\n", has[i, "model"], has[i, "policy"],
            has[i, "step_ms"] == "" ? has[i, "verdict"] : ms(has[i, "step_ms"]) " ± " ms(has[i, "std_ms"]), num(has[i, "speed_up"], 2), num(has[i, "first_loss"], 5),
            num(has[i, "loss_difference"], 6)
        for (j = 1; j <= np; j++) printf "| %s, published, %s | %s | %s images/s | %s | %s | |\n", pub[j, "net"], pub[j, "hardware"], pub[j, "precision"],
            num(pub[j, "images_per_s"], 1), num(pub[j, "speed_up"], 2), num(pub[j, "first_loss"], 5)
    }'
    echo
    echo '| switch | f32 products | bf16 sums |'
    echo '|---|---|---|'
    flatten "$folder/precision.jsonl" | with device '
    END { for (i = 1; i <= n; i++) printf "| %s | %s | %s |\n", has[i, "switch"], has[i, "f32_products"], has[i, "bf16_sums"] }'
    echo
}

system() {
    echo '### What the machine can do, and the profile held against runs'
    echo
    echo '| what | measured | nominal | |'
    echo '|---|---|---|---|'
    local json=$folder/system.json
    flatten "$json" | with peaks '
    END { for (i = 1; i <= n; i++) printf "| %s, %s | %s | %s | %s |\n", has[i, "dtype"], has[i, "how"], has[i, "tflops"] == "" ? "-" : num(has[i, "tflops"], 1) " TFLOP/s",
          num(has[i, "nominal"], 1), has[i, "percent"] == "" ? "" : num(has[i, "percent"], 0) " %" }'
    flatten "$json" | with bandwidth '
    END { for (i = 1; i <= n; i++) printf "| %s memory, %s | %s GB/s | %s | %s |\n", has[i, "memory"], has[i, "pattern"], num(has[i, "gbps"], 0),
          num(has[i, "nominal"], 0), has[i, "percent"] == "" ? "" : num(has[i, "percent"], 0) " %" }'
    flatten "$json" | with links '
    END { for (i = 1; i <= n; i++) printf "| copies %s | %s GB/s | %s | %s |\n", has[i, "direction"], num(has[i, "gbps"], 1), num(has[i, "nominal"], 1),
          has[i, "percent"] == "" ? "" : num(has[i, "percent"], 0) " %" }'
    flatten "$json" | with disk '
    END { for (i = 1; i <= n; i++) printf "| storage, %s | %s %s | - | |\n", has[i, "access"], num(has[i, "rate"], 0), has[i, "unit"] }'
    flatten "$json" | with sustained '
    END { for (i = 1; i <= n; i++) printf "| in training steps: %s | f32 %s, bf16 %s %s | - | |\n", has[i, "tasks"], num(has[i, "f32"], 1), num(has[i, "bf16"], 1), has[i, "unit"] }'
    echo
    [[ -s $folder/plan.jsonl ]] || return 0
    echo '| job | planned from the profile alone | run, median step | measured / planned |'
    echo '|---|---|---|---|'
    sed -n 's/.*"job":"\([^"]*\)","planned_step_s":\([^,]*\),"measured_step_s":\([^,]*\),"measured_over_planned":\([^}]*\)}.*/\1\t\2\t\3\t\4/p' "$folder/plan.jsonl" |
        awk -F '\t' '{ printf "| %s | %.2f ms | %.2f ms | %.2f |\n", $1, 1000 * $2, 1000 * $3, $4 }'
    echo
}

write() {
    machine
    for part in system lm attention ops precision; do
        [[ -s $folder/$part.jsonl || -s $folder/$part.json ]] && "$part"
    done
    return 0
}

if [[ ! $doc ]]; then
    write
    exit
fi
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
{
    awk '/<!-- tables -->/ { exit } { print }' "$doc"
    printf '<!-- tables -->\n'
    write
    printf '<!-- end of tables -->\n'
    awk 'behind { print } /<!-- end of tables -->/ { behind = 1 }' "$doc"
} > "$fresh"
cat "$fresh" > "$doc"
