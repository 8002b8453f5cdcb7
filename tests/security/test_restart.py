"""Points 1, 4 and 14: what a user of the machine can make of a daemon's restart.

The attacks were made on a daemon that found ledgers in /proc: each shows it something that is no ledger of its making."""
import contextlib
import os
import pathlib
import re
import signal
import stat
import subprocess

import pytest

from conftest import BUILD, rest_long, wait_until

from .lab import ALICE, BOB, EXAMPLES, GIB, MALLORY, MIB, ROOT

# A process in a session, as an attacker writes one: it has the ledger, and may write anything there.
IN_SESSION = r"""
import ctypes, mmap, pathlib, struct, time
sys.path.insert(0, LAB["tests"])
from attach_client import Attached, Ledger, WORKLOAD, OK
class D: runtime = pathlib.Path(LAB["runtime"])
def attach(session):
    a = Attached(D)
    assert a.ask(WORKLOAD, session)[0] == OK
    return a, Ledger(a.fds[1])
def birth(pid):  # in ticks: what everybody may read
    return int(open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()[19])
def claim(ledger, slot, pid):
    at = ledger._slot(slot)
    struct.pack_into("<I", ledger.map, at, 1)
    struct.pack_into("<i", ledger.map, at + 4, pid)
    struct.pack_into("<Q", ledger.map, at + 8, birth(pid))
"""


@pytest.fixture
def unit_lab(lab):
    """As systemd runs the daemon: what its user may not open shows there."""
    lab.kill_daemon()
    lab.as_the_unit()
    wait_until(lab.can_lock)
    lab.start_warden()
    lab.start()
    return lab


@pytest.fixture
def victims(lab):
    """Files of root's, which everybody may read."""
    files = [lab.dir / f"victim{i}" for i in range(4)]
    for file in files:
        file.write_text("root's")
        file.chmod(0o644)
    return files


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


SWAP = IN_SESSION + r"""
import threading
session, *targets = sys.argv[1:]
how = targets.pop(0)
a, ledger = attach(session)
limits = os.memfd_create("carve-limits:" + session, os.MFD_ALLOW_SEALING)
os.ftruncate(limits, 65536)
os.fchmod(limits, 0o400)
others = [os.open(t, os.O_PATH) for t in targets]
if how == "hardlink":
    os.chdir(LAB["home"])
    os.mkdir(f"links{os.getpid()}"); os.chdir(f"links{os.getpid()}")
    for i, t in enumerate(targets):
        try: os.link(t, str(i))
        except OSError: os.symlink(t, str(i))
    others = [os.open(str(i), os.O_PATH) for i in range(len(targets))]
# Its ledger is mapped, and no descriptor of it is left: these look like it.
for fd in a.fds: os.close(fd)
shown = []
for i in range(60):
    shown.append(os.dup(limits))
    kept = os.memfd_create("carve-ledger:" + session, os.MFD_ALLOW_SEALING)
def swap(other):
    while True:
        for fd in shown: os.dup2(other, fd); os.dup2(limits, fd)
for other in others: threading.Thread(target=swap, args=(other,), daemon=True).start()
print("swapping", flush=True)
sys.stdin.read()
"""


@pytest.mark.attack("1", "a descriptor that is swapped for root's file while the daemon restarts")
@pytest.mark.parametrize("how", rest_long(["path", "hardlink"]))
def test_swapped_descriptors_change_no_file(unit_lab, victims, how):
    lab = unit_lab
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    attackers = [lab.python(MALLORY, SWAP, session, how, *victims, method=lab.popen) for _ in range(2)]
    assert all(a.stdout.readline() == "swapping\n" for a in attackers)
    before = [mode(v) for v in victims] + [mode(pathlib.Path("/"))]
    for _ in range(6):
        lab.restart()
    assert [mode(v) for v in victims] + [mode(pathlib.Path("/"))] == before
    assert "ledger.rejected" not in lab.log()  # nothing that they show is even looked at


