"""Points 12 and 13: what a session's processes write of their memory raises their own charge, within their slice. The
driver's figures of processes say what is free, and who goes beyond a slice."""
import json
import os
import signal
import time

import pytest

from conftest import wait_until
from programs import HERE, SOURCES

from .lab import ALICE, BOB, CARVE, GIB, MALLORY, MIB

# A process of a session that does not use the GPU, and writes what it likes into the ledger.
IN_SESSION = r"""
import ctypes, fcntl, pathlib, signal, socket, struct, subprocess, time
sys.path.insert(0, LAB["tests"])
from attach_client import Attached, Ledger, WORKLOAD, OK
class D: runtime = pathlib.Path(LAB["runtime"])
def attach(session):
    a = Attached(D)
    status, slot, message = a.ask(WORKLOAD, session)
    assert status == OK, message
    return a, Ledger(a.fds[1]), slot
def child_that_waits():
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, 9)
        for fd in range(3): os.dup2(os.open("/dev/null", os.O_RDWR), fd)
        time.sleep(3600)
    return pid
"""

# A program against the driver, in no slice.
CUDA = f"import sys; sys.path[:0] = {str(HERE)!r}, {str(SOURCES)!r}\nfrom cuda import *\n"
HOLDER = CUDA + r"""
begin()
kind, size = sys.argv[1], int(sys.argv[2])
at = c.c_uint64()
if kind == "linear": ok(take(size)[0])
if kind == "managed": ok(cuda.cuMemAllocManaged(c.byref(at), c.c_size_t(size), 1))
print("holds", flush=True)
sys.stdin.read()
"""


def outside(lab, kind, size, uid=BOB):
    process = lab.python(uid, HOLDER, kind, size, method=lab.popen)
    assert process.stdout.readline() == "holds\n", process.communicate()
    return process


def gpu(lab):
    return lab.carve_json(ALICE, "gpu", "list")[0]


def session_of(lab, uid, size):
    return lab.carve_json(uid, "session", "request", "--vram", size)["id"]


def begin(lab, uid, source, *arguments, line="ready", **kw):
    process = lab.python(uid, source, *arguments, method=lab.popen, **kw)
    said = process.stdout.readline().split()
    assert said[:1] == [line], (said, process.communicate())
    return process, said[1:]


