"""The entries of functions that carve does not hook: from the first call on they jump to the driver's directly, and
where the process may not have such pages they go through the slots as before. In a slice, over the simulated driver."""
import json
import subprocess
import sys

import pytest

from conftest import BUILD
from functions import FUNCTIONS, HOOKS

COMMON = r"""
import ctypes as c, json, os, sys, threading
entries = ENTRIES
libc, cuda = c.CDLL(None), c.CDLL("libcuda.so.1")
libc.dlsym.restype, libc.dlsym.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
libc.prctl.argtypes = [c.c_int] + [c.c_ulong] * 4
# What a linked program is bound to. dlsym would load the driver.
base = min(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if "/front/libcuda.so.1" in line)
def entry(name):
    return base + entries[name]
def kind(name):
    address, code = entry(name), c.string_at(entry(name), 6)
    if code[0] == 0xE9:
        target = address + 5 + int.from_bytes(code[1:5], "little", signed=True)
        return "direct" if target == libc.dlsym(cuda._handle, name.encode()) else "elsewhere"
    return "slot" if code[:2] == b"\xff\x25" else code.hex()
def kinds():
    found = [kind(name) for name in entries]
    return {k: found.count(k) for k in found}
def call():
    version = c.c_int()
    return c.CFUNCTYPE(c.c_int, c.c_void_p)(entry("cuDriverGetVersion"))(c.addressof(version)), version.value > 0
def mapping(address):
    for line in open("/proc/self/maps"):
        start, end = (int(n, 16) for n in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[1]
"""
BOUND = COMMON + r"""
seen = [kinds(), call(), kinds(), mapping(entry("cuDriverGetVersion"))]
writable = [line for line in open("/proc/self/maps") if line.split()[1][1:3] == "wx"]
print(json.dumps([*seen, writable, call()]))
"""
# PR_SET_MDWE: no page that was not executable becomes so.
DENIED = COMMON + r"""
if libc.prctl(65, 1, 0, 0, 0):
    print(json.dumps("unknown"))
else:
    print(json.dumps([call(), kinds(), mapping(entry("cuDriverGetVersion"))]))
"""
# As a debugger leaves it when the program is told to go on: the breakpoint's page is written by /proc/self/mem.
BREAKPOINT = COMMON + r"""
where = entry("cuDeviceGetCount")
was = c.string_at(where, 1)
memory = os.open("/proc/self/mem", os.O_RDWR)
os.pwrite(memory, b"\xcc", where)
seen = [call(), kind("cuDriverGetVersion"), kind("cuDeviceGetCount")[:2]]
os.pwrite(memory, was, where)
count = c.c_int(-1)
print(json.dumps([*seen, kind("cuDeviceGetCount"), c.CFUNCTYPE(c.c_int, c.c_void_p)(where)(c.addressof(count))]))
"""
# All threads come to entries for the first time at once, while the first of them replaces the pages.
RACE = COMMON + r"""
good = 0
for _ in range(20):
    child = os.fork()
    if child == 0:
        start, results = threading.Barrier(8), []
        def work():
            start.wait()
            results.append(all(call() == (0, True) for _ in range(300)))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        os._exit(0 if results == [True] * 8 and kind("cuDriverGetVersion") == "direct" else 1)
    good += os.waitpid(child, 0)[1] == 0
print(json.dumps(good))
"""


def forwarded():
    """{name: offset in the front's library}"""
    symbols = subprocess.run(["nm", "-D", BUILD / "src/front/libcuda.so.1"], check=True, capture_output=True, text=True)
    offsets = {line.split()[2]: int(line.split()[0], 16) for line in symbols.stdout.splitlines() if " T " in line}
    return {name: offsets[name] for name in set(FUNCTIONS) - set(HOOKS)}


def in_slice(host, script):
    done = host.carve("run", "--ephemeral", "--gpu-memory", "4Gi", "--isolation", "preload", "--", sys.executable, "-c",
                      script.replace("ENTRIES", repr(forwarded()), 1))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_entries_jump_to_the_driver_after_the_first_call(host):
    before, first, after, mapping, writable, again = in_slice(host, BOUND)
    assert before == {"slot": len(forwarded())}
    assert first == again == [0, True]
    # The driver lacks some: their slots lead to the front's own answer.
    assert set(after) <= {"direct", "elsewhere"} and after["direct"] > 300
    assert mapping == "r-xp"
    assert writable == []


def test_where_no_page_may_become_executable_the_slots_stay(host):
    seen = in_slice(host, DENIED)
    if seen == "unknown":
        pytest.skip("this kernel has no PR_SET_MDWE (before Linux 6.3)")
    assert seen == [[0, True], {"slot": len(forwarded())}, "r-xp"]


def test_a_breakpoint_on_an_entry_can_be_taken_away_again(host):
    assert in_slice(host, BREAKPOINT) == [[0, True], "direct", "cc", "slot", 3]  # CUDA_ERROR_NOT_INITIALIZED


def test_threads_that_come_for_the_first_time_at_once(host):
    assert in_slice(host, RACE) == 20
