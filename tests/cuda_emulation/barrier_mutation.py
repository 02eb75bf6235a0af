#!/usr/bin/env python3
"""Switches off each barrier and cp.async wait of the kernels in turn; some test must fail.

usage: barrier_mutation.py SOURCE_DIR TEST_BINARY...

A site is a __syncthreads, __syncwarp, NamedBarrier or CopyAsyncWait in a kernel or a header of
kernels. It is named file:Function#n, the n-th site of that function. Fails when no test comes to a
site, or when all tests pass without it, unless tests/README.md names it with a reason.
"""
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDERS = ["engine/ops/cuda/kernels", "kvtransfer/cuda", "gpu"]
SITE = re.compile(r"__syncthreads\(|__syncwarp\(|NamedBarrier\(|CopyAsyncWait<")
FUNCTION = re.compile(r"\b(\w+)\s*\(")
MODES = [
    {"ORDER": "forward", "CP_ASYNC": "late"},
    {"ORDER": "reverse", "CP_ASYNC": "early"},
    {"ORDER": "random:1", "CP_ASYNC": "early"},
    {"ORDER": "forward", "CP_ASYNC": "early"},
    {"ORDER": "reverse", "CP_ASYNC": "late"},
    {"ORDER": "random:2", "CP_ASYNC": "random"},
]
TIMEOUT_SECONDS = 60


def enclosing_function(lines, index):
    """The function whose head last stands before line `index`."""
    for start in range(index, -1, -1):
        if "__device__" in lines[start] or "__global__" in lines[start]:
            head = " ".join(lines[start : index + 1]).split("{")[0]
            names = [n for n in FUNCTION.findall(head) if not n.startswith("__")]
            return names[0] if names else "?"
    return "?"


def sites_of(source):
    """{"path:line": "path:Function#n"} of all kernels."""
    sites = {}
    for folder in FOLDERS:
        for path in sorted((source / folder).glob("*.cu")) + sorted((source / folder).glob("*.h")):
            if path.name == "portable.h":
                continue  # defines them
            lines = path.read_text().splitlines()
            counts = {}
            for index, line in enumerate(lines):
                if not SITE.search(line.split("//")[0]):
                    continue
                function = enclosing_function(lines, index)
                counts[function] = counts.get(function, 0) + 1
                name = path.relative_to(source).as_posix()
                sites[f"{name}:{index + 1}"] = f"{name}:{function}#{counts[function]}"
    return sites


def run(binary, tests, settings, repeat_env=None):
    env = dict(os.environ, GTEST_FAIL_FAST="1", GTEST_BRIEF="1", CUDA_EMULATION_WORKERS="1")
    env.update({f"CUDA_EMULATION_{key}": value for key, value in settings.items()})
    try:
        done = subprocess.run([binary, f"--gtest_filter={':'.join(tests)}"], env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=TIMEOUT_SECONDS)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False


def list_tests(binary):
    out = subprocess.run([binary, "--gtest_list_tests"], capture_output=True, text=True,
                         check=True).stdout
    tests, suite = [], ""
    for line in out.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not line.startswith(" "):
            suite = name
        elif line.startswith("  "):
            tests.append(suite + name.strip())
    return tests


def reached(binary, test):
    """The sites a test comes to, and how long it takes."""
    with tempfile.NamedTemporaryFile("r") as file:
        began = time.monotonic()
        if not run(binary, [test], {"BARRIERS_FILE": file.name}):
            sys.exit(f"{test} fails with all barriers in place")
        return set(file.read().split()), time.monotonic() - began


def main():
    source = Path(sys.argv[1])
    binaries = sys.argv[2:]
    sites = sites_of(source)
    excused = set(re.findall(r"`([\w/.]+:\w+#\d+)`", (source / "tests/README.md").read_text()))
    pool = ThreadPoolExecutor(max_workers=2)

    jobs = [(binary, test) for binary in binaries for test in list_tests(binary)]
    visits = list(pool.map(lambda job: reached(*job), jobs))

    def passes_without(site):
        """None: no test comes to it. Else whether all that do pass in all modes."""
        by_binary = {}
        for (binary, test), (met, seconds) in zip(jobs, visits):
            if any(m.endswith("/" + site) for m in met):
                by_binary.setdefault(binary, []).append((seconds, test))
        if not by_binary:
            return None
        for mode in MODES:
            for binary, tests in by_binary.items():
                order = [test for _, test in sorted(tests)]
                if not run(binary, order, dict(mode, SKIP_SYNC=site)):
                    return False
        return True

    results = list(pool.map(passes_without, sites))
    failures = []
    for (site, name), result in zip(sites.items(), results):
        if result is None:
            failures.append(f"{site} ({name}): no test comes to it")
        elif result and name not in excused:
            failures.append(f"{site} ({name}): all tests pass without it")
        elif not result and name in excused:
            failures.append(f"{name} is observed now: take it out of tests/README.md")
    failures += [f"{name} in tests/README.md is no barrier" for name in
                 sorted(excused - set(sites.values()))]
    print(f"{len(sites)} barriers and waits, {results.count(False)} observed, "
          f"{len(excused)} excused")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
