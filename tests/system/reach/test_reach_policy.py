"""A program that gets round a slice is seen, and ended by policy; nobody else is."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import BUILD, listens, rest_long, wait_until
from in_slice import BEGIN
from policed import Daemon, policed  # noqa: F401: a fixture
from programs import python
from reaching import CARVE, GIB, MIB, PROGRAMS, REACH, bare, driver_of


def hold(host, *argv, session=None):
    process = host.popen([CARVE, "run", "--isolation", "preload", *argv], stdin=subprocess.PIPE)
    line = process.stdout.readline()
    while line and line.strip() not in ("holds", "ready"):
        line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process


def show(host, session):
    return host.carve_json("session", "show", session)


def test_memory_that_bypasses_preloading_is_shown_and_logged(policed):
    daemon = policed(over_seconds=1)
    host = policed.host
    driver = driver_of(host)
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    honest = hold(host, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *bare(host), REACH, "path", driver, 3 * GIB)
    wait_until(lambda: show(host, session)["over_bytes"] >= 2 * GIB)
    shown = show(host, session)
    assert len(shown["pids"]) == 1 and len(shown["stray_pids"]) == 1
    text = host.carve("session", "show", session).stdout
    assert f"bypassed the slice: {shown['stray_pids'][0]}" in text and "beyond: " in text
    # All that they hold is shown as used, and not what goes beyond alone.
    used = shown["gpus"][0]["used_bytes"]
    assert used == 2 * GIB + shown["over_bytes"] and used >= 4 * GIB
    row = next(r for r in host.carve("session", "list").stdout.splitlines() if r.startswith(session))
    assert f"{used / GIB:.3g}" in row and "!" in row
    # Its memory was never promised to others, nor is it promised twice.
    gpu = host.carve_json("gpu", "list")[0]
    # It is the session's, and not a program's outside carve.
    assert gpu["outside_bytes"] == gpu["beyond_bytes"] == shown["over_bytes"]
    assert [(p["pid"], p["stray"]) for p in gpu["outside_processes"]] == [(shown["stray_pids"][0], True)]
    checked = {c["name"]: c for c in json.loads(host.carve("check", "--json").stdout)["conditions"]}
    assert checked["outside"]["state"] == "ok" and checked["beyond"]["state"] == "note"
    assert "programs of sessions hold" in checked["beyond"]["message"]
    assert gpu["available_bytes"] + 2 * GIB <= gpu["memory_bytes"] - 3 * GIB
    cheat.communicate("", timeout=60)
    wait_until(lambda: show(host, session)["over_bytes"] == 0)
    wait_until(lambda: show(host, session)["stray_pids"] == [])
    honest.communicate("", timeout=60)
    assert honest.returncode == 0 and cheat.returncode == 0
    daemon.close()
    assert f"session.stray id={session}" in daemon.log and f"session.over id={session}" in daemon.log


def test_programs_outside_carve_are_nobodys_strays(policed):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    outside = host.popen([REACH, "path", driver_of(host), str(10 * GIB)], stdin=subprocess.PIPE)
    inside = hold(host, REACH, "path", "libcuda.so.1", GIB)
    assert outside.stdout.readline() and outside.stdout.readline() == "holds\n"
    time.sleep(4)
    shown = show(host, session)
    assert shown["stray_pids"] == [] and shown["over_bytes"] == 0
    gpu = host.carve_json("gpu", "list")[0]
    assert gpu["outside_bytes"] >= 10 * GIB and gpu["beyond_bytes"] == 0
    assert [p["stray"] for p in gpu["outside_processes"]] == [False]
    checked = {c["name"]: c for c in json.loads(host.carve("check", "--json").stdout)["conditions"]}
    assert checked["outside"]["state"] == "note" and checked["beyond"]["state"] == "ok"
    for process in (outside, inside):
        process.communicate("", timeout=60)
        assert process.returncode == 0


def test_policy_ends_processes_that_bypass_the_front_and_no_others(policed):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    honest = hold(host, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *bare(host), REACH, "path", driver_of(host), 3 * GIB)
    assert cheat.wait(60) == 128 + 9
    time.sleep(3)  # as long as it would take to end the other one
    assert honest.poll() is None
    honest.communicate("", timeout=60)
    assert honest.returncode == 0
    wait_until(lambda: show(host, session)["over_bytes"] == 0)
    assert show(host, session)["over_killed"] == 1
    assert "killed:    1 of its processes, as it held" in host.carve("session", "show", session).stdout


@pytest.mark.parametrize("kind", ["session", "one-off"])
def test_a_process_ended_by_policy_is_told_why(policed, kind):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"] if kind == "session" else None
    size = ["--session", session] if session else ["--ephemeral", "--vram", "2"]
    cheat = hold(host, *size, *bare(host), REACH, "path", driver_of(host), 3 * GIB)
    assert cheat.wait(60) == 128 + 9
    last = host.carve_json("session", "list", "--all")[-1]
    assert last["over_killed"] == 1 and last["over_killed_bytes"] > GIB
    assert f"(over_policy) ended 1 process of session {last['id']}: it held 1." in cheat.communicate()[1]
    text = host.carve("session", "show", last["id"]).stdout
    assert "killed:    1 of its processes, as it held 1." in text
    if session:
        assert last["state"] == "active" and last["reason"] == ""
        # A process that came later is told nothing of it.
        assert host.carve("run", "true").stderr == ""
        return
    assert last["state"] == "ended" and last["reason"].startswith("ended by over_policy: 1.")
    assert last["gpus"][0]["peak_bytes"] > 3 * GIB
    assert f"because:   {last['reason']}" in text


def test_a_one_off_slice_that_goes_on_after_policy_ended_a_process_ends_as_any(policed):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    script = '"$@"; test $? = 137 && exec "$0" path libcuda.so.1 1000000'
    slice = hold(host, "--ephemeral", "--vram", "2", "sh", "-c", script, REACH, *bare(host), REACH, "path", driver_of(host),
                 3 * GIB)
    while slice.stdout.readline() != "holds\n":
        assert slice.poll() is None
    told = slice.communicate("", timeout=60)[1]
    assert slice.returncode == 0 and "(over_policy) ended 1 process of session" in told
    last = host.carve_json("session", "list", "--all")[-1]
    assert (last["over_killed"], last["reason"]) == (1, "released")


@pytest.mark.parametrize("kind", rest_long(["session", "one-off"]))
@pytest.mark.parametrize("how", rest_long(["killed", "taken over"]))
def test_memory_that_bypasses_the_front_is_known_to_the_next_daemon(policed, how, kind):
    daemon = policed(over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"] if kind == "session" else None
    size = ["--session", session] if session else ["--ephemeral", "--vram", "2"]
    honest = hold(host, *size, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *size, *bare(host), REACH, "path", driver_of(host), 3 * GIB)
    sessions = [s["id"] for s in host.carve_json("session", "list")]
    wait_until(lambda: max(show(host, s)["over_bytes"] for s in sessions) >= GIB)
    daemon.config.write_text(json.dumps({"over_policy": "kill", "over_seconds": 1}))
    daemon.renew(how)
    assert cheat.wait(60) == 128 + 9
    time.sleep(3)  # as long as it would take to end the other one
    assert honest.poll() is None
    honest.communicate("", timeout=60)
    assert honest.returncode == 0
    wait_until(lambda: [s["id"] for s in host.carve_json("session", "list")] == [session] * bool(session))
    with contextlib.closing(sqlite3.connect(daemon.dir + "/run/carve.db")) as db:
        # The last command that ended stays there as long as its session does.
        wait_until(lambda: len(db.execute("SELECT * FROM command").fetchall()) <= bool(session))


@pytest.fixture
def policed_pair(make_host):
    """A daemon that kills, on two GPUs: (daemon, host, a session on the second)"""
    host = make_host("h100-80gb,l4-24gb")
    daemon = Daemon(host, {"over_policy": "kill", "over_seconds": 1})
    yield daemon, host, host.carve_json("session", "request", "--vram", "3", "--gpu-ids", "1")["id"]
    if not daemon.closed:
        daemon.close()


def test_memory_where_the_session_has_no_slice_is_beyond_it(policed_pair):
    daemon, host, session = policed_pair
    honest = hold(host, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *bare(host), REACH, "path", driver_of(host), 9 * GIB)
    assert cheat.wait(60) == 128 + 9
    time.sleep(3)  # as long as it would take to end the other one
    assert honest.poll() is None
    honest.communicate("", timeout=60)
    assert honest.returncode == 0
    wait_until(lambda: show(host, session)["over_bytes"] == 0)
    wait_until(lambda: show(host, session)["stray_pids"] == [])
    daemon.close()
    assert f"session.over id={session}" in daemon.log


def test_memory_where_the_session_has_no_slice_is_shown(policed_pair):
    daemon, host, session = policed_pair
    daemon.config.write_text(json.dumps({"over_policy": "report", "over_seconds": 1}))
    daemon.process.send_signal(signal.SIGHUP)
    cheat = hold(host, *bare(host), REACH, "path", driver_of(host), 9 * GIB)
    wait_until(lambda: show(host, session)["over_bytes"] >= 9 * GIB)
    assert len(show(host, session)["stray_pids"]) == 1
    cheat.communicate("", timeout=60)
    assert cheat.returncode == 0
    wait_until(lambda: show(host, session)["over_bytes"] == 0)


def test_two_sessions_on_two_gpus_are_in_nobodys_way(policed_pair):
    """Each on its own, and a program outside carve on the first."""
    _, host, session = policed_pair
    outside = host.popen([REACH, "path", driver_of(host), str(10 * GIB)], stdin=subprocess.PIPE)
    assert outside.stdout.readline() and outside.stdout.readline() == "holds\n"
    first = hold(host, "--ephemeral", "--vram", "4", "--gpu-ids", "0", REACH, "path", "libcuda.so.1", 2 * GIB)
    second = hold(host, "--session", session, REACH, "path", "libcuda.so.1", 2 * GIB)
    time.sleep(4)
    both = host.carve_json("session", "list")
    assert len(both) == 2
    for one in both:
        shown = show(host, one["id"])
        assert (shown["stray_pids"], shown["over_bytes"]) == ([], 0)
    for process in (outside, first, second):
        process.communicate("", timeout=60)
        assert process.returncode == 0


GREEDY = PROGRAMS / "slice_greedy"


@pytest.mark.parametrize("family", rest_long(["linear", "pool", "managed", "vmm"], 2))
def test_policy_ends_no_full_slice(policed, family):
    """A slice that is full to the last block, managed memory among it, is not one that is passed."""
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    piece = 64 * MIB
    full = host.popen([CARVE, "run", "--isolation", "preload", "--vram", "2", GREEDY, family, piece, "race"],
                      stdin=subprocess.PIPE)
    assert full.stdout.readline() == "ready\n"
    full.stdin.write("\n")
    full.stdin.flush()
    assert 10 < int(full.stdout.readline()) <= 2 * GIB // piece
    time.sleep(4)
    assert full.poll() is None
    full.communicate("\n", timeout=60)
    assert full.returncode == 0


def test_policy_ends_no_importer(policed):
    policed(over_policy="kill", over_seconds=1)
    # Both hold what they share for longer than the policy has patience. It is one process's memory:
    # counted twice, it would pass the slice.
    done = policed.host.carve("run", "--isolation", "preload", "--gpu-memory", "1700Mi", "--",
                              *python("exporter", *python("importer")), env={"HOLD_S": "4"})
    assert done.returncode == 0, done.stderr


IPC = r"""
import ctypes as c, os, sys
cuda, MIB = c.CDLL("libcuda.so.1"), 1 << 20
class Handle(c.Structure): _fields_ = [("bytes", c.c_ubyte * 64)]
def ok(result): assert result == 0, result
context = c.c_void_p()
ok(cuda.cuInit(0)); ok(cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0)); ok(cuda.cuCtxSetCurrent(context))
at, handle = c.c_uint64(), Handle()
def take(size): ok(cuda.cuMemAlloc_v2(c.byref(at), c.c_size_t(size)))
"""
IPC_EXPORTER = IPC + r"""
take(700 * MIB)
ok(cuda.cuIpcGetMemHandle(c.byref(handle), at))
print(bytes(handle).hex(), flush=True)
if sys.stdin.readline() == "dies\n": os.kill(os.getpid(), 9)
ok(cuda.cuMemFree_v2(at))
sys.stdin.read()
"""
IPC_IMPORTER = IPC + r"""
handle = Handle.from_buffer_copy(bytes.fromhex(sys.stdin.readline()))
ok(cuda.cuIpcOpenMemHandle_v2(c.byref(at), handle, 1))
take(300 * MIB)
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["frees", "dies"])
def test_policy_ends_nobody_for_what_an_exporter_of_another_session_left(policed, how):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host

    def start(vram, code):
        return host.popen([CARVE, "run", "--isolation", "preload", "--ephemeral", "--vram", vram, "--", "/usr/bin/python3", "-S", "-c", code],
                          stdin=subprocess.PIPE)
    exporter, importer = start("4", IPC_EXPORTER), start("1", IPC_IMPORTER)
    importer.stdin.write(exporter.stdout.readline())
    importer.stdin.flush()
    assert importer.stdout.readline() == "holds\n"
    exporter.stdin.write(how + "\n")
    exporter.stdin.flush()
    # It is shown, and stays so.
    wait_until(lambda: any(s["over_bytes"] for s in host.carve_json("session", "list")))
    time.sleep(4)
    assert importer.poll() is None
    importer.communicate("", timeout=60)
    assert importer.returncode == 0
    exporter.communicate("", timeout=60)


