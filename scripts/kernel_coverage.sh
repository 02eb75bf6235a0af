#!/usr/bin/env bash
# Prints the lines of kernels that no test executes, in the emulation; exit code 1 if there are any
# that tests/README.md does not name.
# usage: kernel_coverage.sh [BUILD_DIR]        default: build/coverage
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/coverage}
tests=(engine_cuda_attention_test engine_cuda_kernels_test engine_cuda_matmul_test
  engine_cuda_sample_test kvtransfer_kernels_test)

# Only the kernels are instrumented: everything else as in a release build.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_KERNEL_COVERAGE=ON \
  ${BATON_CUDA_ROOT:+-DBATON_CUDA_ROOT="$BATON_CUDA_ROOT"} >/dev/null
ninja -C "$build" "${tests[@]}"
find "$build" -name '*.gcda' -delete
for test in "${tests[@]}"; do
  # One OS thread: counters are not atomic.
  CUDA_EMULATION_WORKERS=1 "$(find "$build/tests" -name "$test" -type f -perm -u+x | head -1)" \
    --gtest_brief=1
done
gcovr --root . --object-directory "$build" --filter 'engine/ops/cuda/kernels/.*' \
  --filter 'kvtransfer/cuda/.*\.cu' --filter 'gpu/.*\.h' --json "$build/lines.json" >/dev/null "$build"
python3 - "$build/lines.json" <<'PYTHON'
import json, pathlib, re, sys

excused = set(re.findall(r"`line: (.+?)`", pathlib.Path("tests/README.md").read_text()))
covered = total = 0
missing = []
for file in json.load(open(sys.argv[1]))["files"]:
    source = pathlib.Path(file["file"]).read_text().splitlines()
    counts = {}
    for line in file["lines"]:  # one entry per instance of a template
        if line.get("gcovr/noncode"):
            continue
        number = line["line_number"]
        counts[number] = counts.get(number, 0) + line["count"]
    for number, count in sorted(counts.items()):
        total += 1
        covered += count > 0
        text = source[number - 1].strip()
        if count == 0 and text not in excused:
            missing.append(f"{file['file']}:{number}: {text}")
print(f"kernels: {covered} of {total} lines executed")
print("\n".join(missing))
sys.exit(1 if missing else 0)
PYTHON
