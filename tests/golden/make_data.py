"""Writes tests/golden/data: compressed files and parquet files for the tests of src/data. Needs pyarrow and the program zstd."""

import gzip
import os
import struct
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq

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


# tests/data/test_parquet.c knows these rows.
ROWS = 250


def text(i):
    return None if i % 11 == 10 else ("row %d \u00e9 " % i) * (i % 5)


def chat(i):
    if i % 13 == 12:
        return None
    return [
        {"role": "assistant" if k % 2 else "user", "content": None if (i + k) % 9 == 8 else "m %d %d" % (i, k)}
        for k in range(i % 7)
    ]


def parquet():
    texts = pa.table({"id": pa.array(range(ROWS)), "text": pa.array([text(i) for i in range(ROWS)], pa.string())})
    message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    chats = pa.table({"messages": pa.array([chat(i) for i in range(ROWS)], message), "source": pa.array(["s"] * ROWS)})
    small = {"row_group_size": 100, "data_page_size": 600, "write_batch_size": 20, "write_statistics": False}
    for name, options in {
        "plain": {"compression": "none", "use_dictionary": False},
        "snappy": {"compression": "snappy"},
        "gzip-v2": {"compression": "gzip", "data_page_version": "2.0"},
        "zstd-delta": {
            "compression": "zstd",
            "use_dictionary": False,
            "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY", "id": "PLAIN"},
        },
    }.items():
        pq.write_table(texts, os.path.join(FOLDER, name + ".parquet"), **{**small, **options})
    pq.write_table(chats, os.path.join(FOLDER, "chats.parquet"), compression="snappy", **small)
    pq.write_table(
        chats, os.path.join(FOLDER, "chats-v2.parquet"), compression="zstd", data_page_version="2.0",
        use_dictionary=False, **small
    )
    pq.write_table(texts, os.path.join(FOLDER, "brotli.parquet"), compression="brotli")
    required = pa.schema([pa.field("content", pa.string(), nullable=False)])
    pq.write_table(
        pa.table({"content": ["one", "two", "three"]}, required), os.path.join(FOLDER, "required.parquet"),
        compression="none", use_dictionary=False
    )


os.makedirs(FOLDER, exist_ok=True)
streams()
parquet()