LEAVER = r"""
import socket
begin()
result, handle = create(1200 * MIB)
assert result == 0
there = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(there, [b"x"], [export(handle)])
sys.stdin.read()
"""
TAKER = r"""
import socket, subprocess
begin()
assert take(1400 * MIB)[0] == 0
here = socket.socket(fileno=int(sys.argv[1]))
fd = socket.recv_fds(here, 1, 1)[1][0]
print("has", flush=True)
for word in sys.stdin:
    if word == "import\n": handle = import_(fd)
    if word == "close\n": os.close(fd)
    if word.startswith("cheat "):
        cheat = subprocess.Popen(word.split()[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert cheat.stdout.readline() and cheat.stdout.readline() == "holds\n"
    if word == "caught\n": assert cheat.wait(60) == -9
    print("done", flush=True)
"""


class Heirs:
    """A process with 1200 MiB in a session of 3 GiB, and one with 1400 MiB in one of 2 GiB that has a descriptor of those."""

    def __init__(self, host, session=None):
        self.host = host
        self.here, there = socket.socketpair()
        mine = ("--session", session) if session else ("--ephemeral", "--vram", "3")
        with there:
            self.leaver = self.start(mine, LEAVER, there)
        self.taker = self.start(("--ephemeral", "--vram", "2"), TAKER, self.here)
        assert self.taker.stdout.readline() == "has\n"
        self.here.close()
        self.id = next(s["id"] for s in host.carve_json("session", "list") if s["vram_bytes"] == 2 * GIB)

    def start(self, where, code, end):
        return self.host.popen([CARVE, "run", "--isolation", "preload", *where, "--", sys.executable, "-S", "-c", BEGIN + code,
                                str(end.fileno())], stdin=subprocess.PIPE, pass_fds=[end.fileno()])

    def say(self, *words):
        for word in words:
            self.taker.stdin.write(word + "\n")
            self.taker.stdin.flush()
            assert self.taker.stdout.readline() == "done\n"

    def leave(self):
        self.leaver.communicate("", timeout=60)
        assert self.leaver.returncode == 0

    def is_over(self):
        return show(self.host, self.id)["over_bytes"] > 256 * MIB

    def stays(self):
        """Its memory is shown, and it lives on."""
        wait_until(lambda: self.is_over() or self.taker.poll() is not None)
        time.sleep(4)
        assert self.taker.poll() is None and self.is_over()
        assert show(self.host, self.id)["over_killed"] == 0
        self.taker.communicate("", timeout=60)
        assert self.taker.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "taken over"])
