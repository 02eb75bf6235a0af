"""Prints docs/metrics.md: every metric that a running local cluster exports, by process.

usage: metrics_table.py BATON_BINARY
"""
import json
import os
import re
import subprocess
import sys
import urllib.request

HEAD = """# Metrics

Made by `scripts/make_docs.sh` from what the processes export; a test fails when it is stale. Every
process serves them in the Prometheus text format: the router on its HTTP port, workers on their
admin port, under `/metrics`.

Definitions, the same everywhere:
- **TTFT**: from a request's arrival at the router to its first token leaving.
- **TPOT**: (last token - first token) / (output tokens - 1), one number per sequence.
- **ITL**: each gap between successive tokens.
- **Phases** of a sequence (`baton_phase_seconds`, `/debug/requests/ID`) add up to its latency:
  router_queue, reserve_wait, prefill_queue, prefill_compute, exposed_transfer, adopt,
  first_decode_step, decode, detokenize, messaging.
- **Blocks**: free + cached + reserved + active = total on every worker at all times.
"""


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def rows(text):
    metrics = {}
    for line in text.splitlines():
        if match := re.match(r"# HELP (\S+) (.*)", line):
            metrics[match[1]] = {"help": match[2], "type": "", "labels": set()}
        elif match := re.match(r"# TYPE (\S+) (\S+)", line):
            metrics[match[1]]["type"] = match[2]
        elif match := re.match(r"(\w+)\{(.*)\}", line):
            name = re.sub(r"_(bucket|sum|count)$", "", match[1])
            name = name if name in metrics else match[1]
            labels = set(re.findall(r'(\w+)="', match[2])) - {"le"}
            metrics.get(name, {"labels": set()})["labels"] |= labels
    return metrics


def main():
    baton = sys.argv[1]
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    environment = dict(os.environ, BATON_READY_FD=str(write_end))
    serve = subprocess.Popen(
        [baton, "serve", "--model", "models/tiny/target", "--host", "127.0.0.1", "--port", "0",
         "--grpc-port", "0"],
        env=environment, pass_fds=[write_end], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as pipe:
            ready = dict(pair.split("=", 1) for pair in pipe.readline().split())
        body = json.dumps({"prompt": "Hello", "max_tokens": 3}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{ready['router.http_port']}/v1/completions", data=body,
            headers={"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).read()
        print(HEAD, end="")
        for title, port in (("Router", ready["router.http_port"]),
                            ("Prefill worker", ready["prefill-0.admin_port"]),
                            ("Decode worker", ready["decode-0.admin_port"])):
            print(f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
            for name, row in sorted(rows(scrape(port)).items()):
                labels = ", ".join(sorted(row["labels"]))
                print(f"| `{name}` | {row['type']} | {labels} | {row['help']} |")
    finally:
        serve.terminate()
        serve.wait(timeout=60)


main()
