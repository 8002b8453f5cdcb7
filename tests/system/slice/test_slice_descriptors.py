"""Memory that others hold: by a descriptor, an import, or because they have it open. Judged by the driver's own
books (`carve sim stat`)."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from conftest import BUILD
from in_slice import BEGIN, GIB, MIB, gpu, in_slice, nothing_is_left
from tracing import Trace


def test_memory_that_is_held_by_an_import_alone_counts(host):
    """Exported, imported by the same process and released: the driver keeps it, so the slice has less."""
    said = in_slice(host, r"""
begin()
before, kept = room(), []
while True:
    result, handle = create(512 * MIB)
    if result: break
    fd = export(handle)
    kept.append(import_(fd))
    os.close(fd)
    assert cuda.cuMemRelease(handle) == 0
full = room()
for handle in kept: assert cuda.cuMemRelease(handle) == 0
end = time.monotonic() + 30
while room() != before and time.monotonic() < end: time.sleep(0.02)
print(json.dumps({"result": result, "kept": len(kept), "before": before, "full": full, "after": room()}))
""")
    assert said["result"] == 2 and said["kept"] == said["before"] // (512 * MIB)
    assert said["full"] == said["before"] - said["kept"] * 512 * MIB
    assert said["after"] == said["before"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


IMPORTER = r"""
begin()
held = import_(int(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
# A GiB that another process has imported, by a descriptor that it keeps.
SHARED = f"IMPORTER = {BEGIN + IMPORTER!r}" + r"""
import subprocess
begin()
result, handle = create(1024 * MIB)
fd = export(handle)
other = subprocess.Popen([sys.executable, "-S", "-c", IMPORTER, str(fd)], pass_fds=[fd], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
assert result == 0 and other.stdout.readline() == "held\n"
"""


def test_memory_that_another_process_holds_counts_when_its_exporter_gave_it_up(host):
    said = in_slice(host, SHARED + r"""
os.close(fd)
before = room()
assert cuda.cuMemRelease(handle) == 0
at_once = room()
other.communicate("")
end = time.monotonic() + 30
while room() <= before + 1024 * MIB and time.monotonic() < end: time.sleep(0.02)
print(json.dumps({"before": before, "at_once": at_once, "after": room()}))
""")
    assert said["at_once"] == said["before"], "the driver still has it"
    assert said["after"] > said["before"] + GIB
    nothing_is_left(host)


# Memory of `size` that nothing keeps but a descriptor.
DESCRIBED = r"""
import array, socket, subprocess
def described(size):
    result, handle = create(size)
    if result: return None
    fd = export(handle)
    assert cuda.cuMemRelease(handle) == 0
    return fd
def come_back(bytes):
    end = time.monotonic() + 30
    while room() != bytes and time.monotonic() < end: time.sleep(0.02)
    return room()
"""


@pytest.mark.parametrize("kept", ["open", "another", "on its way"])
def test_memory_that_is_held_by_a_descriptor_alone_counts(host, kept):
    """Exported and released: the driver keeps it for whoever may import it, and it is in no process's figure."""
    said = in_slice(host, f"KEPT = {kept!r}" + DESCRIBED + r"""
begin()
before, fds, ways = room(), [], []
while len(fds) < 12:
    fd = described(500 * MIB)
    if fd is None: break
    if KEPT == "another": fd, first = os.dup(fd), os.close(fd)
    if KEPT == "on its way":
        ways.append(socket.socketpair())
        socket.send_fds(ways[-1][0], [b"x"], [fd])
        os.close(fd)
    fds.append(fd)
full = room()
time.sleep(1.5)  # the daemon has looked again, and has not forgotten it
later = room()
def give(i):
    if KEPT == "on its way": ways[i][0].close(), ways[i][1].close()
    else: os.close(fds[i])
give(0)
again, pointer = take(500 * MIB)
if again == 0: assert cuda.cuMemFree_v2(pointer) == 0
for i in range(1, len(fds)): give(i)
print(json.dumps({"before": before, "kept": len(fds), "full": full, "later": later, "again": again,
                  "after": come_back(before)}))
""")
    assert said["kept"] == said["before"] // (500 * MIB)
    assert said["full"] == said["later"] == said["before"] - said["kept"] * 500 * MIB
    assert said["again"] == 0, "what was given up is to be had"
    assert said["after"] == said["before"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_memory_of_the_dead_that_is_held_by_a_descriptor_counts(host):
    """Descriptors that a process sent on before it ended; also for a daemon that was started since."""
    child = BEGIN + DESCRIBED + r"""
begin()
here = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(here, [b"x"], [described(512 * MIB)])
"""
    said = in_slice(host, f"CHILD = {child!r}" + DESCRIBED + r"""
begin()
before, fds = room(), []
for _ in range(2):
    here, there = socket.socketpair()
    subprocess.run([sys.executable, "-S", "-c", CHILD, str(there.fileno())], pass_fds=[there.fileno()], check=True)
    fds += socket.recv_fds(here, 1, 1)[1]
at_once = come_back(before - 1024 * MIB)
result, pointer = take(at_once + 2 * MIB)
time.sleep(1.5)
later = room()
for fd in fds: os.close(fd)
print(json.dumps({"before": before, "at_once": at_once, "result": result, "later": later, "after": come_back(before)}))
""")
    assert said["at_once"] == said["later"] == said["before"] - GIB and said["result"] == 2
    assert said["after"] == said["before"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_memory_that_a_descriptor_keeps_is_not_charged_twice_where_it_is_imported(host):
    said = in_slice(host, SHARED + DESCRIBED + r"""
before = room()
assert cuda.cuMemRelease(handle) == 0
time.sleep(1.5)
imported = room()
other.communicate("")
time.sleep(1.5)
alone = room()
os.close(fd)
print(json.dumps({"before": before, "imported": imported, "alone": alone,
                  "after": come_back(alone + 1024 * MIB)}))
""")
    assert said["imported"] == said["before"]
    # The other's context has gone.
    assert said["before"] <= said["alone"] < said["before"] + GIB
    assert said["after"] == said["alone"] + GIB
    nothing_is_left(host)


def test_descriptors_of_many_memories_are_told_apart(host):
    said = in_slice(host, DESCRIBED + r"""
begin()
before, fds = room(), []
for _ in range(2):
    fds.append(described(512 * MIB))
    for _ in range(1 << 14):
        assert cuda.cuMemRelease(create(2 * MIB)[1]) == 0
print(json.dumps({"before": before, "kept": room()}))
""")
    assert said["kept"] == said["before"] - GIB
    nothing_is_left(host)


def looked_at(host):
    """The daemon has asked the driver twice since: it compares what it heard with the time before."""
    for _ in range(2):
        host.carve_json("gpu", "list")


def test_a_session_does_not_pay_for_descriptors_of_another(host):
    """Though it has given something back so, and has descriptors open of memory that it has by handles."""
    other = host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "3", "--", sys.executable, "-S", "-c", BEGIN + DESCRIBED + r"""
begin()
sys.stdin.readline()
fd = described(1024 * MIB)
print("kept", flush=True)
sys.stdin.read()
"""], stdin=subprocess.PIPE)
    mine = host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "3", "--", sys.executable, "-S", "-c", BEGIN + DESCRIBED + r"""
begin()
before = room()
os.close(described(1024 * MIB))
assert come_back(before) == before
result, handle = create(1024 * MIB)
fd = export(handle)
print(before, flush=True)
sys.stdin.readline()
print(room(), flush=True)
"""], stdin=subprocess.PIPE)
    before = int(mine.stdout.readline())
    looked_at(host)
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.stdout.readline() == "kept\n"
    looked_at(host)
    assert int(mine.communicate("\n")[0]) == before - GIB
    other.communicate("")
    nothing_is_left(host)


