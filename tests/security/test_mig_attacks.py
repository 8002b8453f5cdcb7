"""Attacks on MIG instances that are used again: by what the user before left in one, and by taking them all the time."""
import json
import os
import pathlib
import signal
import tempfile

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, GIB, MALLORY, NAMES, ROOT
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


SHARED = ("session", "request", "--mig-share", "--vram")


def shares(lab, uid, vram="2", groups=()):
    """The instance that the user's new session has a part of."""
    done = lab.carve(uid, *SHARED, vram, groups=groups)
    assert done.returncode == 0, done.stderr
    session = lab.carve_json(uid, "session", "show", groups=groups)
    assert session["mig_shared"]
    return session["gpus"][0]["instance"]


def covered(files):
    """Words before the daemon's command that show it these files in /etc; skips where there are none to cover."""
    if not all(pathlib.Path("/etc", f.name).exists() for f in files):
        pytest.skip("there are no such files to cover")
    lines = "".join(f"mount --bind {f} /etc/{f.name} && " for f in files)
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", lines + 'exec "$@"', "sh"]


@pytest.fixture
def open_path():
    """A directory that everybody may enter, as the one of a system daemon's configuration."""
    with tempfile.TemporaryDirectory(prefix="carve-open-") as path:
        os.chmod(path, 0o755)
        yield pathlib.Path(path)


def group_lab(make_lab, open_path, group):
    """A lab whose administrator let a group share instances; set_group(value) names another one."""
    config = open_path / "carved.json"
    config.write_text(json.dumps({"mig_share_group": group}))
    lab = make_lab("h100-80gb+mig", args=["--config", str(config)])
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0

    def set_group(value):
        read = lab.log().count("config.read")
        config.write_text(json.dumps(value))
        lab.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: lab.log().count("config.read") > read)

    return lab, set_group


@pytest.mark.attack("12", "a stranger who asks for a part of another user's MIG instance")
def test_strangers_share_no_instance(mig_lab):
    lab = mig_lab
    alices = shares(lab, ALICE)
    assert shares(lab, MALLORY) != alices
    # A daemon after this one knows whose they are, too.
    lab.restart()
    assert shares(lab, BOB) not in (alices, lab.carve_json(MALLORY, "session", "show")["gpus"][0]["instance"])


@pytest.mark.attack("12", "a stranger who asks where no room but that in others' MIG instances is left")
def test_room_in_strangers_instances_is_no_room(make_lab):
    lab = make_lab("h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    alices = shares(lab, ALICE, "41")  # in the largest instance, so that no other one can be made
    refused = lab.carve(MALLORY, *SHARED, "2")
    assert refused.returncode == 3 and "in the way" in refused.stderr, refused
    waits = lab.popen(MALLORY, CARVE, *SHARED, "2", "--wait-for", "60")
    wait_until(lambda: any(s["state"] == "waiting" for s in lab.carve_json(ROOT, "session", "list")))
    # More room in it is none for the stranger, who gets an instance once nobody else is in it.
    assert lab.carve(ALICE, "session", "resize", "20GiB").returncode == 0
    assert lab.carve_json(ALICE, "session", "show")["gpus"][0]["instance"] == alices
    assert waits.poll() is None
    assert lab.carve(ALICE, "session", "release").returncode == 0
    assert waits.wait(60) == 0, waits.communicate()


@pytest.mark.attack("12", "a stranger's session that is moved into another user's MIG instance")
def test_a_session_that_grows_moves_into_no_strangers_instance(mig_lab):
    lab = mig_lab
    alices = shares(lab, ALICE, "21")  # in a 3g.40gb, with room for 18 GiB more
    mine = shares(lab, MALLORY, "2")
    assert lab.carve(MALLORY, "session", "resize", "--vram", "12").returncode == 0
    moved = lab.carve_json(MALLORY, "session", "show")["gpus"][0]["instance"]
    assert moved not in (alices, mine)


def test_subordinate_users_share_with_their_owner(make_lab, tmp_path):
    (tmp_path / "subuid").write_text(f"{ALICE}:300000:65536\n")
    lab = make_lab("h100-80gb+mig", before=covered([tmp_path / "subuid"]))
    NAMES.update({300000: "alice", 400000: "bob"})
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    alices = shares(lab, ALICE)
    assert shares(lab, 300000) == alices
    assert shares(lab, 400000) != alices


@pytest.mark.attack("12", "one who is in no group that may share MIG instances")
def test_the_members_of_a_group_share_instances_with_each_other_alone(make_lab, open_path):
    lab, set_group = group_lab(make_lab, open_path, 64000)
    alices = shares(lab, ALICE, groups=[64000])
    assert shares(lab, BOB, groups=[64001, 64000]) == alices
    assert shares(lab, MALLORY, groups=[64001]) != alices
    # Without the group they are strangers in one instance: nobody joins it, whosever it was.
    set_group({})
    assert lab.carve(BOB, "session", "release").returncode == 0
    assert shares(lab, BOB, groups=[64000]) != alices


@pytest.mark.attack("12", "a user whose group may share MIG instances no more")
def test_nobody_joins_an_instance_whose_sessions_may_no_longer_share(make_lab, open_path):
    lab, set_group = group_lab(make_lab, open_path, 64000)
    both = {shares(lab, ALICE, "6", groups=[64000]), shares(lab, BOB, "2", groups=[64000])}
    assert len(both) == 1
    set_group({"mig_share_group": 64001})
    for uid, groups in ((MALLORY, [64000]), (ROOT, [])):
        assert shares(lab, uid, groups=groups) not in both
    set_group({"mig_share_group": "there-is-no-such-group"})
    wait_until(lambda: "config.no_group key=mig_share_group group=there-is-no-such-group" in lab.log())
