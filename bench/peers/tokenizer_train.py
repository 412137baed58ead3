#!/usr/bin/env python3
"""Training of byte-level BPE next to `tokenizers`: the same texts, the same merges or an error, seconds of processor time on one thread.

    python3 bench/peers/tokenizer_train.py --sluice build/sluice --vocab 8192 [--min-count N] [--ids] TEXT|FOLDER...

Of Sluice it is the whole process `sluice tokenize --train`, with reading the files and writing the tokenizer; of tokenizers only
train_from_iterator, with the texts in memory. Files that are no UTF-8 are left out. With --ids, each file is also encoded by both, and
by transformers from the same folder.
"""
import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def copy_texts(paths, folder):
    """One copy of each file that is text, so that both read the same ones."""
    files = [p for p in paths if os.path.isfile(p)]
    for path in paths:
        files += sorted(os.path.join(d, name) for d, _, names in os.walk(path) for name in names)
    texts = []
    for path in files:
        with open(path, "rb") as f:
            data = f.read()
        try:
            texts.append(data.decode())
        except UnicodeDecodeError:
            continue
        with open(os.path.join(folder, f"{len(texts):06d}.txt"), "wb") as f:
            f.write(data)
    return texts


def train_peer(texts, args):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=args.vocab, min_frequency=args.min_count, show_progress=False,
                                  special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    start = time.process_time()
    t.train_from_iterator(texts, trainer)
    return json.loads(t.to_str())["model"], time.process_time() - start


def train_sluice(folder, out, args):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([args.sluice, "tokenize", "--train", "--vocab", str(args.vocab), "--min-count", str(args.min_count),
                    "--threads", "1", "--data", folder, "--out", out], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(os.path.join(out, "tokenizer.json"), encoding="utf-8") as f:
        model = json.load(f)["model"]
    return model, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_ids(folder, out, sluice):
    from transformers import AutoTokenizer
    peer, auto = Tokenizer.from_file(os.path.join(out, "tokenizer.json")), AutoTokenizer.from_pretrained(out)
    ids = different = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        want = peer.encode(text).ids
        command = [sluice, "tokenize", "--tokenizer", out, "--data", path, "--json"]
        got = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["tokens"] if text else []
        ids += len(want)
        different += not want == got == auto(text)["input_ids"]
    print(f"{ids} ids; {different} of {len(os.listdir(folder))} files differ")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="TEXT|FOLDER")
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--min-count", type=int, default=2)
    parser.add_argument("--ids", action="store_true")
    args = parser.parse_args()
    work = tempfile.mkdtemp()
    folder, out = os.path.join(work, "texts"), os.path.join(work, "tokenizer")
    os.mkdir(folder)
    try:
        texts = copy_texts(args.paths, folder)
        want, peer_s = train_peer(texts, args)
        got, sluice_s = train_sluice(folder, out, args)
        same = got["vocab"] == want["vocab"] and got["merges"] == want["merges"]
        print(f"{sum(len(t.encode()) for t in texts) / 1e6:.1f} MB, {len(texts)} files, {len(got['merges'])} merges, "
              f"{'the same' if same else 'DIFFERENT'}; tokenizers {peer_s:.2f} s, sluice {sluice_s:.2f} s, "
              f"{peer_s / sluice_s:.1f} times the faster")
        different = compare_ids(folder, out, args.sluice) if args.ids else 0
        sys.exit(0 if same and not different else 1)
    finally:
        shutil.rmtree(work)


main()