def test_memory_that_an_exporter_left_is_excused_by_a_new_daemon(policed, how):
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    heirs = Heirs(policed.host)
    heirs.say("import", "close")
    heirs.leave()
    wait_until(heirs.is_over)
    time.sleep(4)  # longer than what was left is waited for
    daemon.renew(how)
    heirs.stays()


def test_memory_that_an_exporter_leaves_without_a_daemon_is_excused(policed):
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    heirs = Heirs(policed.host)
    heirs.say("import", "close")
    books = sqlite3.connect(daemon.dir + "/run/carve.db")
    wait_until(lambda: books.execute("SELECT * FROM exporter WHERE exports").fetchall())
    books.close()
    daemon.kill()
    heirs.leaver.kill()  # its command would start one
    heirs.leaver.communicate(timeout=60)
    daemon.start()
    heirs.stays()


@pytest.mark.long
@pytest.mark.parametrize("whose, how, open_", [
    ("one-off", "", "open"), ("one-off", "killed", "closed"), ("session", "", "closed"), ("session", "killed", "open")])
def test_memory_kept_by_a_descriptor_alone_is_excused_when_it_is_imported(policed, whose, how, open_):
    """Long after its exporter ended, and its session with it."""
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    host = policed.host
    heirs = Heirs(host, host.carve_json("session", "request", "--vram", "3")["id"] if whose == "session" else None)
    heirs.leave()
    time.sleep(4)
    daemon.renew(how)
    time.sleep(4)
    heirs.say("import", *(["close"] if open_ == "closed" else []))
    heirs.stays()


def test_memory_imported_without_a_daemon_is_excused(policed):
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    heirs = Heirs(policed.host)
    heirs.leave()
    time.sleep(4)
    daemon.kill()
    heirs.say("import", "close")
    daemon.start()
    heirs.stays()


@pytest.mark.parametrize("how", rest_long(["taken over", "killed"]))
def test_a_process_that_bypasses_the_front_is_not_excused_by_a_new_daemon(policed, how):
    """Also while a descriptor keeps what an exporter left."""
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=3)
    host = policed.host
    heirs = Heirs(host)
    heirs.leave()
    time.sleep(4)  # longer than what was left is waited for
    cheat = map(str, (*bare(host), REACH, "path", driver_of(host), GIB))
    heirs.say("cheat " + " ".join(cheat))
    daemon.renew(how)
    heirs.say("caught")
    wait_until(lambda: show(host, heirs.id)["over_killed"])
    assert heirs.taker.poll() is None
    heirs.taker.communicate("", timeout=60)
