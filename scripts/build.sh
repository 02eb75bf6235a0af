#!/usr/bin/env bash
# Configures and builds one preset. usage: build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
export CCACHE_BASEDIR=$PWD
log=build/$preset/configure.log
mkdir -p "build/$preset"
options=()
# A toolkit that is there is used; test.sh fetches one.
if root=$(BATON_NO_DOWNLOAD=1 scripts/get_cuda.sh 2>/dev/null); then options+=(-D "BATON_CUDA_ROOT=$root"); fi
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
targets=()
[ $# -eq 0 ] || targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}"
