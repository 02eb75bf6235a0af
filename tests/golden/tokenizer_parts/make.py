#!/usr/bin/env python3
"""Writes parts.jsonl: what Hugging Face's tokenizers makes of each part of a tokenizer.json.

usage: make.py OUTPUT [--seed N] [--texts N] [--all-characters]
needs the Python package tokenizers==0.23.3
"""
import argparse
import base64
import json
import random
import struct
import unicodedata

import tokenizers
from tokenizers import Tokenizer

TEXTS = [
    "", " ", "  ", "a", " a", "a ", " a b  c ", "\t\n\r\n x \u00a0y\u3000z\u2003", "Hello, world! It's 2024.",
    "don't stop-believin' (ever)... \u201cquoted\u201d \u2014 dash", "1,234.56 + 7e-10 = \u00bd\u00b2\u2167\u0661\u0662",
    "caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m A\u030angstro\u0308m \ufb01ne \u212b \u00df \u0130stanbul \u03a3\u03a3",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f469\u200d\U0001f4bb\U0001f1fa\U0001f1f8\U0001f44d\U0001f3fd \u2764\ufe0f", "a\u0000b\u0001c\u007fd\u0085e\u200bfg\ufeffh\ufffdi",
    "\u2581a\u2581\u2581b \u2581", "x_y-z/w\\v|u~t`s", "$5 <b>&amp;</b> ^2 =+ `code`", "aaa-bbb--ccc---", "---", "-a", "a-",
    "ABC abc AbC ABCdef HTTPServer iPhone", "line\n\nline\r\n\r\n  indented\n\ttab", "(a)[b]{c}<d>", "\u00b7\u2022\u2026\u2030\u20ac\u00a3\u00a5\u00a9\u2122",
    "<s>", "<s>hello</s>", " <s> x </s> ", "a<s>b <mask>  c<mask>", "word<w>word <w> w<w> <w>w", "Day day DAY monday",
    "<s><s></s>", "  <mask>\n<mask>  ", "e\u0301<s>e\u0301", "foo  bar   baz", "q\u0323\u0307 \u1e9b\u0323 \uac00\u11a8",
    "zz\u4f60zz\u597d\u597dzz", "\u24b6\u24d0 \u2160\u2170 \u200d\u200c \u203f\u2040 \u00aa\u00ba", "\u17b4\u17b5\u1806\u180e\u2e2f",
]

