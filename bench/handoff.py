#!/usr/bin/env python3
"""Measures how much of the KV handoff shows: sends prompts to a running cluster and reads each one's
timeline. Prints medians.

usage: handoff.py [--url URL] [--lengths 128,512,2048] [--runs N]
"""
import argparse
import json
import random
import statistics
import time
import urllib.request


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer), answer.headers


def timeline(url, request_id):
    """The transfer's report comes a moment after the answer."""
    deadline = time.monotonic() + 5
    while True:
        sequence = call(f"{url}/debug/requests/{request_id}")[0]["sequences"][0]
        if sequence.get("transfer", {}).get("layers") or time.monotonic() > deadline:
            return sequence
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--lengths", default="128,512,2048")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    print(f"{'prompt':>7} {'TTFT ms':>9} {'prefill ms':>11} {'KV MiB':>7} {'on the wire ms':>15} "
          f"{'exposed ms':>11} {'exposed/TTFT':>13}")
    for length in map(int, options.lengths.split(",")):
        rows = []
        for run in range(options.runs + 1):
            prompt = [random.randrange(300, 4000) for _ in range(length)]
            _, headers = call(f"{options.url}/v1/completions",
                              {"prompt": prompt, "max_tokens": 4, "ignore_eos": True})
            sequence = timeline(options.url, headers["X-Request-Id"])
            if run > 0:  # the first opens the link
                rows.append(sequence)
        median = lambda f: statistics.median(map(f, rows))
        ttft = median(lambda s: s["ttft_seconds"])
        exposed = median(lambda s: s["transfer"]["exposed_seconds"])
        print(f"{length:7} {1e3 * ttft:9.1f} "
              f"{1e3 * median(lambda s: s['phases']['prefill_compute']):11.1f} "
              f"{median(lambda s: s['transfer']['bytes']) / 2**20:7.1f} "
              f"{1e3 * median(lambda s: s['transfer']['total_seconds']):15.1f} "
              f"{1e3 * exposed:11.2f} {exposed / ttft:13.1%}")


main()
