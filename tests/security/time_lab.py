"""Shared by tests of shares under attack: victims, what they had by the simulator's own books, and the first
lines of attacks in Python (GATE), which reach the words that a session's processes share with the daemon."""
import time

import pytest

from conftest import PATIENCE, wait_until
from sharing import LEASE, clients_of, host_ticks

from .lab import ALICE, CARVE, PROGRAMS, ROOT

CLIENT = PROGRAMS / "share_client"
SECONDS, ALONE_SECONDS = 20, 10
# As for `scripts/bench shares`: of a clock that falls further behind the machine's, no share is judged.
LAG_MAX = 0.1
# Work for a whole turn in the queue: while it waits for a processor, of which attacks take much, it leaves no time idle.
QUEUE = ("--sync-every", 64)

# Attaches as any process of the session may, and maps what the daemon shares with it (docs/dev/gate.md).
GATE = r"""
import array, ctypes, fcntl, mmap, random, signal, socket, struct, subprocess, threading, time

OFF, OPEN, CONTENDED, CLOSED, IDLE = range(5)
SLICE = [LAB["build"] + "/carve", "run", "--ephemeral"]
CLIENT = LAB["programs"] + "/share_client"

def sliced(size, *argv):
    return subprocess.Popen([*SLICE, *size, "--", *argv], stdout=subprocess.PIPE, text=True, start_new_session=True)
def end(process):
    "With all that it started."
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

def client(*argv):
    return [CLIENT, *map(str, argv)]

def own_sessions():
    listed = subprocess.run([SLICE[0], "session", "list", "--json"], capture_output=True, text=True).stdout
    return [s["id"] for s in json.loads(listed) if s.get("id")]

class Session:
    def __init__(self, name, kind=2):
        "kind: 1, as a process that uses the GPU; 4, as one that only looks."
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(LAB["attach"])
        self.socket.send(struct.pack("<IHH40sII8x", 0x48435441, 1, kind, name.encode(), 0, 0))
        reply, fds, _, _ = socket.recv_fds(self.socket, 256, 3)
        _, _, status, self.slot = struct.unpack_from("<IHHI", reply)
        assert status == 0, reply[24:]
        self.fds = fds
        self.wake = fds[2] if len(fds) > 2 else -1
        self.map = mmap.mmap(fds[1], 0)
        (self.slots, self.gpu_offset, self.slot_offset, self.stride, self.time_offset,
         self.time_stride) = struct.unpack_from("<20xIIII I I".replace(" ", ""), self.map)
        self.at = self.gpu_offset + 24
        self.words = (ctypes.c_uint64 * 1).from_buffer(self.map, self.at)

    def gate(self):
        return self.words[0]

    def gate_set(self, state):
        self.words[0] = ((self.words[0] >> 8) + 1) << 8 | state

    def page(self, slot):
        return self.time_offset + slot * self.time_stride

    def put(self, slot, offset, value, form="<I"):
        struct.pack_into(form, self.map, self.page(slot) + offset, value)

def session_of(process, known=()):
    "The session of a command that was just started."
    while True:
        for name in own_sessions():
            if name not in known:
                return name
        time.sleep(0.02)
"""


class Victim:
    """`carve run SIZE share_client` of a user who does nothing wrong."""

    def __init__(self, lab, size, *args, uid=ALICE, kernel_us=2000):
        self.lab = lab
        self.process = lab.popen(uid, CARVE, "run", "--ephemeral", *size, "--", CLIENT, "--kernel-us", kernel_us, *QUEUE, *args,
                                 start_new_session=True)
        assert self.process.stdout.readline() == "up\n", self.process.stderr.read()

    def pids(self):
        return clients_of(self.process.pid)

    def working(self):
        return self.process.poll() is None


def slice_time(lab, mode, *options, **kw):
    lab.carve_json(ROOT, "timeslicing", "--mode", mode, *(options or LEASE), **kw)


def books(lab, pids, gpu=0):
    """The GPU's clock, what these processes had of it, and by how much it is behind the machine's; ns."""
    stat = lab.host.stat()["gpus"][gpu]
    return stat["clock_ns"], sum(p["busy_ns"] for p in stat["processes"] if p["pid"] in pids), stat["lag_ns"]


def share(lab, victim, seconds=SECONDS, gpu=0):
    """The part of the GPU's time that it had from now on, by the GPU's own clock."""
    pids = set(victim.pids())
    (began, before, behind), (ticks, stolen) = books(lab, pids, gpu), host_ticks()
    time.sleep(seconds)
    (ended, after, behind_now), (ticks_now, stolen_now) = books(lab, pids, gpu), host_ticks()
    if (stolen_now - stolen) / max(ticks_now - ticks, 1) > 0.3:
        pytest.skip("this machine's host took its time")
    lag = (behind_now - behind) / max(ended - began + behind_now - behind, 1)
    if lag > LAG_MAX:
        pytest.skip(f"this machine was too busy: the simulated GPU stood still for {lag:.0%} of the time")
    return (after - before) / (ended - began)


def due(lab, victim, fraction, gpu=0):
    """The part of the GPU's time that it is to have beside an attack: its share, or what it makes of that alone on this machine."""
    return min(fraction, share(lab, victim, ALONE_SECONDS, gpu))


def wait_line(process, wanted):
    """Until the attack says that it has begun."""
    line = process.stdout.readline()
    assert line.strip() == wanted, (line, process.poll())


__all__ = ["CLIENT", "GATE", "PATIENCE", "SECONDS", "Victim", "books", "due", "share", "slice_time", "wait_line", "wait_until"]
