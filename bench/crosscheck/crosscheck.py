"""Measures one cluster with `baton bench` and aiperf in turn and compares their medians.

Run by crosscheck.sh beside tests/clients/local_cluster.py, which gives the addresses.
usage: crosscheck.py BATON_BINARY AIPERF_BINARY TOKENIZER_DIRECTORY
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 3
NUM_PROMPTS = 12
CONCURRENCY = 2
OUTPUT_TOKENS = 32
RUN_SECONDS = 120  # the longest that one client's turn may take
# Two clients never see the same run; they take turns, and the medians over the rounds are compared.
# A client's own cost per answer and per token lies in the absolute part.
RELATIVE_TOLERANCE = 0.15
ABSOLUTE_TOLERANCE_MS = {"TTFT": 8.0, "TPOT": 0.5}

WORDS = ("the a of and to in river mountain stone water light old small bright under over "
         "travels holds follows remembers valley winter morning people road city").split()


def run(command, **options):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=RUN_SECONDS, **options)
    except subprocess.TimeoutExpired as expired:
        sys.exit(f"FAILED: {command[0]} did not end within {RUN_SECONDS} s:\n"
                 f"{(expired.stdout or b'').decode(errors='replace')[-4000:]}")
    if done.returncode != 0:
        sys.exit(f"FAILED: {command[0]} exited with {done.returncode}:\n{done.stdout[-4000:]}")


def run_baton(binary, prompts, folder):
    report = os.path.join(folder, "baton.json")
    run([binary, "bench", "--url", os.environ["BATON_TEST_URL"], "--dataset=file",
         "--prompts-file", prompts, f"--num-prompts={NUM_PROMPTS}", "--num-warmups=2",
         f"--concurrency={CONCURRENCY}", f"--output-len={OUTPUT_TOKENS}", "--output-json", report],
        env=dict(os.environ, BATON_API_KEY=os.environ["BATON_TEST_API_KEY"]))
    with open(report) as file:
        result = json.load(file)
    if result["completed"] != NUM_PROMPTS:
        sys.exit(f"FAILED: baton bench completed {result['completed']} of {NUM_PROMPTS} requests")
    return {"TTFT": result["ttft_ms"]["p50"], "TPOT": result["tpot_ms"]["p50"]}


def run_aiperf(aiperf, tokenizer, prompts, folder):
    run([aiperf, "profile", "-m", os.environ["BATON_TEST_MODEL"],
         "--url", os.environ["BATON_TEST_URL"], "--api-key", os.environ["BATON_TEST_API_KEY"],
         "--endpoint-type", "completions", "--streaming", "--tokenizer", tokenizer,
         "--input-file", prompts, "--custom-dataset-type", "single_turn",
         "--extra-inputs", f"max_tokens:{OUTPUT_TOKENS}", "--extra-inputs", "ignore_eos:true",
         "--extra-inputs", "temperature:0", "--concurrency", str(CONCURRENCY),
         "--request-count", str(NUM_PROMPTS), "--warmup-request-count", "2",
         "--use-server-token-count", "--artifact-dir", folder, "--ui", "none"])
    with open(os.path.join(folder, "profile_export_aiperf.json")) as file:
        result = json.load(file)
    if result["request_count"]["avg"] != NUM_PROMPTS:
        sys.exit(f"FAILED: aiperf completed {result['request_count']['avg']} requests")
    # aiperf's "inter token latency" is one number per request: what Baton calls TPOT.
    return {"TTFT": result["time_to_first_token"]["p50"],
            "TPOT": result["inter_token_latency"]["p50"]}


def write_prompts(folder):
    """The same prompts for both: a line each, and aiperf's JSON a line."""
    rng = random.Random(1)
    prompts = [" ".join(rng.choices(WORDS, k=60)) for _ in range(NUM_PROMPTS)]
    paths = os.path.join(folder, "prompts.txt"), os.path.join(folder, "prompts.jsonl")
    with open(paths[0], "w") as file:
        file.writelines(prompt + "\n" for prompt in prompts)
    with open(paths[1], "w") as file:
        file.writelines(json.dumps({"text": prompt}) + "\n" for prompt in prompts)
    return paths


def main(baton, aiperf, tokenizer):
    measured = {"baton bench": [], "aiperf": []}
    with tempfile.TemporaryDirectory() as folder:
        lines, jsonl = write_prompts(folder)
        for index in range(ROUNDS):
            print(f"round {index + 1} of {ROUNDS}", flush=True)
            measured["baton bench"].append(run_baton(baton, lines, folder))
            measured["aiperf"].append(
                run_aiperf(aiperf, tokenizer, jsonl, os.path.join(folder, f"aiperf-{index}")))
    agreed = True
    print(f"medians in ms of {NUM_PROMPTS} requests, {CONCURRENCY} at once, {OUTPUT_TOKENS} output "
          f"tokens; {ROUNDS} rounds in turn")
    for figure, absolute in ABSOLUTE_TOLERANCE_MS.items():
        rounds = {name: [one[figure] for one in results] for name, results in measured.items()}
        ours, theirs = (statistics.median(rounds[name]) for name in ("baton bench", "aiperf"))
        limit = absolute + RELATIVE_TOLERANCE * theirs
        good = abs(ours - theirs) <= limit
        agreed &= good
        for name, values in rounds.items():
            print(f"{figure} {name:12}", " ".join(f"{value:9.3f}" for value in values))
        print(f"{figure} {'agree' if good else 'DISAGREE'}: {ours:.3f} and {theirs:.3f}, "
              f"difference {abs(ours - theirs):.3f}, tolerance {limit:.3f}")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
