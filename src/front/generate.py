#!/usr/bin/env python3
"""Writes what a front library is generated from: its trampolines (.S) and its export list (.map).

    generate.py cuda --classes symbol-classes.tsv --decisions decisions.tsv --hooks hooks.h ...
    generate.py nvml --names exported-by-550.txt --names newer.txt --classes symbol-classes.tsv --decisions decisions.tsv --hooks hooks.h ...

Fails when a symbol has no known class, or when one whose class takes, gives, keeps or reports device memory, submits work,
begins or ends a capture, or names devices or processes is neither hooked nor has its reason to be forwarded in decisions.tsv: nobody has thought about it.
"""
import argparse
import pathlib
import re
import sys

# The meaning of a class for the front. True: must be hooked, or have a reason in decisions.tsv.
CLASSES = {
    "capture": False,
    "capture.edge": True,
    "data": False,
    "debugger": False,
    "entry": True,
    "graphics": False,
    "memory.charge": True,
    "memory.export": False,
    "memory.graph": True,
    "memory.host (never charged)": False,
    "memory.implicit (driver memory taken as a side effect)": True,
    "memory.import (exporter pays)": False,
    "memory.keep (the driver may hold it on)": True,
    "memory.map-policy": False,
    "memory.release": True,
    "memory.report": True,
    "other": False,
    "sync": False,
    "work.host-callback": True,
    "work.launch": True,
    "work.memcpy": True,
    "work.memset": True,
    "work.ordering-only": False,
    "work.stream-memop": False,
    "work.virtual-memory": False,
}
# The same of NVML's functions: of which devices and processes they tell.
NVML_CLASSES = {
    "change": False,      # changes a device for all who use it: refused in a slice, unless decided otherwise
    "devices": True,      # counts devices or hands them out
    "memory": True,
    "plain": False,       # takes a device of the slice and names neither devices nor processes
    "processes": True,
    "utilization": True,
    "vgpu": False,        # reads what there is of a host for virtual machines, where slices cannot be
}
WRAPPERS = ["dlmopen", "dlopen", "dlsym", "dlvsym"]


def fail(message):
    sys.exit(f"generate.py: {message}")


def read_rows(path):
    """Rows of a tab-separated file, without blank lines and comments."""
    for line in pathlib.Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def read_hooks(path):
    """{name: "HOOKED", "GATED" or "LAUNCHED"} of the X-macro lists: indented lines of the form X(name), G(name), L(name)."""
    found = re.findall(r"^\s+([XGL])\((\w+)\)", pathlib.Path(path).read_text(), re.MULTILINE)
    names = [name for _, name in found]
    for name in sorted({n for n in names if names.count(n) > 1}):
        fail(f"{path}: {name} is hooked twice")
    kinds = {"X": "HOOKED", "G": "GATED", "L": "LAUNCHED"}
    return {name: kinds[letter] for letter, name in found}


def read_classes(path):
    rows = read_rows(path)
    if next(rows)[:2] != ["symbol", "class"]:
        fail(f"{path}: not a table of symbols and classes")
    return {row[0]: row[1] for row in rows}


def read_decisions(path):
    """symbol -> (class or "forward", reason)"""
    decisions = {}
    for row in read_rows(path):
        if len(row) != 3 or not row[2].strip():
            fail(f"{path}: '{row[0]}' needs a symbol, a decision and a reason")
        decisions[row[0]] = (row[1], row[2])
    return decisions


def decided_functions(known, classes, decisions, hooks):
    """Functions to export, each with somebody's decision behind it. `known`: CLASSES or NVML_CLASSES."""
    functions = []
    for stray in sorted(set(decisions) - set(classes)):
        fail(f"decided upon, but in no driver: {stray}")
    for name, given in classes.items():
        decision = decisions.get(name, (None,))[0]
        cls = decision if decision not in (None, "forward") else given
        if cls not in known:
            fail(f"{name} is of class '{cls}': classify it in decisions.tsv")
        if known[cls] and name not in hooks and decision != "forward":
            fail(f"{name} ({cls}) is neither hooked nor has a reason to be forwarded")
        if decision == "forward" and name in hooks:
            fail(f"{name} is hooked, so decisions.tsv must not call it forwarded")
        if cls != "data":
            functions.append(name)
    return sorted(functions)


def refused_functions(classes, decisions, hooks):
    """{name: "REFUSED"} of NVML's functions that a slice has no right to."""
    return {name: "REFUSED" for name, cls in classes.items()
            if decisions.get(name, (cls,))[0] == "change" and name not in hooks}


def assembly(functions, hooks):
    """One line a function: TRAMPOLINE, or its kind of hook in trampoline.inc, then tables in the same order."""
    yield '#include "front/trampoline.inc"'
    yield "TRAMPOLINES_BEGIN"
    for index, name in enumerate(functions):
        yield f"{hooks.get(name, 'TRAMPOLINE')}({name}, {index})"
    yield "SLOTS_BEGIN"
    for name in functions:
        yield f"SLOT({name})"
    yield "ENTRIES_BEGIN"
    for name in functions:
        yield f"{'ENTRY_' + hooks[name] if name in hooks else 'ENTRY'}({name})"
    yield "NAMES_BEGIN"
    for name in functions:
        yield f"NAME({name})"
    yield f"TABLES_END({len(functions)})"


def export_map(functions):
    yield "{"
    yield "global:"
    for name in sorted(functions + WRAPPERS):
        yield f"\t{name};"
    yield "local: *;"
    yield "};"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["cuda", "nvml"])
    parser.add_argument("--classes", required=True)
    parser.add_argument("--decisions", required=True)
    parser.add_argument("--names", action="append", default=[])
    parser.add_argument("--hooks", required=True)
    parser.add_argument("--assembly", required=True)
    parser.add_argument("--map", required=True)
    args = parser.parse_args()

    hooks, classes, decisions = read_hooks(args.hooks), read_classes(args.classes), read_decisions(args.decisions)
    if args.library == "cuda":
        functions = decided_functions(CLASSES, classes, decisions, hooks)
    else:
        exported = {row[0] for path in args.names for row in read_rows(path)}
        for name in sorted(exported ^ set(classes)):
            fail(f"{name} is in {'no row of symbol-classes.tsv' if name in exported else 'no driver'}")
        functions = decided_functions(NVML_CLASSES, classes, decisions, hooks)
        hooks |= refused_functions(classes, decisions, hooks)
    for stray in sorted(set(hooks) - set(functions)):
        fail(f"hooked, but in no driver: {stray}")
    pathlib.Path(args.assembly).write_text("\n".join(assembly(functions, hooks)) + "\n")
    pathlib.Path(args.map).write_text("\n".join(export_map(functions)) + "\n")


if __name__ == "__main__":
    main()
