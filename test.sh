#!/usr/bin/env bash
# Installs what the tests need, builds everything, runs all tests and fuzzes each parser of model
# files for a minute.
#
# usage: ./test.sh [--fuzz=SECONDS] [--sanitize=thread|address] [--label NAME] [CTEST ARGUMENT...]
#   --fuzz=SECONDS      how long each fuzzer runs; 0: not. 60 when all tests run, else 0
#   --sanitize=address  everything under AddressSanitizer and UndefinedBehaviorSanitizer
#   --sanitize=thread   the cores (queues, schedulers, sessions, router core) under ThreadSanitizer
#   --label NAME        only tests with this label: unit, golden, integration, client
#   CTEST ARGUMENT      passed on, e.g. -R Tokenizer
set -euo pipefail
cd "$(dirname "$0")"

preset=release
arguments=()
fuzz=
while [ $# -gt 0 ]; do
  case $1 in
    --fuzz=*)
      fuzz=${1#--fuzz=}
      [[ $fuzz =~ ^[0-9]+$ ]] || { echo "--fuzz=$fuzz: must be whole seconds" >&2; exit 2; }
      shift
      ;;
    --sanitize=address) preset=asan; shift ;;
    --sanitize=thread) preset=tsan; arguments+=(--label-regex tsan); shift ;;
    --label) arguments+=(--label-regex "${2:?--label needs a name}"); shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

scripts/install_packages.sh scripts/packages-build.txt scripts/packages-test.txt
command -v npm >/dev/null || scripts/install_packages.sh scripts/packages-node.txt
if ! model=$(scripts/get_default_model.sh); then
  if [ -z "${BATON_NO_DOWNLOAD:-}" ]; then
    echo "The tests need the default model. Set BATON_NO_DOWNLOAD=1 to leave out those that do." >&2
    exit 1
  fi
fi
if [ -n "${model:-}" ]; then export BATON_SMOLLM2=$model; fi
if ! tokenizers=$(scripts/get_tokenizers.sh); then
  if [ -z "${BATON_NO_DOWNLOAD:-}" ]; then
    echo "The tests need real tokenizers. Set BATON_NO_DOWNLOAD=1 to leave out those that do." >&2
    exit 1
  fi
fi
if [ -n "${tokenizers:-}" ]; then export BATON_TOKENIZERS=$tokenizers; fi

# Kernels are compiled with it, for devices and for the host emulation; no GPU is needed.
if ! toolkit=$(scripts/get_cuda.sh); then
  if [ -z "${BATON_NO_DOWNLOAD:-}" ]; then
    echo "The tests need a CUDA toolkit. Set BATON_NO_DOWNLOAD=1 to leave out those that do." >&2
    exit 1
  fi
fi
if [ -n "${toolkit:-}" ]; then export BATON_CUDA_ROOT=$toolkit; fi

# GCC 12's thread sanitizer can't place its shadow under a strongly randomised address space.
run=()
if [ "$preset" = tsan ]; then run=(setarch "$(uname -m)" --addr-no-randomize); fi
"${run[@]}" scripts/build.sh "$preset"
if [ -z "$fuzz" ]; then
  if [ "$preset" = release ] && [ ${#arguments[@]} -eq 0 ]; then fuzz=60; else fuzz=0; fi
fi
# Before the tests, so that their summary is what a log ends with.
fuzzed=0
if [ "$fuzz" -gt 0 ]; then scripts/run_fuzzers.sh "$fuzz" || fuzzed=$?; fi

"${run[@]}" ctest --test-dir "build/$preset" --parallel 2 --output-on-failure --no-tests=error \
  "${arguments[@]}"
[ "$fuzzed" -eq 0 ] || echo "A fuzzer found a fault, see above." >&2
exit "$fuzzed"
