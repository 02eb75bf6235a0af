#!/usr/bin/env bash
# Builds the fuzzers of the model files and runs each for a while, two at a time.
# usage: run_fuzzers.sh [SECONDS (60)] [FUZZER...]
# Exit 1 when one finds a fault; the input is kept in build/fuzz/finds. Corpora grow in
# build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
fuzzers=("$@")
[ ${#fuzzers[@]} -gt 0 ] ||
  fuzzers=(gguf_fuzzer safetensors_fuzzer config_json_fuzzer tokenizer_json_fuzzer jinja_fuzzer)

scripts/install_packages.sh scripts/packages-build.txt scripts/packages-fuzz.txt
scripts/build.sh fuzz "${fuzzers[@]}" make_seeds
programs=build/fuzz/tests/fuzz
corpus=build/fuzz/corpus
finds=build/fuzz/finds
mkdir -p "$finds"
"$programs/make_seeds" "$corpus"
python3 tests/fuzz/text_seeds.py "$corpus"

# run FUZZER: fuzzes from its seeds and the inputs that once broke its parser.
run() {
  local kind=${1%_fuzzer} log=build/fuzz/$1.log
  mkdir -p "$corpus/$kind" "tests/fuzz/regressions/$kind"
  if "$programs/$1" -max_total_time="$seconds" -max_len=32768 -rss_limit_mb=2048 -timeout=20 \
    -artifact_prefix="$finds/$kind-" "$corpus/$kind" "tests/fuzz/regressions/$kind" >"$log" 2>&1; then
    echo "$1: $(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 inputs in \2 s/p' "$log")"
  else
    tail -n 60 "$log"
    echo "$1 found a fault; the input is in $finds" >&2
    return 1
  fi
}

failed=0
for ((i = 0; i < ${#fuzzers[@]}; i += 2)); do
  pids=()
  for fuzzer in "${fuzzers[@]:i:2}"; do
    run "$fuzzer" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
done
exit "$failed"
