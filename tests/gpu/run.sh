#!/usr/bin/env bash
# Tests and measures the GPU path on a real device: builds with nvcc, runs every kernel test and the
# end-to-end golden tests there, then the kernels' benchmark beside the device's own limits. Prints a
# table and writes JSON.
#
# usage: tests/gpu/run.sh [--json FOLDER] [--build-only]
#   --json FOLDER  where the figures go, default build/release/gpu
#   --build-only   stops before the device is needed
# Needs a driver, a device of sm_80 or newer and CUDA 13 with NCCL (BATON_CUDA_ROOT, or
# scripts/get_cuda.sh finds or fetches one). A warm run ends inside 6 minutes: each test program has
# a deadline. Exit 1 when a test failed, 2 when there is no usable device.
set -euo pipefail
cd "$(dirname "$0")/../.."

json=build/release/gpu build_only=
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=${2:?--json needs a folder}; shift 2 ;;
    --build-only) build_only=1; shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "unknown argument: $1; see --help" >&2; exit 2 ;;
  esac
done

BATON_CUDA_ROOT=$(scripts/get_cuda.sh)
export BATON_CUDA_ROOT
scripts/build.sh release device_tests gpu_kernel_bench
[ -z "$build_only" ] || exit 0

if ! nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader; then
  echo "No usable GPU: nvidia-smi finds no device or no driver. The tests' host emulation needs none:" \
    "ctest -L cuda" >&2
  exit 2
fi
model=$(BATON_NO_DOWNLOAD=1 scripts/get_default_model.sh 2>/dev/null) && export BATON_SMOLLM2=$model

failed=()
for test in build/release/device_tests/*; do
  name=${test##*/}
  echo "== $name"
  timeout 90 "$test" --gtest_brief=1 || failed+=("$name")
done

mkdir -p "$json"
echo "== kernels"
timeout 120 build/release/bench/gpu/gpu_kernel_bench --json "$json/kernels.json" ||
  failed+=(gpu_kernel_bench)

if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED on this device: ${failed[*]}" >&2
  exit 1
fi
echo "All device tests passed; figures in $json"