NORMALIZERS = [
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Nmt"},
    {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Prepend", "prepend": "\u2581"},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "ByteLevel"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    {"type": "Replace", "pattern": {"String": ""}, "content": "."},
    {"type": "Replace", "pattern": {"String": "--"}, "content": "="},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"},
    {"type": "Replace", "pattern": {"Regex": "[0-9]*"}, "content": "#"},
    {"type": "Replace", "pattern": {"Regex": "\\w+|\\h"}, "content": "w"},
    {"type": "Sequence", "normalizers": [
        {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}]},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    {"type": "Sequence", "normalizers": []},
]

# Expressions of real files, and each construct that is rewritten for PCRE2.
REGEXES = [
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    "[\\p{L}\\p{M}]+|\\p{P}|\\p{S}+", "[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6]+", "\\s+$", "^\\s+", "[0-9][0-9][0-9]",
    " ?[^(\\s|[.,!?\u2026\u3002\uff0c])]+", "[\\p{Han}]+", "[^\\p{Han}\\s]+", "[\\p{L}&&[^\\p{Han}]]+", "[^\\p{L}&&[\\p{Han}\\p{Lo}]]",
    "[a-z&&[^aeiou]]+", "[^a-c[x-z]]+", "[\\W&&\\S]+", "[^\\W\\d_]+", "\\w+", "\\W+", "\\b", "\\B.", "\\bw", "\\h+", "\\H", "[\\h-]+", "[[:space:]]+", "[[:alpha:]]+", "[[:punct:]]", "[^[:alnum:]]+", "[[:upper:][:lower:]]+", "[[:blank:]_]", "[[:word:]&&[:xdigit:]]",
    "[[:digit:]a]+", "(?m:a.b)|(?m).", ".", "a{,2}b?", "x{2}", "{", "a{b", "\\u4f60+", "\\x{4f60}", "[\\u4e00-\\u9fa5]+", "\\p{Letter}+", "\\p{^Lu}+",
    "\\P{L}+", "\\p{Latin}+", "\\p{Cyrillic}|\\p{Arabic}+", "[]a]+", "[^]]+", "a|", "", "(?=a)", "(?<=-)", "(?<!-)-+", "(?>-+)", "\\R", "\\A.", ".\\z",
    "[\\]\\-a]+", "[-a]+", "[a-]+", "[&a]+", "[a&b&c]+", "(a|b)(?:c)?", "\\v|\\t", "\\d+", "\\D+", "[\\D&&\\S]+", "(?i)ABC", "[\\p{Ll}\\p{Lm}]+",
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def metaspace(scheme, split, replacement="\u2581"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}


def byte_level(space, regex):
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


PRE_TOKENIZERS = (
    [{"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"},
     {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False},
     {"type": "CharDelimiterSplit", "delimiter": "-"}]
    + [{"type": "Punctuation", "behavior": behavior} for behavior in BEHAVIORS]
    + [metaspace(scheme, cut) for scheme in ("first", "always", "never") for cut in (True, False)]
    + [{"type": "Metaspace", "replacement": "_", "add_prefix_space": True}]
    + [byte_level(space, regex) for space in (True, False) for regex in (True, False)]
    + [split({"String": "-"}, behavior, invert) for behavior in BEHAVIORS for invert in (False, True)]
    + [split({"Regex": "[0-9]*"}, behavior, invert) for behavior in BEHAVIORS for invert in (False, True)]
    + [split({"String": ""}, "Isolated"), split({"String": "-"}, "Removed", True)]
    + [{"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always", True)]},
       {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("first", True)]},
       {"type": "Sequence", "pretokenizers": [split({"String": "a"}, "Removed"), metaspace("first", False)]},
       {"type": "Sequence", "pretokenizers": [byte_level(True, True), {"type": "Digits", "individual_digits": True}]},
       {"type": "Sequence", "pretokenizers": [
           {"type": "Punctuation"}, byte_level(False, True), {"type": "Digits", "individual_digits": False},
           split({"Regex": "[0-9][0-9][0-9]"}, "Isolated")]}]
)