@pytest.mark.attack("1", "a restarted daemon opens what a user put in the place of a ledger")
def test_a_restart_opens_nothing_of_other_processes(lab, tmp_path):
    """Seen by its system calls: /proc of others is only read for who lives."""
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    attacker = lab.python(MALLORY, SWAP, session, "path", "/", method=lab.popen)
    assert attacker.stdout.readline() == "swapping\n"
    lab.kill_daemon()
    wait_until(lab.can_lock)
    trace = tmp_path / "trace"
    lab.before_daemon = ["strace", "-f", "-o", str(trace), "-e", "trace=%file"]
    if subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode:
        pytest.skip("strace is not permitted here")
    lab.start()
    lab.carve_json(ROOT, "session", "list")
    calls = trace.read_text()
    assert "carved.sock" in calls
    touched = set(re.findall(r'"/proc/\d+/([^"]*)"', calls))
    assert touched <= {"stat", "task", "cgroup", "gid_map", "ns/user", "projid_map", "uid_map"}, touched
    assert not re.search(r"^\d+ +f?chmod(at)?\(.*/proc/", calls, re.M)


# ---- other processes, by a ledger's word ----

@pytest.fixture
def bystanders(lab):
    """Processes of root's and of another user's, which nobody may end for a session of mallory's."""
    made = [lab.popen(uid, "sleep", "1000") for uid in (ROOT, BOB)]
    yield made
    assert [p.poll() for p in made] == [None, None]


CLAIM = IN_SESSION + r"""
session, how, *pids = sys.argv[1:]
a, ledger = attach(session)
for i, pid in enumerate(map(int, pids)):
    claim(ledger, 2 + i, pid)
if how == "own-slot": claim(ledger, 1, int(pids[0]))
if how == "dead": struct.pack_into("<I", ledger.map, ledger._slot(2), 2)
print("claimed", flush=True)
time.sleep(1000)
"""


@pytest.mark.attack("4", "slots that name others' processes, then a restart and a release by force")
@pytest.mark.parametrize("how", ["free-slots", "own-slot", "dead"])
def test_slots_with_others_pids_end_nobody(lab, bystanders, how):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    pids = [p.pid for p in bystanders]
    attacker = lab.python(MALLORY, CLAIM, session, how, *pids, method=lab.popen)
    assert attacker.stdout.readline() == "claimed\n", attacker.stderr.read()
    lab.restart()
    shown = lab.carve_json(MALLORY, "session", "show", session)
    assert not set(pids) & set(shown["pids"])
    done = lab.carve(MALLORY, "session", "release", "--force", session)
    assert done.returncode == 0, done.stderr
    assert attacker.wait(60) == -signal.SIGTERM


# Maps a file of mallory's: its path is longer than a line that is read, and goes on as a ledger's does.
LONG = r"""
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
kept = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.read()
"""

MAKE_LONG = r"""
session, path = sys.argv[1], LAB["home"]
name = "/memfd:carve-ledger:" + session + " (deleted)"
# So that the name begins a line's second half, with 511 bytes read at a time.
while len(path) < 511 - 73: path += "/" + "x" * min(200, 511 - 73 - len(path) - 1)
path += name
os.makedirs(path)
path += "/file"
open(path, "wb").write(b"\0" * 4096)
os.chmod(LAB["home"], 0o755)
print(path)
"""


@pytest.mark.attack("4", "a mapping path of more than 512 bytes that reads as a ledger")
def test_a_long_path_makes_nobody_part_of_a_session(lab):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    path = lab.python(MALLORY, MAKE_LONG, session).stdout.strip()
    assert len(path) > 470
    mapped = [lab.popen(uid, "/usr/bin/python3", "-c", LONG, path) for uid in (ROOT, BOB)]
    assert all(p.stdout.readline() == "mapped\n" for p in mapped)
    attacker = lab.python(MALLORY, CLAIM, session, "free-slots", *[p.pid for p in mapped], method=lab.popen)
    assert attacker.stdout.readline() == "claimed\n", attacker.stderr.read()
    lab.restart()
    assert lab.carve(MALLORY, "session", "release", "--force", session).returncode == 0
    assert [p.poll() for p in mapped] == [None, None]


