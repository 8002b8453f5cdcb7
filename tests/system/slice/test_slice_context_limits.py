"""Limits of a context (stack, heap, printf's buffer) take memory of the slice. Judged by the driver's own books
(`carve sim stat`)."""
import json
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ONCE_FOR_THE_FRONT
from in_slice import BEGIN, GIB, MIB, gpu, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT


# A raised limit takes memory at once, for each thread that can run; a driver does not always take it back.
@pytest.mark.needs_sim("what a limit of a context takes, and when, is each driver's own")
def test_limits_of_a_context_count(host):
    said = in_slice(host, r"""
begin()
STACK, HEAP = 0, 2
def limit(which, value): return cuda.cuCtxSetLimit(which, c.c_size_t(value))
before, results = room(), []
assert limit(HEAP, 1024 * MIB) == 0
heap = room()
for _ in range(5):
    assert limit(HEAP, 8 * MIB) == limit(HEAP, 1024 * MIB) == 0
again = room()
too_much = [limit(HEAP, 4096 * MIB), limit(STACK, 64 << 10), limit(STACK, 500 << 10)]
refused = room()
assert limit(STACK, 4 << 10) == 0
stack = room()
assert limit(STACK, 1 << 10) == limit(STACK, 4 << 10) == 0
stack_again = room()
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
begin()
print(json.dumps({"before": before, "heap": heap, "again": again, "too_much": too_much, "refused": refused,
                  "stack": stack, "stack_again": stack_again, "after": room()}))
""")
    assert said["heap"] == said["again"] == said["before"] - (1024 - 8) * MIB
    assert said["too_much"] == [2, 2, 2] and said["refused"] == said["heap"]
    assert said["stack"] == said["stack_again"] < said["refused"] - 512 * MIB
    assert said["after"] == said["before"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.needs_sim("makes a call of the driver slow")
def test_a_limit_that_is_lowered_while_another_allocates(host, limit):
    """The device's free memory is not what this process gave back."""
    high, low = {1: (512 * MIB, 1 * MIB), 2: (1024 * MIB, 8 * MIB)}[limit]  # printf's buffer, the heap
    code = BEGIN + f"""
begin()
before = room()
def limit(value): return cuda.cuCtxSetLimit({limit}, c.c_size_t(value))
assert limit({high}) == 0
high = room()
print(os.getpid(), flush=True)
sys.stdin.readline()
began = time.monotonic()
assert limit({low}) == 0
assert time.monotonic() > began + 0.9
low = room()
print(json.dumps([before, high, low]), flush=True)
"""
    process = host.popen([BUILD / "carve", "run", "--vram", "8", "--", sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)
    pid = process.stdout.readline().strip()
    other = host.popen([sys.executable, "-S", "-c", BEGIN + r"""
begin()
print("up", flush=True)
sys.stdin.readline()
assert take(20 << 30)[0] == 0
print("taken", flush=True)
sys.stdin.readline()
"""], stdin=subprocess.PIPE)
    assert other.stdout.readline() == "up\n"
    assert host.carve("sim", "fault", "hang", "--call", "cuCtxSetLimit", "--delay", "1", "--count", "1", "--pid",
                      pid).returncode == 0
    for one in (process, other):
        one.stdin.write("\n")
        one.stdin.flush()
        time.sleep(0.3)
    assert other.stdout.readline() == "taken\n"
    before, high, low = json.loads(process.stdout.readline())
    other.communicate()
    process.communicate()
    assert high < before and low == before
