#!/usr/bin/env python3
"""Ids next to `tokenizers`, on texts made for it and any others: fourteen scripts, code, LaTeX, emoji, runs of white space, added tokens among
other text, random bytes, and random code points of the first plane and of all.

    python3 bench/peers/tokenizer_parity.py --sluice build/sluice --tokenizer DIR... [--kilobytes 400] [--text TEXT...]

Each text is encoded twice, with its added tokens as tokens and as text, and decoded again. tests/golden/make_tokenizers.py makes tokenizers
of every family. The texts depend on nothing but the script, Python's own library (the code) and the added tokens.
"""
import argparse
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402

SCRIPTS = {"latin": [(0x61, 0x7A)], "accented": [(0x61, 0x7A), (0xDF, 0xF6), (0xF8, 0x17F), (0x1EA0, 0x1EF9)], "greek": [(0x3B1, 0x3C9), (0x3AC, 0x3AF)],
           "cyrillic": [(0x430, 0x44F), (0x451, 0x45F)], "hebrew": [(0x5D0, 0x5EA), (0x5B0, 0x5BC)], "arabic": [(0x627, 0x64A), (0x64B, 0x652)],
           "devanagari": [(0x905, 0x939), (0x93E, 0x94D)], "bengali": [(0x985, 0x9B9), (0x9BE, 0x9CD)], "tamil": [(0xB85, 0xBB9), (0xBBE, 0xBCD)],
           "thai": [(0xE01, 0xE3A), (0xE40, 0xE4E)], "ethiopic": [(0x1200, 0x1357)], "hangul": [(0xAC00, 0xD7A3)],
           "han": [(0x4E00, 0x9FA5)], "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4FFF)]}
UNSPACED = {"thai", "han", "kana"}
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "♥️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🤷🏿‍♀️", "☃", "🫠", "🇯🇵🇰🇷"]
LATEX = ["\\begin{align}\n  ", "\\end{align}\n", "\\frac{", "}{", "}", "\\sum_{i=1}^{n} ", "x_{ij}", "\\alpha", "$", "$$", " & = ", " \\\\\n", "% note\n",
         "\\mathbb{R}^{2d}", "\\left( ", "\\right)", "\\cite{key2024}", "~\\ref{eq:1}", "\\nabla_\\theta \\mathcal{L}", "\\item "]
WHITE = [" ", "  ", "    ", "\t", "\n", "\r\n", "\r", "\n\n\n", "\u3000", "\xa0", "\x85", "\u2003", "\x0b", " \n", "\u2028", "x", " y", "1"]
MIXED = ["a", "B", "'s", "'LL", "ſ", "1", "234", "é", "e\u0301", "中", "か", "カ", "!", "?!", "/", "▁", "한", "\u1112\u1161\u11ab", "\u0e33", "\u0300", "\u0316",
         "Ⅷ", "ǅ", "ﬁ", "İ", "½", "http://", "_", "www.", "word", " word", "\n", " ", "  ", "\t", "mask me", "<", "|", ">", "[", "]"]


def words(rng, ranges, count=4000):
    letters = [chr(c) for low, high in ranges for c in range(low, high + 1) if unicodedata.category(chr(c)) != "Cn"]
    # Some letters are frequent, as in any language, so that merges apply.
    weights = [1 / (1 + rng.random() * len(letters)) for _ in letters]
    made = ["".join(rng.choices(letters, weights, k=rng.choice([1, 2, 2, 3, 3, 4, 5, 6, 8, 11]))) for _ in range(count)]
    return made + [w.upper() for w in made[:200]] + [w.title() for w in made[200:900]]


def prose(rng, name, size):
    vocabulary, out, length = words(rng, SCRIPTS[name]), [], 0
    marks = ["。", "、", "「", "」", "", "", "", ""] if name in UNSPACED else [" ", " ", " ", " ", " ", ", ", ". ", "? ", " — ", "\n", "-", "'s ", " (", ") "]
    while length < size:
        word = vocabulary[int(len(vocabulary) * rng.random() ** 3)] if rng.random() < 0.97 else str(rng.randrange(10 ** rng.randrange(1, 9)))
        out.append(word + rng.choice(marks))
        length += len(out[-1].encode())
    return "".join(out)


