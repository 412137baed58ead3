#!/usr/bin/env bash
# Pages of a real run, a sweep and a bench, looked at in a headless browser (browser.py); the trace of the run beside them.
# Skipped where there is no browser that runs or no python.
set -euo pipefail
export LC_ALL=C.UTF-8
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
command -v python3 >/dev/null && [ -n "$browser" ] || { echo "skipped: no chromium or no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work" || true' EXIT # a browser's helpers may still be leaving, and that is no failure
cd "$work"
export XDG_CACHE_HOME=$work/cache TMPDIR=$work # a browser leaves files behind
# A name is not a browser yet: it may be a note where to get one, or want what a container does not give.
timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/try" --dump-dom about:blank >try.html 2>try.err </dev/null &&
    grep -q '<html>' try.html || { echo "skipped: $browser does not run here: $(tail -n 1 try.err)"; exit 77; }

"$SLUICE" train --model byte-test --data "$SLUICE_SOURCE/README.md" --seqlen 64 --tokens-per-step 512 --steps 60 --val-every 20 --sample-every 30 --sample-prompt "A <b> " \
    --chunk-tokens 128 --threads 2 --device-mem 3MiB --out run --quiet >/dev/null
"$SLUICE" report run --trace trace.json --csv steps.csv --quiet >report.log
grep -q '^page    run/report.html$' report.log

# Resumed under another budget, and two runs beside each other.
"$SLUICE" train --model byte-test --data "$SLUICE_SOURCE/README.md" --seqlen 64 --tokens-per-step 512 --steps 20 --clip 1 \
    --chunk-tokens 128 --threads 2 --device-mem 3MiB --out again --checkpoint-every 10 --quiet >/dev/null
"$SLUICE" train --model byte-test --data "$SLUICE_SOURCE/README.md" --seqlen 64 --tokens-per-step 512 --steps 45 --clip 1 \
    --chunk-tokens 128 --threads 2 --device-mem 12MiB --out again --resume --quiet >/dev/null
"$SLUICE" report again --quiet >/dev/null
"$SLUICE" report run again --out both.html --quiet >/dev/null
for part in 'id="sessions"' 'id="grad-norm"' 'id="learning-rate"' '>device 12.0 MiB</text>' 'resumed with another budget'; do
    grep -q "$part" again/report.html || { echo "the resumed run's page has no $part"; exit 1; }
done
for panel in compare-loss compare-throughput compare-grad-norm compare-learning-rate compared compare-samples; do
    grep -q "id=\"$panel\"" both.html || { echo "the page of two runs has no panel $panel"; exit 1; }
done

# A mouthful of everything that could end an attribute, an element or a script too early.
sed 's/"model":"byte-test"/"model":"<b>\\"\&amp;'"'"'<\/script><img src=x>"/' run/events.jsonl >odd.jsonl
"$SLUICE" report odd.jsonl --quiet >/dev/null
! grep -q '<img' odd.html

# A sweep of two real cells, spread over a grid of two lengths by twenty by six budgets.
"$SLUICE" sweep --model byte-test --seqlen 32 --tokens-per-step 64 --costs roofline --device cpu --threads 2 --device-mem 64KiB,1MiB --out two.jsonl \
    --quiet >/dev/null
python3 - <<'END'
import json
head, *cells = [json.loads(line) for line in open("two.jsonl")]
fits = next(c for c in cells if c["feasible"])
not_fits = next(c for c in cells if not c["feasible"])
with open("sweep.jsonl", "w") as out:
    print(json.dumps(head), file=out)
    for seqlen in (8192, 65536):
        for device in range(4, 84, 4):
            for host in (64, 80, 96, 128, 256, None):
                cell = dict(fits if device > 8 and host != 64 else not_fits)
                cell.update(cell="%d %d %s" % (seqlen, device, host), seqlen=seqlen, device_budget_bytes=device << 30,
                            host_budget_bytes=host and host << 30)
                if cell["feasible"]:
                    cell.update(tokens_per_s=9000 + 40 * device * 8192 / seqlen, mfu=.4 + device / 400, hfu=.5 + device / 400, tflops=500 + device)
                print(json.dumps(cell), file=out)
END
"$SLUICE" report sweep.jsonl --quiet >/dev/null
# Names that are far too long for a phone.
cat >bars.json <<'END'
{"kind":"bench","name":"names","columns":["what",{"name":"time","unit":"ms"}],"rows":[["one",1.5],
["matrix multiply 4096 x 1024, batch 512",3],["attention with many heads, long slices",2.25]]}
END
"$SLUICE" report bars.json --quiet >/dev/null
"$SLUICE" bench flops --quick --json >flops.json
"$SLUICE" report flops.json --quiet >/dev/null
for panel in heat-tokens_per_s-1 heat-tflops-1 heat-mfu-1 heat-hfu-2 speed-1 table-1; do
    grep -q "id=\"$panel\"" sweep.html || { echo "the sweep's page has no panel $panel"; exit 1; }
done
grep -q 'id="flop-scaling"' flops.html

python3 - <<'END'
import json, re
trace = json.load(open("trace.json"))
figures = json.loads(re.search(r'class="figures">(.*?)</script>', open("run/report.html").read()).group(1))
tracks, busy = {}, {}
for e in trace["traceEvents"]:
    assert e["ph"] in "MXC" and isinstance(e["pid"], int), e
    if e["ph"] == "M" and e["name"] == "thread_name":
        tracks[e["pid"], e["tid"]] = e["args"]["name"]
    if e["ph"] == "X":
        assert e["ts"] >= 0 and e["dur"] >= 0 and e["name"], e
        busy[e["pid"], e["tid"]] = busy.get((e["pid"], e["tid"]), 0) + round(1000 * e["dur"])
names = {"compute": "compute", "copies in": "in", "copies out": "out", "host": "host"}
assert len(tracks) >= 6 and set(busy) == set(tracks), (tracks, busy)
for (pid, tid), ns in busy.items():
    want = figures["busy_ns" if pid == 1 else "predicted_busy_ns"][names[tracks[pid, tid]]]
    assert ns == want, (pid, tid, ns, want)
rows = open("steps.csv", newline="").read().split("\r\n")
assert rows[0].startswith("step,loss,") and len(rows) == 62, len(rows)
print("trace and csv: ok")
END
python3 "$SLUICE_SOURCE/tests/report/browser.py" "$browser" run/report.html=run/events.jsonl again/report.html=again/events.jsonl both.html=- odd.html=- sweep.html=- \
    flops.html=- bars.html=- ${SHOTS:+--shots "$SHOTS"}
