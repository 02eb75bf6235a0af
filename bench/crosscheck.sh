#!/usr/bin/env bash
# Checks `baton bench` against aiperf (PyPI): both measure one cluster in turn, on the same prompts,
# and their median TTFT and TPOT must agree. Installs aiperf into build/clients on first use: 1.2 GB,
# several minutes. Run it on a machine with nothing else to do.
#
# usage: bench/crosscheck.sh [BATON_BINARY [MODEL]]
#   BATON_BINARY  default build/release/cli/baton
#   MODEL         default the tiny model; its prompts are counted with the tiny model's tokenizer
#                 whatever MODEL is, which no compared figure depends on
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "${1:-build/release/cli/baton}")
model=${2:-models/tiny/target}
venv=$PWD/build/clients/crosscheck-venv
pins=bench/crosscheck/requirements.txt
if ! cmp -s "$pins" "$venv/pins.txt"; then
  echo "Installing aiperf into $venv"
  python3 -m venv --clear "$venv"
  if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$pins"; then
    echo "FAILED: cannot install aiperf from PyPI (see above); is the registry reachable?" >&2
    exit 1
  fi
  cp "$pins" "$venv/pins.txt"
fi
python3 tests/clients/local_cluster.py "$binary" "$model" \
  python3 bench/crosscheck/crosscheck.py "$binary" "$venv/bin/aiperf" "$PWD/models/tiny/target"
