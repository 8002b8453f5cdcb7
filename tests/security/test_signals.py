"""Point 4: carve ends no process that the session's user may not end, and says which one that is."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from .lab import ALICE, BOB, CARVE, MALLORY, PROGRAMS, ROOT

# Takes part in the session, and then becomes another user's by a set-user-ID program. Its PID stays.
BECOMES = r"""
import pathlib, time
sys.path.insert(0, LAB["tests"])
from attach_client import Attached, WORKLOAD, OK
class D: runtime = pathlib.Path(LAB["runtime"])
a = Attached(D)
assert a.ask(WORKLOAD, sys.argv[1])[0] == OK
os.set_inheritable(a.socket.fileno(), True)
print("attached", os.getpid(), flush=True)
os.execv(sys.argv[2], [sys.argv[2], "/usr/bin/sleep", "600"])
"""


@pytest.fixture
def become(lab):
    """become(uid): a program that runs a command as that user, for everybody."""
    if os.statvfs(lab.dir).f_flag & os.ST_NOSUID:
        pytest.skip(f"{lab.dir} is mounted nosuid")
    place = lab.dir / "programs"
    place.mkdir(mode=0o755)

    def make(uid):
        program = place / f"become{uid}"
        shutil.copy(PROGRAMS / "become_root", program)
        os.chown(program, uid, uid)
        program.chmod(0o4755)
        return program

    return make


def real_user(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])


def begin(lab, session, program, owner):
    process = lab.python(MALLORY, BECOMES, session, program, method=lab.popen, bounding=False)
    said = process.stdout.readline().split()
    assert said[:1] == ["attached"], process.communicate()
    pid = int(said[1])
    until = time.monotonic() + 30
    while real_user(pid) != owner:
        assert time.monotonic() < until
        time.sleep(0.01)
    return process, pid


@pytest.mark.parametrize("owner", [ROOT, BOB])
@pytest.mark.attack("4", "a process of a session becomes another user's, and carve is to end it")
def test_a_release_by_force_names_a_process_that_became_anothers(lab, become, owner):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    process, pid = begin(lab, session, become(owner), owner)
    for _ in range(2):  # asked again, it is tried again
        began = time.monotonic()
        done = lab.carve(MALLORY, "session", "release", session, "--force")
        assert done.returncode == 1 and f"process {pid} of it is another user's now" in done.stderr
        assert time.monotonic() - began < 20
        assert process.poll() is None
    # Its own user ends it, and with it the session.
    os.kill(pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 30
    while lab.carve_json(MALLORY, "session", "list"):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.attack("4", "a process of another session's user, named by its PID in a ledger")
def test_a_release_by_force_ends_nobody_who_is_named_in_a_slot(lab):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    victim = lab.popen(ALICE, CARVE, "run", "--ephemeral", "--vram", "1", "--", "sleep", "600")
    pid = lab.popen(ALICE, "sleep", "600").pid
    names = BECOMES.split("os.set_inheritable")[0] + r"""
import struct
from attach_client import Ledger
ledger = Ledger(a.fds[1])
for slot in range(1, 32):
    struct.pack_into("<Ii", ledger.map, ledger._slot(slot), 1, int(sys.argv[2]))
print("named", flush=True)
sys.stdin.read()
"""
    attacker = lab.python(MALLORY, names, session, pid, method=lab.popen)
    assert attacker.stdout.readline() == "named\n", attacker.communicate()
    lab.restart()
    done = lab.carve(MALLORY, "session", "release", session, "--force")
    assert done.returncode == 0, done.stderr
    assert attacker.wait(30) == -signal.SIGTERM
    os.kill(pid, 0)
    assert victim.poll() is None
    assert subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip() != "Z"


# Attaches, and then has no page of its slice. `gpu`: it uses the GPU by the driver itself.
HIDES = r"""
import pathlib
sys.path.insert(0, LAB["tests"])
from attach_client import Attached, WORKLOAD, OK
from cuda import begin
class D: runtime = pathlib.Path(LAB["runtime"])
a = Attached(D)
assert a.ask(WORKLOAD, sys.argv[1])[0] == OK
if sys.argv[2] == "gpu": begin()
if sys.argv[2] != "connected": a.close()
print("attached", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["connected", "hung-up", "gpu"])
@pytest.mark.attack("4", "a process that hides that it is in a slice keeps its session")
def test_a_process_that_hides_keeps_no_session(lab, way):
    """If it is connected or uses the GPU it is ended. Else it has nothing of its session, and is let go."""
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    hidden = lab.python(MALLORY, HIDES, session, way, method=lab.popen)
    assert hidden.stdout.readline() == "attached\n", hidden.communicate()
    done = lab.carve(ROOT, "session", "release", session, "--force")
    assert done.returncode == 0, done.stderr
    assert not lab.carve_json(ROOT, "session", "list") and lab.serves_still()
    if way != "hung-up":
        assert hidden.wait(30) == -signal.SIGTERM
    else:
        assert hidden.poll() is None and "session.let_go" in lab.log()
