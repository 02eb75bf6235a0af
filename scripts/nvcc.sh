#!/usr/bin/env bash
# Runs nvcc and keeps what ptxas says of each kernel (registers, spills, shared memory) in
# OBJECT.ptxas. usage: nvcc.sh OBJECT COMMAND...
set -euo pipefail
object=$1
shift
if ! "$@" >"$object.ptxas" 2>&1; then
  cat "$object.ptxas" >&2
  exit 1
fi
grep -v -e '^ptxas info' -e '^    [0-9]* bytes stack frame' "$object.ptxas" >&2 || true  # warnings