@pytest.mark.attack("4", "locking a user out by memory that is named as his ledger is")
@pytest.mark.parametrize("how", ["memfd", "path"])
def test_memory_of_a_ledgers_name_locks_nobody_out(lab, how):
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    if how == "memfd":
        attacker = lab.python(MALLORY, r"""
import mmap
kept = []
for kind in ("limits", "ledger"):
    fd = os.memfd_create(f"carve-{kind}:{sys.argv[1]}", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 65536)
    kept.append((fd, mmap.mmap(fd, 65536)))
print("mapped", flush=True)
sys.stdin.read()
""", session, method=lab.popen)
    else:
        path = lab.python(MALLORY, MAKE_LONG, session).stdout.strip()
        attacker = lab.popen(MALLORY, "/usr/bin/python3", "-c", LONG, path)
    assert attacker.stdout.readline() == "mapped\n"
    for _ in range(2):
        lab.restart()
        assert lab.carve_json(ALICE, "session", "show", session)["pids"] == []
        done = lab.carve(ALICE, "run", EXAMPLES / "matmul")
        assert done.returncode == 0, done.stderr


def files_of(pid):
    """What the descriptors of a process lead to. Some may be closed meanwhile."""
    found = []
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(file))
    return found


def kept_of(lab):
    """A session with a program in it, whose ledger the supervisor keeps."""
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    hog = lab.popen(ALICE, BUILD / "carve", "run", EXAMPLES / "hog", "600")
    wait_until(lambda: lab.carve_json(ALICE, "session", "show", session)["pids"])
    wait_until(lambda: any(f"carve-ledger:{session}" in file for file in files_of(lab.supervisor())))
    return session, hog


@pytest.mark.attack("14", "a user at the supervisor: its socket for notices, its files, its processes")
def test_nobody_gets_at_the_supervisor(lab):
    session, hog = kept_of(lab)
    done = lab.python(MALLORY, r"""
import signal, socket
place = LAB["runtime"]
def tries(what, *args):
    try: what(*args)
    except OSError as e: print(e.errno)
    else: print("done", what)
tries(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect, place + "/notify.sock")
tries(os.unlink, place + "/notify.sock")
tries(os.rename, place + "/notify.sock", place + "/other")
tries(os.symlink, "/tmp", place + "/descriptors.sock")
for pid in sys.argv[1:]:
    tries(os.kill, int(pid), signal.SIGKILL)
    tries(os.listdir, f"/proc/{pid}/fd")
""", lab.supervisor(), lab.worker())
    assert "done" not in done.stdout and len(done.stdout.split()) == 8, done.stdout + done.stderr
    lab.restart()
    assert lab.carve_json(ALICE, "session", "show", session)["ledger"] == "open"
    hog.terminate()
    hog.wait(60)


@pytest.mark.attack("14", "the descriptors that a supervisor left which ended in order")
def test_nobody_gets_what_a_supervisor_left(lab):
    session, hog = kept_of(lab)
    lab.daemon.terminate()
    lab.daemon.wait(60)
    keeper, = wait_until(lambda: [p for p in lab.daemon_pids() if pathlib.Path(f"/proc/{p}/comm").read_text() == "carve-keeper\n"])
    done = lab.python(MALLORY, r"""
import signal, socket
def tries(what, *args):
    try: what(*args)
    except OSError as e: print(e.errno)
    else: print("done", what)
tries(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect, LAB["runtime"] + "/descriptors.sock")
tries(os.unlink, LAB["runtime"] + "/descriptors.sock")
tries(os.kill, int(sys.argv[1]), signal.SIGKILL)
tries(os.listdir, f"/proc/{sys.argv[1]}/fd")
""", keeper)
    assert "done" not in done.stdout and len(done.stdout.split()) == 4, done.stdout + done.stderr
    # Somebody whom an administrator let in there by mistake gets nothing either.
    os.chmod(lab.runtime / "descriptors.sock", 0o666)
    done = lab.python(MALLORY, r"""
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(LAB["runtime"] + "/descriptors.sock")
print(socket.recv_fds(s, 100, 4)[:2])
""")
    assert done.stdout == "(b'', [])\n", done.stdout + done.stderr
    lab.start()
    assert lab.carve_json(ALICE, "session", "show", session)["ledger"] == "open"
    hog.terminate()
    hog.wait(60)


