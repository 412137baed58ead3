#!/usr/bin/env python3
"""Writes tests/golden/text: small tokenizers whose pipelines are those of well-known families, texts, and the ids that `tokenizers` gives.

    python3 tests/golden/make_tokenizers.py [--out DIR] [--vocab N] [--corpus FILE...]

With --corpus and --vocab it makes larger ones, for comparing and measuring. Building and testing Sluice need no Python.
"""
import argparse
import json
import os
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
QWEN2 = CL100K.replace("{1,3}", "")
QWEN35 = ENGLISH + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
O200K = (LEAD + UPPER + "*" + LOWER + "+" + ENGLISH + "?|" + LEAD + UPPER + "+" + LOWER + "*" + ENGLISH
         + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)
TEKKEN = (LEAD + UPPER + "*" + LOWER + "+|" + LEAD + UPPER + "+" + LOWER + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + SPACES]


def byte_level(*patterns, normalizer=None):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    t.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, ["<|endoftext|>"]


def llama3():
    return byte_level(CL100K), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]


def qwen2():
    return byte_level(QWEN2, normalizer=normalizers.NFC()), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def qwen35():
    return byte_level(QWEN35, normalizer=normalizers.NFC()), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def deepseek():
    t = byte_level(*DEEPSEEK, normalizer=normalizers.Sequence([]))
    return t, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]


def o200k():
    return byte_level(O200K), ["<|endoftext|>", "<|return|>"]


def tekken():
    return byte_level(TEKKEN), ["<s>", "</s>", "[INST]", "[/INST]"]


def smollm():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    return t, ["<|endoftext|>", "<|im_start|>"]


def sentencepiece(**model):
    return Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, **model))


def llama_decoder(strip):
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                             + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2_legacy():
    t = sentencepiece()
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = llama_decoder(True)
    return t, ["<unk>", "<s>", "</s>"]


def llama2():
    t = sentencepiece()
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    t.decoder = llama_decoder(True)
    return t, ["<unk>", "<s>", "</s>"]


def gemma():
    t = sentencepiece()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = llama_decoder(False)
    return t, ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"]


def words():
    """Every other component: what a test needs, no family's."""
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                         normalizers.Replace(Regex(r"\d{4,}"), "<many>")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("||", "removed"), pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Punctuation("merged_with_previous"),
                                               pre_tokenizers.Split(Regex("[aeiou]z"), "merged_with_next"),
                                               pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True)])
    t.decoder = decoders.Metaspace("▁", prepend_scheme="always", split=True)
    return t, ["[UNK]", "[CLS]", "[SEP]"]


FAMILIES = [gpt2, llama3, qwen2, qwen35, deepseek, o200k, tekken, smollm, llama2_legacy, llama2, gemma, words]
EXTRA = [AddedToken("<think>", special=False, normalized=False), AddedToken("mask me", lstrip=True, rstrip=True, normalized=False),
         AddedToken("word", single_word=True, normalized=True, special=False), AddedToken("<mask>", lstrip=True, special=True),
         AddedToken("Éa", special=False, normalized=True)]


def train(family, corpus, vocab):
    t, specials = family()
    name = family.__name__
    pieces = name in ("llama2_legacy", "llama2", "gemma", "words")
    # A sentencepiece vocabulary is trained on words; its tokenizer then sees the whole text as one.
    trained_as = t.pre_tokenizer
    changed = t.normalizer
    if pieces and name != "words":
        t.normalizer = normalizers.Replace(" ", "▁")
        words = Regex(r"▁*\p{L}+|▁*\p{N}|▁+|\n+|[^\p{L}\p{N}▁\n]+")
        t.pre_tokenizer = pre_tokenizers.Split(words, "isolated")
        specials = specials + ["<0x%02X>" % b for b in range(256)]
    alphabet = {"limit_alphabet": 1000} if pieces else {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False, **alphabet)
    t.train_from_iterator(corpus, trainer)
    if pieces and name != "words":
        data = json.loads(t.to_str())
        data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
        data["model"]["byte_fallback"] = True
        # Every way to make a token is a merge, as conversions of such vocabularies write them.
        vocabulary, merges = data["model"]["vocab"], []
        made = {a + b for a, b in (m if isinstance(m, list) else m.split(" ") for m in data["model"]["merges"])}
        for token in sorted(made, key=vocabulary.get):
            merges += [[token[:i], token[i:]] for i in range(1, len(token)) if token[:i] in vocabulary and token[i:] in vocabulary]
        data["model"]["merges"] = merges
        t = Tokenizer.from_str(json.dumps(data))
        t.normalizer, t.pre_tokenizer = changed, trained_as
    if name == "llama3":
        data = json.loads(t.to_str())
        data["model"]["ignore_merges"] = True
        t = Tokenizer.from_str(json.dumps(data))
    if name in ("llama3", "llama2", "llama2_legacy", "gemma", "deepseek"):
        first = specials[{"llama3": 0, "deepseek": 0, "gemma": 2}.get(name, 1)]
        template = processors.TemplateProcessing(single=first + " $A", pair=first + " $A $B", special_tokens=[(first, t.token_to_id(first))])
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if name == "llama3" else template
    t.add_tokens(EXTRA)
    return t


