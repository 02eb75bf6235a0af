#!/usr/bin/env python3
"""Puts two OpenAI-compatible servers side by side: alternating runs of `baton bench` on the same
prompts, then the medians of every figure and their ratio.

usage: compare.py [--baton BINARY] [--runs N] URL_A URL_B [-- BENCH_SETTING...]
e.g.   compare.py http://127.0.0.1:8000 http://127.0.0.1:8080 -- --input-len 512 --concurrency 8

Both servers must be up with the same model; run them one at a time on the same cores if they would
disturb each other when idle (most servers sleep).
"""
import argparse
import json
import statistics
import subprocess
import sys

FIGURES = [
    ("TTFT p50 ms", lambda r: r["ttft_ms"]["p50"]),
    ("TTFT p99 ms", lambda r: r["ttft_ms"]["p99"]),
    ("TPOT p50 ms", lambda r: r["tpot_ms"]["p50"]),
    ("TPOT p99 ms", lambda r: r["tpot_ms"]["p99"]),
    ("ITL p99 ms", lambda r: r["itl_ms"]["p99"]),
    ("output tokens/s", lambda r: r["output_tokens_per_second"]),
    ("requests/s", lambda r: r["requests_per_second"]),
    ("good share", lambda r: r["good_share"]),
    ("failed", lambda r: r["failed"]),
]


def run(baton, url, settings):
    command = [baton, "bench", "--url", url, "--output-json", "-", "--no-progress", *settings]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}{done.stdout}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--baton", default="build/release/cli/baton")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("urls", nargs=2)
    own, settings = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, settings = own[:at], own[at + 1:]
    options = parser.parse_args(own)
    results = {url: [] for url in options.urls}
    for number in range(options.runs):
        for url in options.urls:
            results[url].append(run(options.baton, url, settings))
            print(f"run {number + 1}/{options.runs} {url}", file=sys.stderr)
    a, b = options.urls
    print(f"medians of {options.runs} alternating runs; A = {a}, B = {b}; {' '.join(settings)}\n")
    print(f"{'':18} {'A':>12} {'B':>12} {'A/B':>8}")
    for name, figure in FIGURES:
        left = statistics.median(figure(r) for r in results[a])
        right = statistics.median(figure(r) for r in results[b])
        ratio = f"{left / right:8.2f}" if right else "       -"
        print(f"{name:18} {left:12.2f} {right:12.2f} {ratio}")


main()