@pytest.mark.attack("14", "the worker itself, broken, at its supervisor: it says what no worker says")
def test_a_broken_worker_gains_nothing_of_its_supervisor(lab):
    """Its notices are read from its own connection, by a process that takes it over (root plays it)."""
    session, hog = kept_of(lab)
    worker, supervisor = lab.worker(), lab.supervisor()
    fds = len(os.listdir(f"/proc/{supervisor}/fd"))
    done = lab.run(ROOT, "/usr/bin/python3", "-c", r"""
import ctypes, os, random, socket, sys
worker = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open(worker)
links = {int(n): os.readlink(f"/proc/{worker}/fd/{n}") for n in os.listdir(f"/proc/{worker}/fd")}
path = sys.argv[2]
found = []
for n in links:
    if not links[n].startswith("socket:"): continue
    fd = libc.syscall(438, pidfd, n, 0)
    if fd < 0: continue
    s = socket.socket(fileno=fd)
    try: peer = s.getpeername()
    except OSError: continue
    if peer == path: found.append(s)
assert found, links
dice = random.Random(3)
for i in range(300):
    text = bytes(dice.randrange(256) for _ in range(dice.randint(1, 900))) if i % 2 else         dice.choice([b"FDSTORE=1\nFDNAME=../../etc/passwd", b"FDSTORE=1\nFDNAME=" + b"a" * 300, b"FDSTORE=1", b"MAINPID=1\nREADY=1",
                     b"STATUS=" + b"[31m" * 50, b"FDSTOREREMOVE=1\nFDNAME=none.such"])
    try: socket.send_fds(found[0], [text], [0] * dice.randint(0, 3))
    except BlockingIOError: pass
print("sent")
""", worker, lab.runtime / "notify.sock")
    assert done.stdout == "sent\n", done.stderr
    assert lab.serves_still()
    wait_until(lambda: len(os.listdir(f"/proc/{supervisor}/fd")) <= fds)
    lab.restart()
    assert lab.carve_json(ALICE, "session", "show", session)["ledger"] == "open"
    hog.terminate()
    hog.wait(60)


@pytest.mark.attack("14", "spoiling one's own ledger over a restart harms no other session")
def test_a_ledger_of_noise_over_a_restart(lab):
    other = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    hog = lab.popen(ALICE, BUILD / "carve", "run", EXAMPLES / "hog", "600")
    wait_until(lambda: lab.carve_json(ALICE, "session", "show", other)["pids"])
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    before = lab.carve_json(ROOT, "gpu", "list")[0]["available_bytes"]
    attacker = lab.python(MALLORY, IN_SESSION + r"""
import random
a, ledger = attach(sys.argv[1])
size = len(ledger.map)
print("noise", flush=True)
for seed in range(10**9):
    noise = random.Random(seed).randbytes(4096)
    at = random.Random(seed).randrange(0, size - 4096)
    ledger.map[at:at + 4096] = noise
""", session, method=lab.popen)
    assert attacker.stdout.readline() == "noise\n", attacker.stderr.read()
    for _ in range(4):
        lab.restart()
        shown = lab.carve_json(ALICE, "session", "show", other)
        assert shown["ledger"] == "open" and len(shown["pids"]) == 1
        assert abs(lab.carve_json(ROOT, "gpu", "list")[0]["available_bytes"] - before) < 64 * MIB
    attacker.kill()
    attacker.wait()
    assert lab.carve_json(ALICE, "session", "show", other)["vram_bytes"] == 2 * GIB
    hog.terminate()
    hog.wait(60)