def test_a_daemon_that_finds_nobody_alive_knows_what_descriptors_keep(host):
    """The exporter and the daemon are gone, and so is the ledger; the descriptor is not."""
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    here, there = socket.socketpair()
    with there:
        program = host.popen([BUILD / "carve", "run", "--session", session, "--", sys.executable, "-S", "-c", BEGIN + DESCRIBED + r"""
begin()
before, there = room(), socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(there, [b"x"], [described(1024 * MIB)])
print(before, flush=True)
sys.stdin.read()
""", str(there.fileno())], stdin=subprocess.PIPE, pass_fds=[there.fileno()])
        before = int(program.stdout.readline())
    _, (fd,), *_ = socket.recv_fds(here, 1, 1)
    for pid in (*host.carve_json("session", "show", session)["pids"], host.daemon_pid()):
        os.kill(pid, signal.SIGKILL)
    program.communicate()
    said = in_slice(host, "begin()\nprint(room())", "--session", session)
    assert said == before - GIB
    os.close(fd)
    here.close()
    nothing_is_left(host)


# Locks come and go, on every CPU, so that who reads their list piece by piece misses some of it at times.
CHURN = r"""
import fcntl, os, sys
os.sched_setaffinity(0, [int(sys.argv[2])])
files = [os.open(f"{sys.argv[1]}/{sys.argv[2]}-{i}", os.O_CREAT | os.O_RDWR) for i in range(150)]
print(flush=True)
while True:
    for file in files: fcntl.flock(file, fcntl.LOCK_EX)
    for file in files: fcntl.flock(file, fcntl.LOCK_UN)
"""