def sequence(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def strip(start, stop, content=" "):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


FALLBACK = {"type": "ByteFallback"}
FUSE = {"type": "Fuse"}
DECODERS = [
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, FUSE, FALLBACK,
    metaspace("always", True), metaspace("first", True), metaspace("never", True),
    replace({"String": "\u2581"}, " "), replace({"Regex": "a+|\u2581"}, "_"),
    sequence(replace({"String": "\u2581"}, " "), FALLBACK, FUSE, strip(1, 0)),
    sequence(replace({"String": "\u2581"}, " "), FALLBACK, FUSE),
    sequence(replace({"String": "\u2581"}, " "), FALLBACK),
    sequence(metaspace("always", True), FUSE, strip(2, 0)), sequence(FUSE, strip(2, 2)), sequence(FUSE, strip(0, 1, "a")),
    sequence(FALLBACK, FUSE), sequence(metaspace("first", False), FALLBACK, FUSE), strip(1, 0), sequence(strip(1, 0), FUSE),
]
TOKENS = ["\u2581a", "\u2581", "b", "\u2581\u2581c\u2581", "<0xE4>", "<0xBD>", "<0xA0>", "<0x41>", "<0x0a>", "<0xFF>", "<0xGG>", " ", "  d", "e ",
          "\u0120f", "\u00e4\u00bd\u0142", "\u00e4", "aa", "\u4f60"]


def charsmap(rules):
    """A precompiled_charsmap: a double array built by trying offsets, as Darts-clone lays it out."""
    replacements = b""
    trie = {}
    for source, target in rules.items():
        node = trie
        for byte in source.encode():
            node = node.setdefault(byte, {})
        node[None] = len(replacements)
        replacements += target.encode() + b"\0"
    units = {0: 0}
    used = {0}

    def place(node, at):
        labels = [0 if key is None else key for key in node]
        offset = 1
        while any((at ^ offset ^ label) in used for label in labels):
            offset += 1
        for label in labels:
            used.add(at ^ offset ^ label)
        units[at] = units.get(at, 0) | offset << 10 | (0x100 if None in node else 0)
        for key, child in node.items():
            if key is None:
                units[at ^ offset] = 1 << 31 | child
            else:
                units[at ^ offset ^ key] = key
        for key, child in node.items():
            if key is not None:
                place(child, at ^ offset ^ key)

    place(trie, 0)
    size = (max(units) | 0xFF) + 1
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return base64.b64encode(struct.pack("<I", len(array)) + array + replacements).decode()


CHARSMAP = charsmap({"\u3000": " ", "\u00a0": " ", "\t": " ", "\r\n": " ", "\ufb01": "fi", "e\u0301": "\u00e9", "\u0001": "", "\u200b": "",
                     "\u212b": "\u00c5", "A\u030a": "\u00c5", "\u2026": "...", "\u0661": "1", "\U0001f44d": "+1", "\u2764\ufe0f": "<3"})
NORMALIZERS.append({"type": "Precompiled", "precompiled_charsmap": CHARSMAP})


def added(identity, content, **flags):
    token = {"id": identity, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    token.update(flags)
    return token


BYTES = ["<0x%02X>" % byte for byte in range(256)]
WORDS = ["<unk>", "<s>", "</s>"] + BYTES + list("\u2581abcdehlorwxy-1 .") + ["\u2581a", "ab", "\u2581h", "el", "lo", "ello", "\u2581hello", "--", "aa", "aaaa", "he"]
MERGES = [["\u2581", "a"], ["a", "b"], ["\u2581", "h"], ["e", "l"], ["l", "o"], ["el", "lo"], ["\u2581h", "ello"], ["-", "-"], ["a", "a"], ["aa", "aa"],
          ["h", "e"], ["a", "b"]]
ADDED = [added(1, "<s>"), added(2, "</s>"), added(1000, "<mask>", lstrip=True, rstrip=True), added(1001, "<w>", single_word=True),
         added(1002, "Day", normalized=True, special=False), added(1003, "\n", special=False), added(1004, "c<", special=False)]
LLAMA = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace({"String": " "}, "\u2581")]}
LLAMA_DECODER = sequence(replace({"String": "\u2581"}, " "), FALLBACK, FUSE, strip(1, 0))
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                                      {"SpecialToken": {"id": "end", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "end": {"id": "end", "ids": [2, 1], "tokens": ["</s>", "<s>"]}}}


def bpe(words=WORDS, merges=MERGES, **options):
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    model.update(options)
    model["vocab"] = {word: i for i, word in enumerate(words)}
    model["merges"] = merges
    return model


def unigram(words=WORDS, **options):
    pieces = [[word, -1.0 - (i * 37 % 101) / 8 + 2.0 * len(word)] for i, word in enumerate(words)]
    model = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": True}
    model.update(options)
    return model


