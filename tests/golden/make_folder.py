#!/usr/bin/env python3
"""Makes folder/: a tiny model as transformers' save_pretrained writes it, in f16 and in several files, with a tokenizer, a chat template
and generation settings, and expected.json: a sequence of tokens and transformers' f32 loss on it. Run once; needs torch, tokenizers and
transformers 5.
"""
import json
import os
import shutil

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "folder")


def main():
    torch.manual_seed(3)
    shutil.rmtree(OUT, ignore_errors=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:60]
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", bos_token="<begin>")
    tokenizer.chat_template = {"default": "{% for m in messages %}{{ m.content }}<end>{% endfor %}", "tools": "{{ tools }}"}
    tokenizer.save_pretrained(OUT)

    config = LlamaConfig(vocab_size=72, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.1, eos_token_id=[60, 61],
                         bos_token_id=61, tie_word_embeddings=False)
    model = LlamaForCausalLM(config).to(torch.float16)
    model.generation_config.temperature, model.generation_config.do_sample = 0.7, True
    model.save_pretrained(OUT, max_shard_size="9KB")

    tokens = torch.randint(0, 62, (1, 33))
    logits = model.float()(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:])
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        json.dump({"tokens": tokens[0].tolist(), "loss": float(loss)}, f)
    os.system(f"chmod -R u+rw,go+r '{OUT}'")


main()
