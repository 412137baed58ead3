"""Writes tests/golden/data: compressed files and parquet files for the tests of src/data. Needs pyarrow and the program zstd."""

import gzip
import os
import struct
import subprocess

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


def write(name, data):
    with open(os.path.join(FOLDER, name), "wb") as f:
        f.write(data)


def streams():
    one, two = b'{"text": "one"}\n', b'{"text": "two"}\n'
    write("members.jsonl.gz", gzip.compress(one, mtime=0) + gzip.compress(two, mtime=0))
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"index"
    write("frames.jsonl.zst", skippable + zstd(one) + skippable + zstd(two, "--long=31"))
    write("zeros.zst", zstd(bytes(64 << 20), "-19"))


os.makedirs(FOLDER, exist_ok=True)
streams()