def test_the_locks_of_others_hide_no_descriptor(host, tmp_path):
    churns = [subprocess.Popen([sys.executable, "-S", "-c", CHURN, str(tmp_path), str(cpu)], stdout=subprocess.PIPE)
              for cpu in sorted(os.sched_getaffinity(0))[:4]]
    try:
        for churn in churns:
            churn.stdout.readline()
        said = in_slice(host, DESCRIBED + r"""
begin()
before, fd = room(), described(1024 * MIB)
seen, end = set(), time.monotonic() + 5
while time.monotonic() < end:
    seen.add(before - room())
    time.sleep(0.01)
os.close(fd)
print(json.dumps([sorted(seen), come_back(before) - before]))
""")
    finally:
        for churn in churns:
            churn.kill()
            churn.communicate()
    assert said == [[GIB], 0]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_the_kernels_locks_are_listed_only_where_memory_was_exported(host, tmp_path):
    """A list costs the loop a grace period of the kernel's, and holds up all who lock files meanwhile."""
    host.carve("gpu", "list")

    def listed(program):
        trace = Trace(host.daemon_pid(), tmp_path / "calls", "openat")
        try:
            # That nothing is left is known by a sample.
            in_slice(host, program)
            nothing_is_left(host)
        finally:
            text = trace.text()
        assert "/proc/" in text
        return '"/proc/locks"' in text

    assert not listed("begin()\nhandles = [create(512 * MIB) for _ in range(7)]\nprint(json.dumps(room()))")
    assert listed(DESCRIBED + "begin()\nbefore, fd = room(), described(1024 * MIB)\nos.close(fd)\nprint(json.dumps(come_back(before)))")


def test_a_new_daemon_knows_what_descriptors_keep(host):
    program = host.popen([BUILD / "carve", "run", "--vram", "3", "--", sys.executable, "-S", "-c", BEGIN + DESCRIBED + r"""
begin()
before, fd = room(), described(1024 * MIB)
print(before, flush=True)
for line in sys.stdin:
    if line == "close\n":
        os.close(fd)
        print(come_back(before), flush=True)
    else: print(room(), flush=True)
"""], stdin=subprocess.PIPE)

    def say(word):
        program.stdin.write(word + "\n")
        program.stdin.flush()
        return int(program.stdout.readline())
    before = int(program.stdout.readline())
    assert say("room") == before - GIB
    os.kill(host.daemon_pid(), signal.SIGKILL)
    assert host.carve("session", "list").returncode == 0  # starts another one
    time.sleep(2.5)
    assert say("room") == before - GIB
    assert say("close") == before
    program.communicate("")
    assert program.returncode == 0

IPC = r"""
class Ipc(c.Structure): _fields_ = [("reserved", c.c_ubyte * 64)]  # passed by value
"""

OPENER = IPC + r"""
begin()
print("ready", flush=True)
for line in sys.stdin:
    pointer = c.c_uint64()
    print(cuda.cuIpcOpenMemHandle_v2(c.byref(pointer), Ipc.from_buffer_copy(bytes.fromhex(line)), 1), flush=True)
"""


@pytest.mark.parametrize("give", ["cuda.cuMemFree_v2(p)", "cuda.cuMemFreeAsync(p, None)"])
def test_memory_that_others_have_open_counts_when_it_is_freed(host, give):
    """The driver keeps it until they close it, and so the slice must, from the moment of the call on."""
    said = in_slice(host, f"OPENER = {BEGIN + OPENER!r}" + r"""
import subprocess
begin()
other = subprocess.Popen([sys.executable, "-S", "-c", OPENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert other.stdout.readline() == "ready\n"
before, taken = room(), 0
while taken < 12:
    result, p = take(512 * MIB)
    if result: break
    handle = c.create_string_buffer(64)
    assert cuda.cuIpcGetMemHandle(handle, p) == 0
    other.stdin.write(handle.raw.hex() + "\n")
    other.stdin.flush()
    assert other.stdout.readline() == "0\n" and GIVE == 0
    taken += 1
# More is charged for a moment, while it is looked at what of it the other one has open; less never.
expected, full = before - taken * 512 * MIB, room()
end = time.monotonic() + 30
while full < expected and time.monotonic() < end: time.sleep(0.02); full = room()
other.communicate()
end = time.monotonic() + 30
while room() < before and time.monotonic() < end: time.sleep(0.02)
print(json.dumps({"taken": taken, "before": before, "full": full, "after": room()}))
""".replace("GIVE", give))
    assert said["taken"] == said["before"] // (512 * MIB)
    assert said["full"] == said["before"] - said["taken"] * 512 * MIB
    assert said["after"] >= said["before"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)