def stays(check, seconds=3):
    """It holds for as long as several samples take, whatever comes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert check()
        time.sleep(0.1)


# ---- outside use ---------------------------------------------------------------------------

# It dies, and a child of it keeps the connection: so it may hold what it charged, for all that the daemon can see.
DEAD_SLOT = IN_SESSION + r"""
a, ledger, slot = attach(sys.argv[1])
ledger.charge(slot, int(sys.argv[2]))
child_that_waits()
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
DEAD_SLOTS = IN_SESSION + r"""
for i in range(8):
    if os.fork() == 0:
        a, ledger, slot = attach(sys.argv[1])
        ledger.add_used(slot, int(sys.argv[2]))
        child_that_waits()
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
print("ready", flush=True)
sys.stdin.read()
"""
MANAGED = IN_SESSION + r"""
a, ledger, slot = attach(sys.argv[1])
ledger.set_managed(slot, 2)
ledger.set_managed_unlisted(slot, int(sys.argv[2]))
ledger.charge(slot, int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how, kind", [("dead", "linear"), *(pytest.param(how, kind, marks=pytest.mark.long) for how, kind in (
    ("dead-many", "linear"), ("managed", "linear"), ("dead", "managed"), ("managed", "managed")))])
@pytest.mark.attack("12", "memory that others hold is said to be the session's own")
def test_outside_use_is_not_hidden(lab, how, kind):
    session = session_of(lab, MALLORY, 20)
    outside(lab, kind, 20 * GIB)
    wait_until(lambda: gpu(lab)["outside_bytes"] >= 20 * GIB)
    begin(lab, MALLORY, {"dead": DEAD_SLOT, "dead-many": DEAD_SLOTS, "managed": MANAGED}[how], session, 20 * GIB)
    stays(lambda: gpu(lab)["outside_bytes"] >= 20 * GIB)
    assert gpu(lab)["available_bytes"] <= 40 * GIB
    assert lab.carve(ALICE, "session", "request", "--vram", "41", "--vram-strict").returncode == 3


# It is attached to each session that is named, and holds what only one of them accounts for.
IN_ALL = IN_SESSION + CUDA + r"""
attached = [attach(session) for session in sys.argv[2:]]
begin()
ok(take(int(sys.argv[1]))[0])
print("ready", flush=True)
sys.stdin.read()
"""


def two_sessions(lab, *size):
    words = (CARVE, "run", "--ephemeral", *size, "--", "sh", "-c", "echo $CARVE_SESSION; exec sleep 600")
    return [lab.popen(MALLORY, *words).stdout.readline().strip() for _ in range(2)]


@pytest.mark.attack("12", "a process that takes part in several sessions is counted in each of them")
def test_outside_use_is_not_hidden_by_a_process_of_several_sessions(lab):
    sessions = two_sessions(lab, "--vram", "15")
    outside(lab, "linear", 20 * GIB)
    wait_until(lambda: gpu(lab)["outside_bytes"] >= 20 * GIB)
    begin(lab, MALLORY, IN_ALL, 14 * GIB, *sessions)
    stays(lambda: gpu(lab)["outside_bytes"] >= 20 * GIB)
    assert gpu(lab)["available_bytes"] <= 30 * GIB


@pytest.mark.attack("12", "a process of several sessions uses a GPU on which none of them has a slice")
def test_a_process_of_several_sessions_is_beyond_its_slice_where_it_has_none(make_lab):
    lab = make_lab("h100-80gb,l4-24gb")
    sessions = two_sessions(lab, "--vram", "3", "--gpu-ids", "1")
    begin(lab, MALLORY, IN_ALL, 9 * GIB, *sessions)
    wait_until(lambda: any(s["over_bytes"] >= 9 * GIB for s in lab.carve_json(MALLORY, "session", "list")))


# ---- figures of a PID ----------------------------------------------------------------------

# It goes round the front in a session of 1 GiB.
CHEAT = IN_SESSION + CUDA + r"""
a, ledger, slot = attach(sys.argv[1])
begin()
ok(take(int(sys.argv[2]))[0])
print("ready", flush=True)
sys.stdin.read()
"""


def begin_as(lab, pid, uid, source, *arguments):
    """The process that it is gets this PID; somebody else may have it first."""
    for _ in range(200):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w") as file:
                file.write(str(pid - 1))
        except OSError:
            pytest.skip("root may not choose PIDs here")
        process = lab.python(uid, source, *arguments, method=lab.popen)
        if process.pid == pid:
            assert process.stdout.readline().split()[:1] == ["ready"], process.communicate()
            return
        process.kill()
    pytest.skip("other processes take every PID here")


# It says in each of its slots that it holds more than it does.
DEAD_IN_ALL = IN_ALL.replace("sys.stdin.read()", r"""for _, ledger, slot in attached: ledger.charge(slot, 20 << 30)
sys.stdin.readline()
child_that_waits()
os.kill(os.getpid(), signal.SIGKILL)""")


@pytest.mark.attack("12", "what a dead process held is subtracted once for each of its slots and sessions")
@pytest.mark.parametrize("where", ["slots", "sessions"])
def test_the_slots_of_a_dead_process_erase_no_more_than_it_held(lab, where):
    sessions = [session_of(lab, MALLORY, 20)] * 3 if where == "slots" else two_sessions(lab, "--vram", "20")
    small = session_of(lab, BOB, 1)
    dead, _ = begin(lab, MALLORY, DEAD_IN_ALL, 3 * GIB, *sessions)
    gpu(lab)  # the daemon has asked the driver since
    dead.communicate("go on\n")
    begin_as(lab, dead.pid, BOB, CHEAT, small, 5 * GIB)
    wait_until(lambda: lab.carve_json(BOB, "session", "show", small)["over_bytes"] >= 4 * GIB)


@pytest.mark.attack("12", "a dead process's charge is subtracted from the figure of who has its PID now")
def test_a_dead_slot_erases_no_figure(lab):
    big, small = session_of(lab, MALLORY, 20), session_of(lab, BOB, 1)
    dead, _ = begin(lab, MALLORY, DEAD_SLOT, big, 20 * GIB)
    dead.wait()
    begin_as(lab, dead.pid, BOB, CHEAT, small, 5 * GIB)
    wait_until(lambda: lab.carve_json(BOB, "session", "show", small)["over_bytes"] >= 4 * GIB)


# ---- marks ---------------------------------------------------------------------------------

# Memory that only a descriptor keeps is in no process's figure. Locks say that it is another session's.
MARKS = CUDA + IN_SESSION + r"""
begin()
result, handle = create(4 << 30)
ok(result)
kept = export(handle)
ok(cuda.cuMemRelease(handle))
def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data: h = (h ^ byte) * 0x100000001b3 % (1 << 64)
    return h ^ h >> 32
