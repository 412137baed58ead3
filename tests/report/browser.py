"""Looks at report pages as people would: in a browser, at 1280 and 390 px, in both themes.

    browser.py CHROMIUM PAGE.html=EVENTS.jsonl|- ... [--shots FOLDER]

Speaks the DevTools protocol over a pipe (no packages needed). Fails on a console message, on a request to anywhere but the
page itself, on anything that is wider than the window, on text that is cut off by its drawing or lies on other text, on text
that is too pale to read, and on numbers that differ from the event log the page was made from.
"""
import base64
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

LOOK = r"""
(() => {
    const wrong = [], visible = e => e.getClientRects().length > 0;
    const root = document.documentElement;
    if (root.scrollWidth > window.innerWidth) wrong.push('the page is ' + root.scrollWidth + ' px wide');
    const name = e => e.textContent.trim().slice(0, 40);
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgb = c => { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
    const light = c => { const [r, g, b] = [...rgb(c)].slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                         return .2126 * r + .7152 * g + .0722 * b; };
    const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
    const card = getComputedStyle(document.querySelector('.panel')).backgroundColor;
    let texts = 0, drawings = 0;
    for (const svg of document.querySelectorAll('svg')) {
        if (!visible(svg)) continue;
        drawings++;
        const frame = svg.getBoundingClientRect(), boxes = [];
        for (const text of svg.querySelectorAll('text')) {
            const box = text.getBoundingClientRect(), panel = svg.closest('.panel').id;
            texts++;
            if (box.height < 9) wrong.push(panel + ': "' + name(text) + '" is only ' + box.height.toFixed(1) + ' px tall');
            if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
                wrong.push(panel + ': "' + name(text) + '" is cut off');
            for (const [other, b] of boxes)
                if (box.left < b.right - 1 && b.left < box.right - 1 && box.top < b.bottom - 3 && b.top < box.bottom - 3)
                    wrong.push(panel + ': "' + name(text) + '" lies on "' + name(other) + '"');
            boxes.push([text, box]);
            if (!text.matches('.cell, .onbar') && contrast(getComputedStyle(text).fill, card) < 4.5)
                wrong.push(panel + ': "' + name(text) + '" is too pale');
        }
        for (const shape of svg.querySelectorAll('rect, path, circle, line')) {
            const box = shape.getBoundingClientRect();
            if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2)
                wrong.push(svg.closest('.panel').id + ': a ' + shape.tagName + ' leaves the drawing');
        }
    }
    for (const e of document.querySelectorAll('h1, h2, p, .tile b, .tile span, .tile small, .legend li, dd, footer')) {
        if (!visible(e)) continue;
        const back = e.closest('.panel, .tile') ? card : getComputedStyle(document.body).backgroundColor;
        if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') wrong.push('"' + name(e) + '" is cut off');
        if (contrast(getComputedStyle(e).color, back) < 4.5) wrong.push('"' + name(e) + '" is too pale');
    }
    for (const table of document.querySelectorAll('.scroll')) {
        if (table.getBoundingClientRect().right > window.innerWidth) wrong.push('a table leaves the window');
        if (table.closest('#ops, #figures') && table.scrollWidth > table.clientWidth + 1)
            wrong.push('the table of ' + table.closest('.panel').id + ' is cut off');
    }
    for (const bar of document.querySelectorAll('section[id^=bars] svg')) {  // each bar's title is its whole name
        if (!visible(bar)) continue;
        const shown = [...bar.querySelectorAll('.lab')].map(t => t.textContent).join('').replace(/\s/g, '');
        const whole = [...bar.querySelectorAll('rect title')].map(t => t.textContent).join('').replace(/\s/g, '');
        if (shown !== whole) wrong.push(bar.closest('.panel').id + ': names of bars are not complete');
    }
    const tiles = {};
    for (const t of document.querySelectorAll('.tile')) tiles[t.id] = t.querySelector('b').textContent;
    const ops = [...document.querySelectorAll('#ops tbody tr')].map(r => [...r.children].map(c => c.textContent.trim()));
    return {wrong, texts, drawings, tiles, ops, panels: [...document.querySelectorAll('.panel')].map(p => p.id),
            limit: document.querySelector('#limit')?.dataset.limit, height: root.scrollHeight, theme: card,
            figures: [...document.querySelectorAll('script.figures')].map(s => JSON.parse(s.textContent))};
})()
"""


SILENT_SECONDS = 60  # a browser that hangs fails the test instead of outlasting it


