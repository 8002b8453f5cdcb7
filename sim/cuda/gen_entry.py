"""Writes what completes libcuda beside the functions written by hand.

usage: gen_entry.py SYMBOLS.tsv PROCADDR.tsv FUNCTIONS.h NM IMPLEMENTED.a ENTRY.c STUBS.c VERSION=EXPORTS.map...

- variants on the thread's own stream (name_ptsz, name_ptds), around the plain function;
- older names of the same type (cuCtxDestroy), which call the newer one (cuCtxDestroy_v2);
- functions of before CUDA 3.2 that have a newer form of another type (cuMemAlloc): their contexts are not;
- every other public function: counted by the host, CUDA_ERROR_NOT_SUPPORTED;
- the table of cuGetProcAddress;
- for each version of CUDA that a played driver is of, the list of what that driver exports.
"""
import csv
import re
import subprocess
import sys

PROTOTYPE = re.compile(r"^CUDA_API(_PTSZ|_PTDS)?\(\s*(\w+),\s*\((.*?)\)\);", re.S | re.M)

def read_table(path):
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def read_prototypes(path):
    """Argument types of each function, variants included."""
    args = {}
    for suffix, name, types in PROTOTYPE.findall(open(path, encoding="utf-8").read()):
        types = " ".join(types.split())
        args[name] = types
        if suffix:
            args[name + suffix.lower()] = types
    return args


def defined_in(nm, archive):
    out = subprocess.run([nm, "-g", "--defined-only", archive], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return {f[2] for f in map(str.split, out.splitlines()) if len(f) == 3 and f[1] == "T"}


def call_of(name, target, types, per_thread):
    """A function that passes its arguments on to another of the same type."""
    types = [] if types == "void" else types.split(", ")
    params = ", ".join(f"{t}{'' if t.endswith('*') else ' '}a{i}" for i, t in enumerate(types))
    call = f"{target}({', '.join(f'a{i}' for i in range(len(types)))})"
    body = [f"\treturn {call};"]
    if per_thread:
        body = ["\tstream_per_thread_begin();", f"\tCUresult result = {call};",
                "\tstream_per_thread_end();", "\treturn result;"]
    return "\n".join([f"CUresult {name}({params or 'void'})", "{", *body, "}"])


def newer_name(name, args, known):
    """The function that an older name of the same type now stands for."""
    for version in ("_v2", "_v3"):
        if name + version in known and args.get(name) == args.get(name + version):
            return name + version
    return None


def first_versions(rows):
    """symbol -> the version of CUDA that added it. The few that cuGetProcAddress does not know are older than all."""
    since = {}
    for row in rows:
        for name, version in (row["symbol"], row["version"]), (row["thread_symbol"], row["thread_version"]):
            if name:
                since[name] = min(int(version), since.get(name, int(version)))
    return since


def export_map(names):
    return ["{", "global:"] + [f"\t{n};" for n in sorted(names)] + ["local:", "\t*;", "};"]


def entry_source(calls, undeclared, rows):
    """The calls that pass on, and the table of cuGetProcAddress."""
    lines = ['#include "cuda/procaddr.h"', '#include "cuda/stream.h"', ""]
    lines += [f"CUDA_API({n}, (void));" for n in undeclared]
    lines += calls + ["", "const struct procaddr procaddr_table[] = {"]
    for row in rows:
        thread = row["thread_symbol"]
        lines.append("\t{%s}," % ", ".join([
            '"%s"' % row["name"], row["version"], f"(void *){row['symbol']}", row["thread_version"] or "0",
            f"(void *){thread}" if thread else "NULL"]))
    lines += ["};",
              "const size_t procaddr_count = sizeof(procaddr_table) / sizeof(procaddr_table[0]);"]
    return lines


def write(path, lines):
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def main(symbols_path, procaddr_path, functions_path, nm, archive, out_entry, out_stubs, *out_maps):
    names = {r["symbol"] for r in read_table(symbols_path) if not r["symbol"].startswith("cudbg")}
    args = read_prototypes(functions_path)
    known = defined_in(nm, archive)
    calls, stubs, older = [], [], []
    for name in sorted(names - known):
        variant = name.endswith(("_ptsz", "_ptds"))
        plain = name[:-5] if variant else name
        target = plain if variant and plain in known else newer_name(plain, args, known)
        if target:
            calls.append(call_of(name, target, args[plain], variant))
        elif name + "_v2" in known:
            older.append(name)
        else:
            stubs.append(name)
    rows = read_table(procaddr_path)
    undeclared = sorted({r["symbol"] for r in rows} | {r["thread_symbol"] for r in rows} - {""})
    undeclared = [n for n in undeclared if n not in args]
    write(out_entry, entry_source(calls, undeclared, rows))
    write(out_stubs, ['#include "cuda/unsupported.h"', ""] + [f"UNSUPPORTED({n})" for n in stubs] +
          [f"OLDER_API({n})" for n in older])
    since = first_versions(rows)
    for version, path in (m.split("=", 1) for m in out_maps):
        write(path, export_map(n for n in names if since.get(n, 0) <= int(version)))


main(*sys.argv[1:])