def lock(fd, start, length):
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, start, length, 0))  # F_OFD_SETLK
session = fnv(sys.argv[1].encode()) % (1 << 17)
files = []
for slot in range(1, 5):
    for life in range(int(sys.argv[2])):
        file = os.memfd_create("locks")
        start = session << 45 | slot << 35 | life << 23
        lock(file, start, 2048)  # of 2 MiB each: 4 GiB
        files.append(file)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("lives", [1, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.attack("12", "locks that look like marks fill another session's charge")
def test_marks_of_others_charge_nobody(lab, lives):
    session = session_of(lab, ALICE, 4)
    held = lab.popen(ALICE, CARVE, "run", "--session", session, "--", "/usr/bin/python3", "-c", HOLDER, "linear", GIB)
    assert held.stdout.readline() == "holds\n", held.communicate()
    before = lab.carve_json(ALICE, "session", "show", session)["gpus"][0]["used_bytes"]
    begin(lab, MALLORY, MARKS, session, lives)
    wait_until(lambda: gpu(lab)["outside_bytes"] >= 4 * GIB)
    stays(lambda: lab.carve_json(ALICE, "session", "show", session)["gpus"][0]["used_bytes"] == before)


@pytest.mark.attack("12", "locks that look like marks of the own session hide what is held outside")
def test_marks_of_ones_own_hide_nothing(lab):
    """It exported nothing in that session, by the daemon's own word of what it gave up."""
    session = session_of(lab, MALLORY, 20)
    begin(lab, MALLORY, MARKS, session, 1)
    outside(lab, "managed", 10 * GIB)
    wait_until(lambda: gpu(lab)["outside_bytes"] >= 14 * GIB)
    stays(lambda: gpu(lab)["outside_bytes"] >= 14 * GIB)


# ---- imports -------------------------------------------------------------------------------

IMPORTER = CUDA + r"""
import socket
begin()
path = sys.argv[1]
server = socket.socket(socket.AF_UNIX)
server.bind(path); os.chmod(path, 0o777); server.listen(1)
print("ready", flush=True)
there = server.accept()[0]
ok(take(600 * MIB)[0])
handles = [import_(fd) for fd in socket.recv_fds(there, 1, 4)[1]]
print("has", flush=True)
there.send(b"y")
sys.stdin.read()
"""
EXPORTER = CUDA + r"""
import ctypes, mmap, signal, socket, struct
begin()
there = socket.socket(socket.AF_UNIX)
result, handle = create(2 << 30)
ok(result)
fd = export(handle)
there.connect(sys.argv[1])
socket.send_fds(there, [b"x"], [fd])
there.recv(1)
os.close(fd)
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    if line == "free\n": ok(cuda.cuMemRelease(handle))
    print("done", flush=True)
"""
# It says in its slot that it never exported anything.
LIAR = EXPORTER.replace("fd = export(handle)", """fd = export(handle)
for line in open("/proc/self/maps"):
    if "carve-ledger:" in line and "rw-s" in line:
        start, end = (int(x, 16) for x in line.split()[0].split("-"))
        slots, _, slot_offset, stride = struct.unpack("<IIII", ctypes.string_at(start + 20, 16))
        for slot in range(slots):
            for field in (56, 72):
                ctypes.memset(start + slot_offset + slot * stride + field, 0, 8 if field == 72 else 4)
        break
else: raise SystemExit("no ledger")
""")


@pytest.fixture
def strict_lab(make_lab, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "carved.json").write_text(json.dumps({"over_policy": "kill", "over_seconds": 1, "over_tolerance": "0B"}))
    return make_lab(args=["--config", str(tmp_path / "carved.json")])


@pytest.mark.parametrize("who, how", [("outside", "die"), *(pytest.param(who, how, marks=pytest.mark.long) for who, how in (
    ("outside", "free"), ("liar", "die"), ("liar", "free"), ("session", "free")))])
@pytest.mark.attack("13", "an importer is to be ended for what its exporter gave up")
def test_an_importer_is_not_ended_for_its_exporter(strict_lab, who, how):
    lab = strict_lab
    meet = lab.dir / "meet"
    meet.mkdir()
    meet.chmod(0o777)
    session = session_of(lab, ALICE, 2)
    importer = lab.popen(ALICE, CARVE, "run", "--session", session, "--isolation", "preload", "--", "/usr/bin/python3", "-c",
                         IMPORTER, meet / "socket")
    assert importer.stdout.readline() == "ready\n", importer.communicate()
    source = LIAR if who == "liar" else EXPORTER
    before = [] if who == "outside" else [CARVE, "run", "--ephemeral", "--vram", "4", "--isolation", "preload", "--"]
    exporter = lab.popen(MALLORY, *before, "/usr/bin/python3", "-c", source, meet / "socket")
    assert importer.stdout.readline() == "has\n", (importer.poll(), exporter.communicate())
    said = exporter.stdout.readline().split()
    assert said[:1] == ["ready"], exporter.communicate()
    time.sleep(3.5)  # longer than what was given up is waited for
    if how == "free":
        exporter.stdin.write("free\n")
        exporter.stdin.flush()
        assert exporter.stdout.readline() == "done\n"
    else:
        os.kill(int(said[1]), signal.SIGKILL)
    wait_until(lambda: lab.carve_json(ALICE, "session", "show", session)["over_bytes"] > 512 * MIB)
    stays(lambda: importer.poll() is None, 3)
    assert lab.carve_json(ALICE, "session", "show", session)["over_killed"] == 0


@pytest.mark.attack("13", "a session that goes round the front says that it imported")
def test_memory_that_no_exporter_gave_up_is_no_import(strict_lab):
    lab = strict_lab
    session = session_of(lab, MALLORY, 1)
    claims = CHEAT.replace("begin()", "struct.pack_into('<I', ledger.map, ledger._slot(slot) + 68, 1); begin()")
    cheat, _ = begin(lab, MALLORY, claims, session, 5 * GIB)
    assert cheat.wait(30) == -signal.SIGKILL
