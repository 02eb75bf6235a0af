#!/usr/bin/env python3
"""Makes docs/kernels.md, the table of registers, spills and shared memory of every kernel, from what
ptxas said when nvcc compiled them (*.ptxas in a build folder).

usage: kernel_table.py [--check FILE] BUILD_FOLDER
  --check FILE  prints nothing; exit 1 when FILE differs from the table, or a kernel spills that the
                list below does not name
"""
import collections
import difflib
import pathlib
import re
import subprocess
import sys

# Kernels that may use local memory, and why. Everything else must keep its state in registers.
MAY_SPILL = {
    # name without template arguments: reason
}

HEAD = """# Kernels: registers, spills, shared memory

Made by `scripts/kernel_table.py` from ptxas's figures (nvcc {version}); the test `cuda_kernel_table`
compares. Shared memory is the static part; dynamic shared memory is chosen at launch. A spill of 0
means that the kernel keeps its state in registers.

| kernel | registers sm_80 / sm_90 | spilled bytes sm_80 / sm_90 | stack bytes | shared bytes |
|---|---|---|---|---|
"""

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\d+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def read(folder):
    """{mangled name: {architecture: (registers, spills, stack, shared)}}"""
    kernels = collections.defaultdict(dict)
    for path in sorted(pathlib.Path(folder).rglob("*.ptxas")):
        name = architecture = None
        stack = spills = 0
        for line in path.read_text().splitlines():
            if match := ENTRY.search(line):
                name, architecture = match.groups()
            elif match := STACK.search(line):
                stack, spills = int(match[1]), int(match[2]) + int(match[3])
            elif (match := USED.search(line)) and name:
                shared = SHARED.search(line)
                kernels[name][architecture] = (int(match[1]), spills, stack,
                                               int(shared[1]) if shared else 0)
                name = None
    return kernels


def readable(names):
    """Demangled, without the namespaces, parameters and file hashes that make them long."""
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                         check=True).stdout.splitlines()
    short = []
    for text in out:
        text = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::", "", text)
        text = re.sub(r"^void ", "", text)
        depth = 0
        for at, character in enumerate(text):  # the parameter list begins outside of < >
            depth += (character == "<") - (character == ">")
            if character == "(" and depth == 0:
                text = text[:at]
                break
        text = re.sub(r"\(int\)(-?\d+)", r"\1", text)
        text = re.sub(r"\(bool\)([01])", lambda m: "true" if m[1] == "1" else "false", text)
        text = re.sub(r"\((\w|::)+\)(\d+)", r"\2", text)
        short.append(text.replace("baton::", "").replace("__nv_bfloat16", "bf16").replace("__half", "f16"))
    return short


def pair(values):
    return str(values[0]) if len(set(values)) == 1 else " / ".join(map(str, values))


def version(folder):
    cache = pathlib.Path(folder) / "CMakeCache.txt"
    nvcc = re.search(r"BATON_NVCC:FILEPATH=(.*)", cache.read_text())
    out = subprocess.run([nvcc[1], "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release [\d.]+, V([\d.]+)", out)[1]


def main():
    arguments = sys.argv[1:]
    check = None
    if arguments[:1] == ["--check"]:
        check, arguments = pathlib.Path(arguments[1]), arguments[2:]
    if len(arguments) != 1:
        sys.exit(__doc__)
    kernels = read(arguments[0])
    if not kernels:
        sys.exit(f"no *.ptxas below {arguments[0]}: nvcc compiled nothing there")
    rows, spilling = [], []
    for mangled, name in zip(kernels, readable(kernels)):
        figures = [kernels[mangled][architecture] for architecture in sorted(kernels[mangled])]
        registers, spills, stack, shared = zip(*figures)
        rows.append(f"| `{name}` | {pair(registers)} | {pair(spills)} | {pair(stack)} | {pair(shared)} |")
        if any(spills) and name.split("<")[0].split("::")[-1] not in MAY_SPILL:
            spilling.append(name)
    table = HEAD.format(version=version(arguments[0])) + "\n".join(sorted(rows)) + "\n"
    if check is None:
        print(table, end="")
        return
    for name in spilling:
        print(f"kernel spills registers: {name}; shrink its tile, or name it in MAY_SPILL with a reason")
    known = check.read_text() if check.exists() else ""
    made_with = re.search(r"\(nvcc ([\d.]+)\)", known)
    if made_with and made_with[1] != version(arguments[0]):
        print(f"{check} was made with nvcc {made_with[1]}; only spills were checked")
    elif known != table:
        print(*difflib.unified_diff(known.splitlines(), table.splitlines(), str(check), "this build",
                                    lineterm=""), sep="\n")
        sys.exit(f"{check} is out of date: scripts/kernel_table.py {arguments[0]} > {check}")
    sys.exit(1 if spilling else 0)


main()
