#!/usr/bin/env bash
# Prints the root of a CUDA toolkit (include/, lib/, bin/nvcc) with cuBLASLt and NCCL: that of the
# system where there is one, else NVIDIA's wheels from PyPI in a cache. No GPU and no driver are
# needed: the tests compile kernels with it and run them in the host emulation.
#
# usage: scripts/get_cuda.sh
#   BATON_CUDA_ROOT    a toolkit to use instead; nothing is looked for or downloaded
#   BATON_NO_DOWNLOAD  when set, takes only what is on the machine already
# Exit 1 when there is none and PyPI can't be reached. Downloads 0.8 GB, takes 1.1 GB of disk.
set -euo pipefail

# One release, so that register counts and numerics are those of the tables in docs/.
packages=(
  nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14
  nvidia-nccl-cu13==2.28.9
)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/baton/cuda-13.0

is_toolkit() {  # ROOT
  [ -x "$1/bin/nvcc" ] && [ -e "$1/include/cublasLt.h" ] && [ -e "$1/include/nccl.h" ] &&
    "$1/bin/nvcc" --version 2>/dev/null | grep -q 'release 1[3-9]'
}

if [ -n "${BATON_CUDA_ROOT:-}" ]; then
  is_toolkit "$BATON_CUDA_ROOT" && { echo "$BATON_CUDA_ROOT"; exit 0; }
  echo "BATON_CUDA_ROOT=$BATON_CUDA_ROOT has no nvcc 13, cublasLt.h and nccl.h in bin/ and include/." >&2
  exit 1
fi
for root in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda "$cache/toolkit"; do
  if is_toolkit "$root"; then echo "$root"; exit 0; fi
done
if [ -n "${BATON_NO_DOWNLOAD:-}" ]; then
  echo "There is no CUDA 13 toolkit on this machine, and BATON_NO_DOWNLOAD is set." >&2
  exit 1
fi

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if is_toolkit "$cache/toolkit"; then echo "$cache/toolkit"; exit 0; fi  # another process was faster
echo "Downloading the CUDA 13.0 toolkit (0.8 GB)" >&2
rm -rf "$cache/venv" "$cache/toolkit"
python3 -m venv "$cache/venv" >&2
if ! "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "${packages[@]}" >&2; then
  echo "Cannot get the CUDA toolkit from PyPI. Set BATON_CUDA_ROOT to one, or BATON_NO_DOWNLOAD=1" \
    "to leave out the tests that need it." >&2
  exit 1
fi
wheels=$(echo "$cache"/venv/lib/python3*/site-packages/nvidia)
# The wheels carry no unversioned library names, and NCCL lies in a folder of its own.
ln -sf libcublasLt.so.13 "$wheels/cu13/lib/libcublasLt.so"
ln -sf ../../nccl/lib/libnccl.so.2 "$wheels/cu13/lib/libnccl.so.2"
ln -sf libnccl.so.2 "$wheels/cu13/lib/libnccl.so"
for header in "$wheels"/nccl/include/*; do ln -sf "../../nccl/include/${header##*/}" "$wheels/cu13/include/"; done
ln -sfn "$wheels/cu13" "$cache/toolkit"
echo "$cache/toolkit"