def whole(model, normalizer=LLAMA, pre_tokenizer=None, decoder=LLAMA_DECODER, post_processor=TEMPLATE, tokens=ADDED):
    return {"version": "1.0", "truncation": None, "padding": None,
            # The reference numbers added tokens itself; let the file say the same.
            "added_tokens": [dict(token, id=len(model["vocab"]) + i - 2) if token["id"] >= 1000 else token for i, token in enumerate(tokens)],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": model}


NO_BYTES = [word for word in WORDS if word not in BYTES]
FEW_BYTES = NO_BYTES + ["<0xC3>", "<0xA9>"]
FILES = [
    whole(bpe()), whole(bpe(ignore_merges=True)), whole(bpe(NO_BYTES)), whole(bpe(NO_BYTES, fuse_unk=False)),
    whole(bpe(FEW_BYTES)), whole(bpe(FEW_BYTES, fuse_unk=False)), whole(bpe(NO_BYTES, unk_token=None)), whole(bpe(NO_BYTES, byte_fallback=False)),
    whole(bpe(ignore_merges=True), None, metaspace("first", True)), whole(bpe(), None, metaspace("first", False)),
    whole(bpe(), None, metaspace("always", True), metaspace("always", True)), whole(bpe(), None, metaspace("never", True)),
    whole(bpe(), {"type": "Strip", "strip_left": True, "strip_right": True}, metaspace("first", True)),
    whole(bpe(), replace({"Regex": " +"}, "-"), metaspace("first", True)), whole(bpe(), replace({"String": " "}, ""), metaspace("first", True)),
    whole(bpe(), {"type": "Nmt"}, metaspace("first", False)), whole(bpe(), {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}, metaspace("first", False)),
    whole(bpe(), {"type": "Lowercase"}, split({"String": " "}, "MergedWithPrevious")),
    whole(bpe(), {"type": "Lowercase"}, None, tokens=ADDED + [added(1005, "WORD", normalized=True, special=False)]),
    whole(bpe(), post_processor={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}),
    whole(bpe(), post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}),
    whole(unigram()), whole(unigram(byte_fallback=False)), whole(unigram(NO_BYTES)),
    whole(unigram(), {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}, metaspace("always", True), metaspace("always", True)),
    whole(unigram(), {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}, replace({"Regex": " {2,}"}, " ")]},
          {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always", True)]}, metaspace("always", True)),
]


def random_texts(count, seed):
    rng = random.Random(seed)
    assigned = [chr(c) for c in range(0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    pool = ["<s>", "</s>", "<mask>", "<w>", " ", "  ", "\n", "-", "--", "hello", "a", "aa", "Day", "day", "1", "23", "\u2581", "'s", "e\u0301", "\u00e9"]
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(12)):
            kind = rng.randrange(4)
            if kind == 0:
                parts.append(rng.choice(assigned))
            elif kind == 1:
                parts.append(chr(rng.randrange(128)))
            else:
                parts.append(rng.choice(pool))
        yield "".join(parts)


def all_characters():
    block = []
    for c in range(0x110000):
        if unicodedata.category(chr(c)) in ("Cn", "Cs", "Co"):
            continue
        block.append("a" + chr(c))
        if len(block) == 64:
            yield "".join(block)
            block = []


def tokenizer_with(**parts):
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": bpe()}
    file.update(parts)
    return Tokenizer.from_str(json.dumps(file))


def lines(texts, rng):
    for part in NORMALIZERS:
        normalizer = tokenizer_with(normalizer=part).normalizer
        yield {"kind": "normalizer", "part": part, "cases": [[text, normalizer.normalize_str(text)] for text in texts]}
    for part in PRE_TOKENIZERS + [split({"Regex": regex}, "Isolated") for regex in REGEXES]:
        pre_tokenizer = tokenizer_with(pre_tokenizer=part).pre_tokenizer
        chosen = texts if part["type"] != "Split" else rng.sample(texts, max(1, len(texts) // 2))
        yield {"kind": "pre_tokenizer", "part": part,
               "cases": [[text, [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]] for text in chosen if text]}
    for part in DECODERS:
        decoder = tokenizer_with(decoder=part).decoder
        runs = [[]] + [[rng.choice(TOKENS) for _ in range(rng.randrange(1, 8))] for _ in range(len(texts))]
        if '"stop": 0' not in json.dumps(part):  # the reference panics on a text that is all stripped
            runs = [["b"] + run for run in runs]
        yield {"kind": "decoder", "part": part, "cases": [[run, decoder.decode(run)] for run in runs]}
    for file in FILES:
        tokenizer = Tokenizer.from_str(json.dumps(file))
        cases = []
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            special = tokenizer.encode(text, add_special_tokens=True).ids
            cases.append({"text": text, "ids": ids, "ids_special": special, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                          "decoded_skip": tokenizer.decode(special, skip_special_tokens=True)})
        yield {"kind": "file", "part": file, "cases": cases}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=12, help="random texts besides the fixed ones")
    parser.add_argument("--all-characters", action="store_true")
    options = parser.parse_args()
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    texts = TEXTS + list(random_texts(options.texts, options.seed)) + (list(all_characters()) if options.all_characters else [])
    with open(options.output, "w", encoding="utf-8") as output:
        for line in lines(texts, random.Random(options.seed)):
            output.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
