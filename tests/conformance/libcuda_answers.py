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
        # Made once, and not for each of a million calls.
        self.found, self.status = ctypes.c_void_p(), ctypes.c_int()
        self.found_at, self.status_at = ctypes.byref(self.found), ctypes.byref(self.status)
        asked = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
        self.get_old = ctypes.CFUNCTYPE(ctypes.c_int, *asked)(("cuGetProcAddress", self.cuda))
        self.get_new = ctypes.CFUNCTYPE(ctypes.c_int, *asked, ctypes.c_void_p)(("cuGetProcAddress_v2", self.cuda))

    def answer(self, function, name, *more):
        """(result, the exported symbol that has the address) of an asking."""
        self.found.value = UNTOUCHED
        result = function(name, self.found_at, *more)
        return result, self.symbols.get(self.found.value, "not exported")

    def old(self, name, version, flags):
        """As the first cuGetProcAddress answers, which has no status."""
        result, symbol = self.answer(self.get_old, name, version, flags)
        return [result, None, symbol]

    def new(self, name, version, flags):
        self.status.value = UNTOUCHED
        result, symbol = self.answer(self.get_new, name, version, flags, self.status_at)
        return [result, self.status.value, symbol]

    def without_status(self, name, version, flags):
        result, symbol = self.answer(self.get_new, name, version, flags, None)
        return [result, None, symbol]

    def error_name(self, error):
        name = ctypes.c_char_p(b"untouched")
        result = self.cuda.cuGetErrorName(error, ctypes.byref(name))
        return [result, name.value and name.value.decode()]

    def version(self):
        version = ctypes.c_int(UNTOUCHED)
        return [self.cuda.cuDriverGetVersion(ctypes.byref(version)), version.value]

    def early(self, symbols):
        """{symbol: result}. Some libraries' functions fail by a signal on null pointers: another process goes on after those."""
        answers, left = {}, list(symbols)
        while left:
            answered = self.early_in_a_child(left)
            answers |= zip(left, answered)
            if len(answered) < len(left):
                answers[left[len(answered)]] = NO_ANSWER
            left = left[len(answered) + 1:]
        return answers

    def early_in_a_child(self, symbols):
        """The results of the first ones, as far as the process came."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            for symbol in symbols:
                result = getattr(self.cuda, symbol)(*[ctypes.c_uint64(0)] * MOST_ARGUMENTS)
                os.write(write_end, f"{result}\n".encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as said:
            results = [int(line) for line in said]
        os.waitpid(pid, 0)
        return results


def main(library, table):
    with open(table, encoding="utf-8") as f:
        symbols = [row["symbol"] for row in csv.DictReader(f, delimiter="\t")]
    driver = Driver(library, symbols)
    answers = {}
    own = sorted(set(driver.symbols.values()) & set(symbols))
    # cuInit, which changes what the others answer, has a process of its own.
    early = driver.early(s for s in own if s != "cuInit" and not s.startswith("cudbg")) | driver.early(["cuInit"])
    for name in names_to_ask(symbols):
        spelled = name.encode()
        for flags, versions in FLAGS.items():
            answers[f"{name} {flags}"] = changes(lambda v, n=spelled, f=flags: driver.new(n, v, f), versions)
        answers[f"{name} old"] = changes(lambda v, n=spelled: driver.old(n, v, 0), FEW_VERSIONS)
        answers[f"{name} without status"] = changes(lambda v, n=spelled: driver.without_status(n, v, 0), FEW_VERSIONS)
    errors = {error: driver.error_name(error) for error in [*range(-1, 1001), 10000]}
    json.dump({"procaddr": answers, "errors": errors, "version": driver.version(), "early": early}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
