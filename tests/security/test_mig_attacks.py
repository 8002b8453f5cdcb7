"""Attacks on MIG instances that are used again: by what the user before left in one, and by taking them all the time."""
import json

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, GIB, MALLORY, ROOT
from .test_memory import CUDA, HOLDER


@pytest.fixture
def mig_lab(make_lab):
    lab = make_lab("h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    return lab


def instance_of(lab, uid, profile):
    assert lab.carve(uid, "session", "request", "--mig-profile", profile).returncode == 0
    return lab.carve_json(uid, "session", "show")["gpus"][0]["instance"]


def leaves_process(lab, profile):
    """Of a session that ended: its instance, and a process in it that was never the session's."""
    instance = instance_of(lab, MALLORY, profile)
    left = lab.python(MALLORY, HOLDER, "linear", 8 * GIB, method=lab.popen, env={"CUDA_VISIBLE_DEVICES": instance})
    assert left.stdout.readline() == "holds\n", left.communicate()
    assert lab.carve(MALLORY, "session", "release").returncode == 0
    return instance, left


FREE = CUDA + r"""
begin()
free, total = c.c_size_t(), c.c_size_t()
ok(cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
print(total.value - free.value, flush=True)
"""


def used_by_others(lab, uid):
    """What is used of the session's instance when a program of its user looks, which has but a context."""
    done = lab.carve(uid, "run", "--", "/usr/bin/python3", "-c", FREE)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def states(lab):
    return {i["uuid"]: i["state"] for i in lab.carve_json(ROOT, "mig", "list")}


@pytest.mark.attack("12", "a process that stays in a MIG instance beyond its session, and holds the memory of the next one")
def test_an_instance_that_somebody_holds_is_given_to_nobody(mig_lab):
    lab = mig_lab
    instance, left = leaves_process(lab, "1g.10gb")
    assert instance_of(lab, BOB, "1g.10gb") != instance
    assert used_by_others(lab, BOB) < 2 * GIB
    # Also later, when the daemon has looked several times, and after a restart.
    wait_until(lambda: lab.log().count("mig.held") >= 1)
    lab.restart()
    assert instance_of(lab, ALICE, "1g.10gb") != instance
    assert states(lab)[instance] == "busy"
    # Once it has ended, the instance is used again.
    left.kill()
    wait_until(lambda: states(lab)[instance] == "idle")
    assert instance_of(lab, MALLORY, "1g.10gb") == instance
    assert used_by_others(lab, MALLORY) < 2 * GIB


@pytest.mark.attack("12", "a process that stays in the only MIG instance there can be")
def test_the_holder_of_an_instance_is_named(mig_lab):
    lab = mig_lab
    _, left = leaves_process(lab, "7g.80gb")
    refused = lab.carve(BOB, "session", "request", "--mig-profile", "7g.80gb")
    assert refused.returncode == 3 and f"process {left.pid} holds the idle instance" in refused.stderr, refused
    waits = lab.popen(BOB, CARVE, "session", "request", "--mig-profile", "7g.80gb", "--wait-for", "60")
    wait_until(lambda: any(s["state"] == "waiting" for s in lab.carve_json(ROOT, "session", "list")))
    left.kill()
    assert waits.wait(60) == 0, waits.communicate()


# Takes an instance and returns it without end, so many at a time.
TAKES = r"""
import subprocess, threading
def again():
    while True:
        subprocess.run([LAB["build"] + "/carve", "run", "--ephemeral", "--mig-profile", sys.argv[1], "--wait-for", "60", "--", "true"], capture_output=True)
for _ in range(int(sys.argv[2])): threading.Thread(target=again, daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.attack("11", "MIG instances that one user takes and returns without end, before another user's request")
def test_instances_that_are_taken_all_the_time_keep_nobody_waiting(mig_lab):
    lab, many = mig_lab, 4
    attack = lab.python(MALLORY, TAKES, "7g.80gb", many, method=lab.popen)
    for _ in range(3):
        wait_until(lambda: sum(s["state"] == "waiting" for s in lab.carve_json(ROOT, "session", "list")) >= many - 2)
        assert lab.carve(BOB, "session", "request", "--mig-profile", "7g.80gb", "--wait-for", "60").returncode == 0
        mine = lab.carve_json(BOB, "session", "show")
        before = [s for s in lab.carve_json(ROOT, "session", "list", "--all")
                  if s["owner"] == str(MALLORY) and s["created"] and mine["requested"] < s["created"] < mine["created"]]
        assert len(before) <= 2 * many, [json.dumps(s) for s in before]
        assert lab.carve(BOB, "session", "release").returncode == 0
    assert attack.poll() is None
