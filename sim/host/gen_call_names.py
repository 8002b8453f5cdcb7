#!/usr/bin/python3
"""Writes call_names.c: all functions of the simulated drivers, sorted, for `--call` of the verb fault.

usage: gen_call_names.py SYMBOLS.tsv FUNCTIONS.txt OUTPUT.c
"""
import csv
import sys


def main(symbols, functions, output):
    with open(symbols, encoding="utf-8") as f:
        names = {row["symbol"] for row in csv.DictReader(f, delimiter="\t")}
    with open(functions, encoding="utf-8") as f:
        names |= {line.split()[0] for line in f if line.strip() and not line.startswith("#")}
    with open(output, "w", encoding="utf-8") as f:
        f.write('#include "host/call_names.h"\n\nconst char *const call_names[] = {\n')
        f.writelines(f'\t"{name}",\n' for name in sorted(names))
        f.write("};\nconst size_t call_name_count = sizeof(call_names) / sizeof(call_names[0]);\n")


main(*sys.argv[1:])
