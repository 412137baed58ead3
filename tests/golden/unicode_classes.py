#!/usr/bin/env python3
"""Writes src/text/unicode_table.c: the class of every code point as the regular expressions of `tokenizers` 0.23 see it (Unicode 16).

There are two kinds of those: patterns in files, and its own, where \\w leaves out numbers that are no digits, such as 1/2.

Run it with the `tokenizers` package to move to another Unicode version; building and testing Sluice need no Python:
    python3 tests/golden/unicode_classes.py > src/text/unicode_table.c
"""
from tokenizers import Regex, normalizers, pre_tokenizers

CLASSES = [r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\s"]
WORD, COMPOSES, COMBINES = 16, 32, 64
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for at in range(0, len(POINTS), 4096):
        for piece, _ in split.pre_tokenize_str("".join(map(chr, POINTS[at : at + 4096]))):
            found.update(map(ord, piece))
    return found


def main():
    table = [0] * 0x110000
    for index, pattern in enumerate(CLASSES):
        for c in members(pattern):
            table[c] |= index + 1
    words = pre_tokenizers.Whitespace()
    for c in POINTS:
        if words.pre_tokenize_str("a" + chr(c))[0][1][1] == 2:
            table[c] |= WORD
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    for c in POINTS:
        decomposed = nfd.normalize_str(chr(c))
        if nfc.normalize_str(chr(c)) != chr(c):
            table[c] |= COMPOSES
        elif len(decomposed) > 1:
            table[ord(decomposed[-1])] |= COMPOSES
        # U+0345 has the highest combining class: only one that is not zero goes before it.
        if c == 0x345 or nfd.normalize_str("\u0345" + chr(c))[0] != "\u0345":
            table[c] |= COMBINES
    runs = [(c, table[c]) for c in range(0x110000) if c == 0 or table[c] != table[c - 1]]
    print("/* Made by tests/golden/unicode_classes.py from Unicode 16; do not edit. Each number is where a run of equal classes begins,")
    print(" * shifted left by 8, and the class below it. */")
    print('#include "text/unicode.h"\n\n/* clang-format off */\nconst uint32_t sl_unicode_runs[] = {')
    line = "   "
    for c, value in runs:
        word = " %#x," % (c << 8 | value)
        if len(line) + len(word) > 120:
            print(line)
            line = "   "
        line += word
    print(line + "\n};\n/* clang-format on */")
    print("const int64_t sl_unicode_run_count = SL_COUNT(sl_unicode_runs);")


if __name__ == "__main__":
    main()
