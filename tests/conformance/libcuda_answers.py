"""What a libcuda answers without a GPU and without cuInit, as JSON.

usage: libcuda_answers.py LIBCUDA SYMBOLS.tsv

procaddr: of cuGetProcAddress, for each name and flag, the versions where the answer changes; an answer is
[result, status, the exported symbol that has the address].
errors: of cuGetErrorName, for each error known.
version: of cuDriverGetVersion.
early: each function's result before cuInit, all its arguments zero.
"""
import csv
import ctypes
import json
import os
import re
import sys

# Of CUDA: each minor there was or could be, and numbers that are none.
VERSIONS = [0, 1999, *(major * 1000 + minor * 10 for major in range(2, 14) for minor in range(10)), 3019, 13001,
            2**31 - 1, -1]
FEW_VERSIONS = [2000, 7000, 12000]
LEGACY_STREAM, PER_THREAD_STREAM, UNKNOWN_FLAG = 1, 2, 4
FLAGS = {0: VERSIONS, LEGACY_STREAM: VERSIONS, PER_THREAD_STREAM: VERSIONS,
         LEGACY_STREAM | PER_THREAD_STREAM: FEW_VERSIONS, UNKNOWN_FLAG: FEW_VERSIONS}
UNTOUCHED = 0x55
MOST_ARGUMENTS, NO_ANSWER = 14, -1


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def names_to_ask(symbols):
    """Every symbol, and what it is without its version and stream."""
    plain = {re.sub(r"_pt(ds|sz)$", "", s) for s in symbols}
    return sorted({"", "cuNoSuchFunction", *symbols, *plain, *(re.sub(r"_v\d+$", "", p) for p in plain)})


def changes(ask, versions):
    """[version, answer] wherever the answer differs from that of the version before."""
    seen = []
    for version in versions:
        answer = ask(version)
        if not seen or seen[-1][1] != answer:
            seen.append([version, answer])
    return seen


class Driver:
    """One libcuda."""

    def __init__(self, path, symbols):
        self.cuda = ctypes.CDLL(path)
        self.symbols = {address_of(getattr(self.cuda, s)): s for s in symbols if hasattr(self.cuda, s)}
        self.symbols |= {None: None, UNTOUCHED: "untouched"}

    def old(self, name, version, flags):
        """As the first cuGetProcAddress answers, which has no status."""
        found = ctypes.c_void_p(UNTOUCHED)
        result = self.cuda.cuGetProcAddress(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags))
        return [result, None, self.symbols.get(found.value, "not exported")]

    def new(self, name, version, flags):
        found, status = ctypes.c_void_p(UNTOUCHED), ctypes.c_int(UNTOUCHED)
        result = self.cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags),
                                               ctypes.byref(status))
        return [result, status.value, self.symbols.get(found.value, "not exported")]

    def without_status(self, name, version, flags):
        found = ctypes.c_void_p(UNTOUCHED)
        result = self.cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags),
                                               None)
        return [result, None, self.symbols.get(found.value, "not exported")]


    def error_name(self, error):
        name = ctypes.c_char_p(b"untouched")
        result = self.cuda.cuGetErrorName(error, ctypes.byref(name))
        return [result, name.value and name.value.decode()]

    def version(self):
        version = ctypes.c_int(UNTOUCHED)
        return [self.cuda.cuDriverGetVersion(ctypes.byref(version)), version.value]

    def early(self, symbol):
        """In a process of its own: some libraries' functions fail by a signal on null pointers."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            result = getattr(self.cuda, symbol)(*[ctypes.c_uint64(0)] * MOST_ARGUMENTS)
            os.write(write_end, str(result).encode())
            os._exit(0)
        os.close(write_end)
        os.waitpid(pid, 0)
        with os.fdopen(read_end) as answer:
            return int(answer.read() or NO_ANSWER)


def main(library, table):
    with open(table, encoding="utf-8") as f:
        symbols = [row["symbol"] for row in csv.DictReader(f, delimiter="\t")]
    driver = Driver(library, symbols)
    answers = {}
    for name in names_to_ask(symbols):
        for flags, versions in FLAGS.items():
            answers[f"{name} {flags}"] = changes(lambda v, n=name, f=flags: driver.new(n, v, f), versions)
        answers[f"{name} old"] = changes(lambda v, n=name: driver.old(n, v, 0), FEW_VERSIONS)
        answers[f"{name} without status"] = changes(lambda v, n=name: driver.without_status(n, v, 0), FEW_VERSIONS)
    errors = {error: driver.error_name(error) for error in [*range(-1, 1001), 10000]}
    early = {symbol: driver.early(symbol) for symbol in sorted(set(driver.symbols.values()) & set(symbols))
             if not symbol.startswith("cudbg")}
    json.dump({"procaddr": answers, "errors": errors, "version": driver.version(), "early": early}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
