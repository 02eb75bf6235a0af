"""Writes seed corpora for the text fuzzers: text_seeds.py CORPUS.

Jinja: the snippets of tests/golden and, where BATON_TOKENIZERS names a directory of real tokenizers
(scripts/get_tokenizers.sh), their chat templates. tokenizer.json: the parts of tests/golden, and the
real files cut down to a few hundred tokens, with every part but the vocabulary as it is.
config.json: the golden checkpoints'.
"""
import json
import os
import pathlib
import shutil
import sys

MOST_TOKENS = 400
SOURCE = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = SOURCE / "golden"


def write(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def write_snippets(folder):
    with open(GOLDEN / "chat_templates" / "snippets.jsonl", encoding="utf-8") as lines:
        for line in lines:
            snippet = json.loads(line)
            write(folder, "snippet-" + snippet["name"].replace("/", "_"), snippet["template"])


def write_templates(folder, name, config):
    template = config.get("chat_template")
    named = template if isinstance(template, list) else [{"name": "", "template": template}]
    for entry in named:
        if entry["template"]:
            write(folder, f"{name}{entry['name']}", entry["template"])


def cut_tokenizer(tokenizer):
    model = tokenizer["model"]
    kept = {}
    if isinstance(model["vocab"], dict):
        by_id = sorted(model["vocab"].items(), key=lambda item: item[1])
        kept = dict(by_id[:MOST_TOKENS])
        model["vocab"] = kept
        merges = []
        for merge in model.get("merges", []):
            left, right = merge if isinstance(merge, list) else merge.split(" ", 1)
            if left in kept and right in kept and left + right in kept:
                merges.append(merge)
        model["merges"] = merges
    else:
        model["vocab"] = model["vocab"][:MOST_TOKENS]
    added = [token for token in tokenizer["added_tokens"] if token["id"] < MOST_TOKENS]
    tokenizer["added_tokens"] = added[:8]
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))


def write_parts(folder):
    """Each part of the golden files, as the one part of a small tokenizer.json."""
    plain = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3}, "merges": ["a b"]}, "decoder": {"type": "Fuse"}}
    with open(GOLDEN / "tokenizer_parts" / "parts.jsonl", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            golden = json.loads(line)
            kind, part = golden["kind"], golden["part"]
            file = part if kind == "file" else {**plain, kind: part}
            write(folder, f"part-{number}", json.dumps(file, ensure_ascii=False, separators=(",", ":")))


def main():
    corpus = pathlib.Path(sys.argv[1])
    write_snippets(corpus / "jinja")
    write_parts(corpus / "tokenizer_json")
    for config in sorted((GOLDEN / "arch").glob("**/config.json")):
        name = "-".join(config.parent.relative_to(GOLDEN / "arch").parts)
        write(corpus / "config_json", name, config.read_text(encoding="utf-8"))
    for config in sorted((GOLDEN / "quant").glob("**/config.json")):
        shutil.copy(config, corpus / "config_json" / config.parent.name)
    real = os.environ.get("BATON_TOKENIZERS")
    for folder in sorted(pathlib.Path(real).iterdir()) if real else []:
        tokenizer, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
        if tokenizer.is_file():
            text = cut_tokenizer(json.loads(tokenizer.read_text(encoding="utf-8")))
            write(corpus / "tokenizer_json", folder.name, text)
        if config.is_file():
            write_templates(corpus / "jinja", folder.name, json.loads(config.read_text("utf-8")))


main()
