#!/usr/bin/env bash
# Runs the tests of kernels, and of the emulation they run in, under the sanitizers, in several
# orders of threads and both times at which cp.async may land.
# usage: check_kernels.sh [plain|asan|tsan ...] [-- gtest arguments]     default: asan tsan
# BATON_CUDA_ROOT names the toolkit; see scripts/get_cuda.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
kinds=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  kinds+=("$1")
  shift
done
[ $# -eq 0 ] || shift
[ ${#kinds[@]} -gt 0 ] || kinds=(asan tsan)
tests=(cuda_emulation_test cuda_vocabulary_test engine_cuda_attention_test engine_cuda_kernels_test
  engine_cuda_matmul_test engine_cuda_sample_test kvtransfer_kernels_test)

export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=0 history_size=4}"
failed=0
for kind in "${kinds[@]}"; do
  case $kind in
    plain) preset=release ;;
    asan | tsan) preset=$kind ;;
    *) echo "unknown kind: $kind; plain, asan or tsan" >&2; exit 2 ;;
  esac
  cmake --preset "$preset" ${BATON_CUDA_ROOT:+-DBATON_CUDA_ROOT="$BATON_CUDA_ROOT"} >/dev/null
  ninja -C "build/$preset" "${tests[@]}"
  for test in "${tests[@]}"; do
    binary=$(find "build/$preset/tests" -name "$test" -type f -perm -u+x | head -1)
    for mode in forward:late reverse:early random:early; do
      if [ "$test" = cuda_emulation_test ] && [ "$mode" != forward:late ]; then
        continue  # sets its own orders
      fi
      echo "== $kind $test ${mode%:*} order, ${mode#*:} copies"
      CUDA_EMULATION_ORDER=${mode%:*} CUDA_EMULATION_CP_ASYNC=${mode#*:} \
        "$binary" --gtest_brief=1 "$@" || failed=1
    done
  done
done
exit $failed
