"""Processes and ledgers that a new daemon finds."""
import json
import os
import subprocess
import sys

import pytest

from conftest import BUILD, another_user_can_read, clean_env
from in_slice import BEGIN, GIB, MIB

CLOSED = r"""
begin()
if sys.argv[1] == "closed": assert c.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
assert take(700 * MIB)[0] == 0
print(os.getpid(), flush=True)
sys.stdin.readline()
print(json.dumps([take(100 * MIB)[0] for _ in range(40)]), flush=True)
sys.stdin.readline()
"""

CRASH = r"""
import json, os, select, signal, subprocess, sys
carve, code = sys.argv[1:3]
def carve_json(*argv):
    return json.loads(subprocess.run([carve, *argv, "--json"], stdout=subprocess.PIPE, check=True).stdout)
def start(kind, *run):
    p = subprocess.Popen([carve, "run", *run, "--", sys.executable, "-S", "-c", code, kind], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline())
def tell(p):
    p.stdin.write("\n")
    p.stdin.flush()
def crash():
    daemon = carve_json("check")["daemon"]["pid"]
    pidfd = os.pidfd_open(daemon)
    os.kill(daemon, signal.SIGKILL)
    select.select([pidfd], [], [], 10)
session = carve_json("session", "request", "--vram", "3")["id"]
def show(): return carve_json("session", "show", session)
def end(p, pid):
    os.kill(pid, signal.SIGKILL)  # a command of `carve run` is its child
    p.wait()
"""

BESIDE = CRASH + r"""
(closed, one), (open_, two) = (start(kind, "--session", session) for kind in ("closed", "open"))
before = show()
crash()
after = show()
tell(closed)
taken = json.loads(closed.stdout.readline())
print(json.dumps({"pids": [one, two], "before": before, "after": after, "end": show(), "taken": taken}))
end(closed, one), end(open_, two)
"""

LOST = CRASH + r"""
import time
def supervisor():
    return int(open(os.environ["CARVE_RUNTIME_DIR"] + "/lock").read().split()[0])
closed, pid = start("closed", "--session", session)
before = show()
os.kill(supervisor(), signal.SIGKILL)  # and its worker with it, which may answer until it is gone
until = time.monotonic() + 60
while (after := show())["ledger"] != "lost" and time.monotonic() < until: time.sleep(0.05)
second = subprocess.run([carve, "run", "--session", session, "--", sys.executable, "-S", "-c", code, "open"],
                        stdin=subprocess.DEVNULL, capture_output=True, text=True)
kept = subprocess.run([carve, "session", "release", session], capture_output=True, text=True)
tell(closed)
taken = json.loads(closed.stdout.readline())
again = show()
end(closed, pid)
until = time.monotonic() + 60
while show()["pids"] and time.monotonic() < until: time.sleep(0.05)
fresh, other = start("open", "--session", session)
print(json.dumps({"pid": pid, "before": before, "after": after, "second": second.stderr, "kept": kept.returncode,
                  "taken": taken, "again": again, "other": other, "end": show()}))
end(fresh, other)
"""


def as_another_user(script):
    """Runs it with a user's own daemon; what it printed."""
    if os.geteuid() == 0 and not another_user_can_read():
        pytest.skip("a checkout that other users cannot read")
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    done = subprocess.run([*user, BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", sys.executable, "-S", "-c", script,
                           BUILD / "carve", BEGIN + CLOSED], env=clean_env(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_process_that_nobody_may_look_at_outlives_the_daemon():
    """Not dumpable, as set-user-ID programs are: its user's daemon cannot read what it has mapped."""
    said = as_another_user(BESIDE)
    used = said["before"]["gpus"][0]["used_bytes"]
    assert set(said["after"]["pids"]) == set(said["before"]["pids"]) == set(said["pids"])
    assert said["after"]["gpus"][0]["used_bytes"] == used >= 1400 * MIB
    fits = (3 * GIB - used) // (100 * MIB)
    assert said["taken"] == [0] * fits + [2] * (40 - fits)
    assert said["end"]["gpus"][0]["used_bytes"] == used + fits * 100 * MIB
    assert set(said["end"]["pids"]) == set(said["pids"])


def test_a_ledger_that_nobody_has_but_its_processes_goes_on_with_them():
    """carved and its keeper were killed at once. Until they end nobody gets another one, which would be a second slice."""
    said = as_another_user(LOST)
    assert said["before"]["pids"] == said["after"]["pids"] == said["again"]["pids"] == [said["pid"]]
    assert said["after"]["ledger"] == said["again"]["ledger"] == "lost" and said["again"]["stray_pids"] == []
    assert "its ledger was lost" in said["second"] and said["kept"] != 0
    used = said["before"]["gpus"][0]["used_bytes"]
    fits = (3 * GIB - used) // (100 * MIB)
    assert said["taken"] == [0] * fits + [2] * (40 - fits)
    assert said["end"]["pids"] == [said["other"]] and said["end"]["ledger"] == "open"
    assert said["end"]["gpus"][0]["used_bytes"] >= 700 * MIB
