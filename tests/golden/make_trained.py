#!/usr/bin/env python3
"""Writes tests/golden/text/trained.json: the merges that `tokenizers` learns from texts.json beside it, with the split pattern of Llama 3.

    python3 tests/golden/make_trained.py

Building and testing Sluice need no Python.
"""
import json
import os

from make_tokenizers import llama3
from tokenizers import pre_tokenizers, trainers

VOCAB, LEAST = 640, 2


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "text")
    with open(os.path.join(folder, "texts.json"), encoding="utf-8") as f:
        texts = json.load(f)
    tokenizer, _ = llama3()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, min_frequency=LEAST, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    with open(os.path.join(folder, "trained.json"), "w", encoding="utf-8") as f:
        json.dump({"vocab": VOCAB, "least": LEAST, "merges": model["merges"]}, f, ensure_ascii=False,
                  separators=(",", ":"))
        f.write("\n")


main()
