#!/usr/bin/env bash
# Makes the pages that follow from the code: docs/config.md and docs/metrics.md.
# usage: make_docs.sh [BATON_BINARY]
set -euo pipefail
cd "$(dirname "$0")/.."
baton=${1:-build/release/cli/baton}
"$baton" config-docs >docs/config.md
python3 scripts/metrics_table.py "$baton" >docs/metrics.md