SENTENCES = """The quick brown fox doesn't jump over 12345 lazy dogs; they've SEEN IT'S "done", haven't THEY'LL?
Wie heißt du? Ich heiße Jürgen, und das ist natürlich eine schöne Straße. Ça va très bien, où êtes-vous, garçon? ¿Cómo está señor?
Съешь же ещё этих мягких французских булок, да выпей чаю. Ελληνικά γράμματα και λέξεις είναι όμορφα.
今天天气很好，我们去公园散步吧。人工智能正在改变世界。日本語の文章はひらがなとカタカナと漢字で書かれています。
한국어 문장은 띄어쓰기가 있습니다. 안녕하세요 세계. हिन्दी में लिखा हुआ वाक्य यहाँ है। தமிழ் மொழி மிகவும் பழமையானது.
ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ กขคง. اللغة العربية جميلة جدا وفيها حروف كثيرة. አማርኛ ጽሑፍ እዚህ አለ። עברית היא שפה יפה.
def main(argc: int, argv: list[str]) -> int:\n    for i in range(0, 100, 7):\n\t\tprint(f"{i:>4} {argv[i]!r}")\n    return 0\n\n
\\begin{equation} \\frac{\\partial L}{\\partial w_{ij}} = \\sum_{k=1}^{N} \\alpha_k^2 \\end{equation}
😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ♥️ ∑∫≠≤ ½ ² Ⅷ ① ǅ ﬁ İI ß ẞ Å é é ñ ñ 각 각
http://example.com/a/b?c=d&e=%20f#g  user@example.org  C:\\path\\file.txt  1,234.56  2024-01-31  0xDEADBEEF  ---  ...  ###
    four spaces\n\n\n   three\n \n\t\ttabs \t mix\r\ncrlf\r\n\r\n   trailing   """


def corpus_of(files):
    if not files:
        return [line + "\n" for line in SENTENCES.split("\n")] * 3
    lines = []
    for path in files:
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        lines += [text[i : i + 4096] for i in range(0, len(text), 4096)]
    return lines


def texts():
    rng = random.Random(7)
    out = ["", " ", "a", "  a", "\n", " \n ", "▁", "a▁b ▁ c", "it's IT'S it'ſ 'S 'Ll we'VEx", "x  \n\n  y\t\n z   ", SENTENCES]
    out += SENTENCES.split("\n")
    out += ["<|endoftext|>a<|im_start|>user<s>b</s> <mask>  word words <think>mask me  x", "sword word, aword word1 word", "  <mask>  ",
            "Éa e\u0301a E\u0301a", "abc||def 12345 banzai", "<bos><eos><start_of_turn><|begin_of_text|>x<|eot_id|>", "[INST] hi [/INST]",
            "<｜begin▁of▁sentence｜>x<｜end▁of▁sentence｜>", "<0x41><unk>", "a" * 300, " " * 200 + "x", "abcdefgh" * 60]
    pool = [c for c in range(0x20, 0x30000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    marks = [c for c in pool if unicodedata.category(chr(c))[0] == "M" and c < 0x3100]
    out += ["".join(chr(rng.choice(pool)) for _ in range(50)) for _ in range(12)]
    out += ["".join(rng.choice(["a", "B", " ", "e", "1", "'", "\n", "ß", "中", chr(rng.choice(marks)), chr(rng.choice(pool))]) for _ in range(50))
            for _ in range(12)]
    out += ["".join(rng.choice(["a", "b", "'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "1", "23", "/", "!?", "A", "É", "\u0301", "中", "カ"])
                    for _ in range(80)) for _ in range(12)]
    return out


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    args = argparse.ArgumentParser()
    args.add_argument("--out", default=os.path.join(here, "text"))
    args.add_argument("--vocab", type=int, default=600)
    args.add_argument("--corpus", nargs="*", default=[])
    args = args.parse_args()
    corpus = corpus_of(args.corpus)
    os.makedirs(args.out, exist_ok=True)
    samples = texts()
    with open(os.path.join(args.out, "texts.json"), "w") as f:
        json.dump(samples, f, ensure_ascii=True, indent=0)
    for family in FAMILIES:
        tokenizer = train(family, corpus, args.vocab + (256 if "llama2" in family.__name__ or family is gemma else 0))
        folder = os.path.join(args.out, family.__name__)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
        rows = []
        for text in samples:
            ids = tokenizer.encode(text).ids
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            rows.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False)})
            if plain != ids:
                rows[-1]["plain"] = plain
            if rows[-1]["text"] == text:
                rows[-1]["text"] = True  # the text itself
            if tokenizer.decode(ids) != tokenizer.decode(ids, skip_special_tokens=False):
                rows[-1]["skipped"] = tokenizer.decode(ids)
        with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as f:
            f.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