class Browser:
    def __init__(self, program):
        to_read, self.to = os.pipe()
        self.of, from_write = os.pipe()
        def child():  # the protocol's file descriptors are 3 and 4
            os.dup2(to_read, 30)
            os.dup2(from_write, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync",
             "--disable-dev-shm-usage", "--user-data-dir=" + self.folder, "about:blank"],
            preexec_fn=child, close_fds=False, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            if not select.select([self.of], [], [], SILENT_SECONDS)[0]:
                self.close()
                raise SystemExit("the browser has said nothing for %d s" % SILENT_SECONDS)
            more = os.read(self.of, 1 << 20)
            if not more:
                raise SystemExit("the browser has gone")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, height, dark):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.ask("Page.navigate", url="file://" + os.path.abspath(path))
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())

    def look(self):
        result = self.ask("Runtime.evaluate", expression=LOOK, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(json.dumps(result["exceptionDetails"])[:500])
        return result["result"]["value"]

    def shot(self, path, width, height):
        picture = self.ask("Page.captureScreenshot", captureBeyondViewport=True,
                           clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as out:
            out.write(base64.b64decode(picture["data"]))

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # its helpers with it: they are a session of their own
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", what)


def number(text):
    return float(text.replace(",", "").split()[0])


def near(text, value):
    """The shown number is the value, rounded to the digits shown."""
    shown = number(text)
    digits = text.replace(",", "").split()[0].partition(".")[2]
    return abs(shown - value) <= max(0.5 * 10 ** -len(digits), 0.006 * abs(value)) + 1e-9


def check_run(page, seen, events):
    lines = [json.loads(line) for line in open(events)]
    steps = [e for e in lines if e["event"] == "step"]
    end = [e for e in lines if e["event"] == "end"][-1]
    run = [e for e in lines if e["event"] == "run"][-1]
    for panel in ("limit", "timeline", "memory-device", "memory-host", "loss", "throughput", "grad-norm", "learning-rate", "roofline", "ops",
                  "figures"):
        check(panel in seen["panels"], "%s has no panel %s" % (page, panel))
    first = run["first_step"]  # figures are about the steps since the last resume; those it did again are in the log twice
    begin = max(i for i, e in enumerate(lines) if e["event"] == "run")
    last = [e for e in lines[begin:] if e["event"] == "step"]
    median = statistics.median(s["seconds"] for s in (last[1:] or last))
    check(("sessions" in seen["panels"]) == (first > 0), "%s: a table of sessions" % page)
    tiles, figures = seen["tiles"], seen["figures"][0]
    check(near(tiles["tile-speed"], run["tokens_per_step"] / median), "speed: " + tiles["tile-speed"])
    check(near(tiles["tile-last-loss"], steps[-1]["loss"]), "loss: " + tiles["tile-last-loss"])
    check(near(tiles["tile-mfu"], 100 * end["mfu"]), "MFU: " + tiles["tile-mfu"])
    check(abs(figures["step_s"] - median) < 1e-12, "the page's JSON has another step time")
    check(figures["device_peak_bytes"] == end["device_peak_bytes"], "the page's JSON has another peak")
    check(seen["limit"] == figures["limit"], "the verdict differs from the JSON")
    check(abs(sum(figures["shares"].values()) - 1) < 1e-9, "shares do not add up to 1")
    ops = {op["op"] + (" host" if op["stream"] == "host" else ""): op for op in end["ops"]}
    check(len(seen["ops"]) == len(ops), "%d of %d ops are shown" % (len(seen["ops"]), len(ops)))
    check(abs(sum(number(row[4]) for row in seen["ops"]) - 100) < 0.05 * len(ops) + 0.1, "shares of ops do not add up to 100 %")
    for row in seen["ops"]:
        check(row[0] in ops and number(row[2]) == ops[row[0]]["count"], "op %s: %s calls" % (row[0], row[2]))
    busy = {}
    for event in lines:
        if event["event"] == "timeline":
            busy = {} if event["first"] == 0 else busy
            for row in event["rows"]:
                busy[row[0]] = busy.get(row[0], 0) + row[8] - row[7]
    for stream, ns in busy.items():
        check(figures["busy_ns"][stream] == ns, "stream %s is busy for another time" % stream)


def main():
    arguments, shots = sys.argv[1:], None
    if "--shots" in arguments:
        at = arguments.index("--shots")
        shots = arguments[at + 1]
        del arguments[at:at + 2]
    browser = Browser(arguments[0])
    try:
        look_at_all(browser, arguments[1:], shots)
    finally:
        browser.close()
    print("browser:", "ok" if not failures else "%d failures" % failures)
    sys.exit(1 if failures else 0)


def look_at_all(browser, pairs, shots):
    for pair in pairs:
        page, _, events = pair.partition("=")
        themes = set()
        for width in (1280, 390):
            for dark in (False, True):
                where = "%s at %d px, %s" % (os.path.basename(page), width, "dark" if dark else "light")
                browser.open(page, width, 900, dark)
                seen = browser.look()
                themes.add(seen["theme"])
                check(not seen["wrong"], "%s: %s" % (where, "; ".join(seen["wrong"][:8])))
                check(seen["drawings"] > 0 and seen["texts"] > 0, where + ": nothing is drawn")
                for event in browser.events:
                    method, p = event.get("method"), event.get("params", {})
                    check(method not in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"),
                          "%s: console: %s" % (where, json.dumps(p)[:300]))
                    if method == "Network.requestWillBeSent":
                        url = p["request"]["url"]
                        check(url.startswith("file://") and url.endswith(os.path.basename(page)) or url.startswith("data:"),
                              "%s asks for %s" % (where, url))
                if shots:
                    name = os.path.splitext(os.path.basename(page))[0]
                    browser.shot(os.path.join(shots, "%s-%d-%s.png" % (name, width, "dark" if dark else "light")), width,
                                 seen["height"])
                print("%s: %d panels, %d drawings, %d texts" % (where, len(seen["panels"]), seen["drawings"], seen["texts"]))
        check(len(themes) == 2, page + " has one theme only")
        if events and events != "-":
            check_run(page, seen, events)


main()
