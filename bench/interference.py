#!/usr/bin/env python3
"""Measures what running streams feel when a long prompt arrives: the longest gap between two tokens
of a running stream while the prompt is computed, beside the gap before. Works with any
OpenAI-compatible server that takes token ids as a prompt.

usage: interference.py [--url URL] [--streams N] [--prompt-tokens N] [--runs N] [--model NAME]
"""
import argparse
import http.client
import json
import random
import statistics
import threading
import time
import urllib.parse


def stream(url, model, prompt_tokens, max_tokens, on_token):
    """Sends one streaming completion; calls on_token(time) for each event with text."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=300)
    body = {"prompt": [random.randrange(300, 4000) for _ in range(prompt_tokens)],
            "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    if model:
        body["model"] = model
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"http {answer.status}: {answer.read()[:300]}")
    while line := answer.readline():
        if line.startswith(b"data: {") and b'"text":""' not in line:
            on_token(time.monotonic())
    connection.close()


def one_run(options):
    times = [[] for _ in range(options.streams)]
    threads = [threading.Thread(target=stream, args=(options.url, options.model, 32,
                                                     options.stream_tokens, times[i].append))
               for i in range(options.streams)]
    for thread in threads:
        thread.start()
    while any(len(t) < 40 for t in times):
        time.sleep(0.005)
    first = []
    begin = time.monotonic()
    stream(options.url, options.model, options.prompt_tokens, 1, first.append)
    end = first[0] if first else time.monotonic()
    for thread in threads:
        thread.join()
    before, during = [], []
    for stamps in times:
        for left, right in zip(stamps, stamps[1:]):
            if right < begin:
                before.append(right - left)
            elif left < end:
                during.append(right - left)
    return (1e3 * statistics.median(before), 1e3 * max(during, default=0), 1e3 * (end - begin))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--stream-tokens", type=int, default=800)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = [one_run(options) for _ in range(options.runs)]
    for name, column in (("ITL before, p50", 0), ("worst gap during the prompt", 1),
                         ("TTFT of the long prompt", 2)):
        print(f"{name:30} {statistics.median(row[column] for row in rows):9.1f} ms")


main()
