#!/usr/bin/env python3
"""Switches off each barrier and cp.async wait of the kernels in turn; some test must fail.

usage: barrier_mutation.py [--site SITE] SOURCE_DIR TEST_BINARY...
  --site SITE  tries only the sites whose file:line contains SITE, excused ones too

A site is a __syncthreads, __syncwarp, NamedBarrier or CopyAsyncWait in a kernel or a header of
kernels. It is named file:Function#n, the n-th site of that function. Fails when no test comes to a
site, or when all tests pass without it, unless tests/README.md names it with a reason. Tests that
need more than a second are not used: a site that only these observe counts as unobserved.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDERS = ["engine/ops/cuda/kernels", "kvtransfer/cuda/kernels", "gpu"]
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
TEST_SECONDS = 1  # of CPU time, so that a busy machine changes nothing
MUTANT_SECONDS = 5
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


def run(binary, tests, settings, cpu_seconds):
    """Whether they pass, and the CPU time they took."""
    env = dict(os.environ, GTEST_FAIL_FAST="1", GTEST_BRIEF="1", CUDA_EMULATION_WORKERS="1",
               BATON_SMALL_SHAPES="1")
    env.update({f"CUDA_EMULATION_{key}": value for key, value in settings.items()})

    limited = ["sh", "-c", 'ulimit -S -t "$0"; exec "$@"', str(cpu_seconds), binary,
               f"--gtest_filter={':'.join(tests)}"]
    process = subprocess.Popen(limited, env=env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


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
    """The sites a test comes to and the CPU time it takes; no sites for a slow one."""
    with tempfile.NamedTemporaryFile("r") as file:
        code, seconds = run(binary, [test], {"BARRIERS_FILE": file.name}, TEST_SECONDS)
        if code == -signal.SIGXCPU:
            return set(), seconds
        if code != 0:
            sys.exit(f"{test} fails with all barriers in place: exit code {code}")
        return set(file.read().split()), seconds


def is_observed(site, jobs, visits):
    """None: no test comes to the site. Else whether some test fails without it, in some mode."""
    tests = sorted((seconds, binary, test) for (binary, test), (met, seconds) in zip(jobs, visits)
                   if any(place.endswith("/" + site) for place in met))
    if not tests:
        return None
    by_binary = {}
    for _, binary, test in tests:
        by_binary.setdefault(binary, []).append(test)
    # Mostly the cheapest test fails at once; all of them are run only where the few do not.
    groups = [(tests[0][1], [test for _, binary, test in tests[:3] if binary == tests[0][1]]),
              *by_binary.items()]
    for binary, names in groups:
        for mode in MODES:
            if run(binary, names, dict(mode, SKIP_SYNC=site), MUTANT_SECONDS * len(names))[0] != 0:
                return True
    return False


def main():
    arguments = sys.argv[1:]
    wanted = ""
    if arguments[0] == "--site":
        wanted, arguments = arguments[1], arguments[2:]
    source, binaries = Path(arguments[0]), arguments[1:]
    sites = sites_of(source)
    excused = set(re.findall(r"`([\w/.]+:\w+#\d+)`", (source / "tests/README.md").read_text()))
    failures = [f"{name} in tests/README.md is no barrier" for name in
                sorted(excused - set(sites.values()))]
    tried = {site: name for site, name in sites.items()
             if (wanted in site if wanted else name not in excused)}

    jobs = [(binary, test) for binary in binaries for test in list_tests(binary)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        visits = list(pool.map(lambda job: reached(*job), jobs))
        results = list(pool.map(lambda site: is_observed(site, jobs, visits), tried))
    for (site, name), result in zip(tried.items(), results):
        if result is None:
            failures.append(f"{site} ({name}): no test comes to it")
        elif not result and name not in excused:
            failures.append(f"{site} ({name}): all tests pass without it")
        elif result and name in excused:
            failures.append(f"{name} is observed now: take it out of tests/README.md")
    print(f"{len(sites)} barriers and waits, {results.count(True)} observed, "
          f"{len(excused)} excused")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
