# Trains small SentencePiece models on a text and prints them, with what they make of strings, as
# the lines of sentencepiece.jsonl.
#   pip install sentencepiece==0.2.3 protobuf
#   python make_sentencepiece.py ENGLISH_TEXT_FILE >sentencepiece.jsonl
# The file in this folder was made from the user manual of Vim 9.0.
import base64, io, json, random, re, sys, tempfile, unicodedata
import sentencepiece as spm

folder = tempfile.mkdtemp()
text = open(sys.argv[1], encoding="utf8", errors="ignore").read()
lines = [l.strip() for l in text.split("\n") if len(l.strip()) > 20][:6000]
extra = [
    "Größe und Übermaß sind häufig, sagte der Jäger.",
    "Où est le château? Là-bas, près de la forêt.",
    "東京は日本の首都です。",
    "漢字とかな",
    "Привет, мир! Как дела?",
    "Ωμέγα και άλφα",
    "naïve café",
    "ﬁne ﬂow ①②③ ｆｕｌｌ ｗｉｄｔｈ",
    "123 456 7890",
]
with open(folder + "/train.txt", "w", encoding="utf8") as f:
    f.write("\n".join(lines + extra * 40))


def train(name, **kw):
    m = io.BytesIO()
    spm.SentencePieceTrainer.train(input=folder + "/train.txt", model_writer=m, minloglevel=2, **kw)
    return m.getvalue()


from sentencepiece import sentencepiece_model_pb2 as pb

strings = [
    "",
    "a",
    " ",
    "  ",
    "   a",
    "a  b",
    "a b ",
    "The quick brown fox jumps over the lazy dog.",
    " leading",
    "trailing ",
    "tabs\tand\nnewlines\r\n",
    "Größe Übermaß",
    "Où est le château?",
    "東京は日本の首都です。",
    "Привет, мир!",
    "naïve café",
    "nai\u0308ve cafe\u0301",
    "ﬁne ﬂow ①②③",
    "ｆｕｌｌ ｗｉｄｔｈ",
    "１２３",
    "\u00a0nbsp\u00a0",
    "a\u200bb",
    "\u3000wide\u3000",
    "…‥",
    "½ ¼ ²",
    "Å Å \u212b",
    "ｶﾞｷﾞ",
    "㍿㌔",
    "emoji 😀👍🏽",
    "\u0000nul",
    "\u0001\u0002ctl",
    "▁mark ▁▁",
    "x▁y",
    "<s>",
    "</s>",
    "<unk>",
    "<0x41>",
    "<pad>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<x> aaaa  <x>in   ▁ ▁",
    "windows windows",
    "don't can't",
    "http://example.com/?q=1&r=2",
    '{"a": [1, 2, 3]}',
    "()[]{}<>!@#$%^&*",
    "ǅ ß ŉ",
    "لا إله",
    "नमस्ते",
    "ไทย",
    "한국어 조선",
    "\ufeffbom",
    "\ufffd",
    "a\u0301\u0302\u0303",
]
rng = random.Random(3)
pool = "abcdefghij   ▁éüßя東京ｆﬁ①½\u00a0\u0301\t\n.,!?'0123456789AB😀"
for i in range(140):
    strings.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 30))))
words = re.findall(r"\w+", text)
for i in range(60):
    strings.append(" ".join(rng.choice(words) for _ in range(rng.randrange(1, 8))))
out = []


def dump(name, model):
    sp = spm.SentencePieceProcessor(model_proto=model)
    m = pb.ModelProto()
    m.ParseFromString(model)
    cases = [[s, sp.encode(s)] for s in strings]
    o = dict(
        name=name,
        model="t5" if m.trainer_spec.model_type == 1 else "llama",
        add_space_prefix=m.normalizer_spec.add_dummy_prefix,
        remove_extra_whitespaces=m.normalizer_spec.remove_extra_whitespaces,
        charsmap=base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode(),
        unk_id=m.trainer_spec.unk_id,
        tokens=[p.piece for p in m.pieces],
        scores=[p.score for p in m.pieces],
        types=[p.type for p in m.pieces],
        cases=cases,
    )
    out.append(o)


rule = folder + "/rule.tsv"


def r(a, b):
    return " ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b)


rules = []
for c in (
    list("ﬁﬂ①②③④½¼²ﬃ㍿㌔Å…‥")
    + [chr(x) for x in range(0xFF01, 0xFF5F)]
    + ["ｶﾞ", "ｷﾞ", "i\u0308", "e\u0301", "a\u0301", "a\u0301\u0302"]
    + ["\t", "\n", "\r", "\u00a0", "\u3000"]
    + ["\u200b", "\ufeff", "\u0001", "\u0002"]
):
    if c in "\t\n\r\u00a0\u3000":
        rules.append(r(c, " "))
    elif c in "\u200b\ufeff\u0001\u0002":
        rules.append(r(c, ""))
    elif unicodedata.normalize("NFKC", c) != c:
        rules.append(r(c, unicodedata.normalize("NFKC", c)))
with open(rule, "w") as f:
    f.write("\n".join(rules) + "\n")
U = dict(vocab_size=800)
dump("unigram with a charsmap", train("u", model_type="unigram", normalization_rule_tsv=rule, **U))
dump(
    "unigram, spaces kept, bytes",
    train(
        "u2",
        model_type="unigram",
        normalization_rule_name="identity",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        vocab_size=900,
    ),
)
dump(
    "bpe as Llama",
    train(
        "b",
        model_type="bpe",
        normalization_rule_name="identity",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        vocab_size=1200,
    ),
)
dump(
    "bpe with a charsmap, no bytes",
    train("b2", model_type="bpe", normalization_rule_tsv=rule, vocab_size=900),
)
# unused pieces
model = train(
    "b3",
    model_type="bpe",
    normalization_rule_name="identity",
    byte_fallback=True,
    remove_extra_whitespaces=False,
    add_dummy_prefix=False,
    split_by_whitespace=False,
    vocab_size=1200,
)
m = pb.ModelProto()
m.ParseFromString(model)
rr = random.Random(5)
for p in m.pieces:
    if p.type == 1 and len(p.piece) > 1 and rr.random() < 0.3:
        p.type = 5
dump("bpe with unused pieces, across words", m.SerializeToString())
model = train("u3", model_type="unigram", normalization_rule_name="identity", vocab_size=800)
m = pb.ModelProto()
m.ParseFromString(model)
for p in m.pieces:
    if p.type == 1 and len(p.piece) > 1 and rr.random() < 0.3:
        p.type = 5
dump("unigram with unused pieces", m.SerializeToString())
dump(
    "bpe with user-defined tokens",
    train(
        "b4",
        model_type="bpe",
        normalization_rule_name="identity",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["<x>", "aa", "in", "\n"],
        vocab_size=900,
    ),
)
dump(
    "unigram with user-defined tokens",
    train(
        "u4",
        model_type="unigram",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["<x>", "aa", "in", "\n"],
        vocab_size=700,
    ),
)
for o in out:
    print(json.dumps(o, ensure_ascii=False, separators=(",", ":")))