def of_parts(rng, parts, size):
    out, length = [], 0
    while length < size:
        out.append(rng.choice(parts))
        length += len(out[-1].encode())
    return "".join(out)


def python_code(size):
    out = ""
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py"))):
        out += open(path, encoding="utf-8", errors="replace", newline="").read()
        if len(out) > size:
            break
    return out[:size]


def make_texts(size, added):
    rng = random.Random(18)
    texts = {name: prose(rng, name, size) for name in SCRIPTS}
    texts["code"] = python_code(size)
    texts["latex"] = of_parts(rng, LATEX + words(rng, SCRIPTS["latin"], 60), size)
    texts["emoji"] = of_parts(rng, EMOJI + [" ", "ok ", "\n"], size)
    texts["white space"] = of_parts(rng, WHITE, size // 2)
    texts["long runs"] = "".join(rng.choice(" \nab=-中") * rng.randrange(1, 900) for _ in range(size // 500))
    texts["no spaces"] = of_parts(rng, words(rng, SCRIPTS["latin"], 2000), size)
    texts["added tokens"] = of_parts(rng, MIXED + [rng.choice(["", " "]) + a + rng.choice(["", " "]) for a in added], size)
    texts["random bytes"] = rng.randbytes(size // 2)
    texts["first plane"] = "".join(chr(rng.choice([c for c in [rng.randrange(0x3100), rng.randrange(0x10000)] if not 0xD800 <= c < 0xE000] or [0x61]))
                                   for _ in range(size // 3))
    texts["all planes"] = "".join(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])) for _ in range(size // 4))
    return texts


def sluice_ids(sluice, tokenizer, path, special):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "ids.bin")
        command = [sluice, "tokenize", "--tokenizer", tokenizer, "--data", path, "--out", out, "--separator", "none", "--threads", "1",
                   "--data-format", "text"]
        subprocess.run(command + (["--special"] if special else []), check=True, capture_output=True)
        raw = open(out, "rb").read()
        _, version, count = struct.unpack("<iii", raw[:12])
        ids = struct.unpack("<%d%s" % (count, "H" if version == 1 or version == 3 else "I"), raw[1024:])
        text = subprocess.run([sluice, "tokenize", "--tokenizer", tokenizer, "--decode", "--data", out], check=True, capture_output=True).stdout
        return list(ids), text


def compare(args, tokenizer, peer, name, text, folder):
    """The number of differences, and how many bytes were compared."""
    path, failures = os.path.join(folder, "text.txt"), 0
    data = text if isinstance(text, bytes) else text.encode()
    with open(path, "wb") as f:
        f.write(data)
    text = data.decode("utf-8", "replace")
    for special in (True, False):
        peer.encode_special_tokens = not special
        want = peer.encode(text, add_special_tokens=False).ids
        got, decoded = sluice_ids(args.sluice, tokenizer, path, special)
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            shown = peer.decode(want[max(0, at - 3) : at + 5], skip_special_tokens=False)
            print("DIFFERENT %s, %s, special %s: id %d is %s, not %s: %r" % (tokenizer, name, special, at, got[at : at + 3], want[at : at + 3], shown))
            failures += 1
        elif decoded.decode("utf-8", "replace").rstrip("\n") != peer.decode(want, skip_special_tokens=False).rstrip("\n"):
            print("DECODED DIFFERENTLY %s, %s, special %s" % (tokenizer, name, special))
            failures += 1
    return failures, len(data)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--sluice", default="build/sluice")
    args.add_argument("--tokenizer", nargs="+", required=True)
    args.add_argument("--kilobytes", type=int, default=400, help="of each text")
    args.add_argument("--text", nargs="*", default=[])
    args = args.parse_args()
    failures = 0
    for tokenizer in args.tokenizer:
        path = os.path.join(tokenizer, "tokenizer.json")
        peer, total, before = Tokenizer.from_file(path), 0, failures
        added = [a["content"] for a in json.load(open(path, encoding="utf-8"))["added_tokens"]]
        texts = make_texts(args.kilobytes * 1000, added)
        texts.update({name: open(name, "rb").read() for name in args.text})
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                wrong, size = compare(args, tokenizer, peer, name, text, folder)
                failures, total = failures + wrong, total + size
        print("%s: %.1f MB in %d texts, %d differences" % (os.path.basename(tokenizer.rstrip("/")), total / 1e6, len(texts), failures - before), flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
