"""Asks a libcuda for every name at every version and flag; prints which exported function each answer is.

usage: procaddr.py LIBRARY SYMBOLS.tsv [init]"""
import ctypes
import itertools
import json
import re
import sys

VERSIONS = [2000, 3000, 3020, 4000, 5000, 7000, 8000, 9000, 10000, 10010, 11000, 11020, 11030, 11040, 11060,
            11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12080, 13000]
FLAGS = [0, 1, 2, 3]


def main(library, table, init=None):
    cuda = ctypes.CDLL(library)
    if init:
        cuda.cuInit(0)
    symbols = [line.split("\t")[0] for line in open(table, encoding="utf-8")][1:]
    symbols = [s for s in symbols if not s.startswith("cudbg")]
    exported = {}
    for symbol in symbols:
        if hasattr(cuda, symbol):
            address = ctypes.cast(getattr(cuda, symbol), ctypes.c_void_p).value
            exported.setdefault(address, symbol)
    names = sorted(set(symbols) | {re.sub(r"(_v\d)?(_ptsz|_ptds)?$", "", s) for s in symbols})
    answers = {}
    for name, version, flags in itertools.product(names, VERSIONS, FLAGS):
        function, status = ctypes.c_void_p(), ctypes.c_int(-1)
        result = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), version,
                                          ctypes.c_uint64(flags), ctypes.byref(status))
        found = exported.get(function.value, "?") if function.value else None
        answers[f"{name} {version} {flags}"] = [result, status.value, found]
    json.dump(answers, sys.stdout)


main(*sys.argv[1:])
