"""MIG instances of a system daemon: its worker has no right to make any, the warden makes them for all."""
import os
import pathlib
import re
import signal

import pytest

from conftest import rest_long, wait_until
from .lab import ALICE, BOB, CARVED, ROOT
from .test_jobs import parent_of, processes_called


def upgrade(lab):
    done = lab.run(ROOT, CARVED, "--system", "--runtime-dir", lab.runtime, "--takeover")
    assert done.returncode == 0, done.stderr


def test_a_separated_daemon_makes_instances_for_users(make_lab):
    lab = make_lab("h100-80gb:2+mig")
    assert lab.carve(ALICE, "node", "set-role", "--dynamic-mig-enabled").returncode == 5
    done = lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled")
    assert done.returncode == 0, done.stderr
    # The daemon's own process is not root's: what makes instances for it is.
    users = {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): pathlib.Path(f"/proc/{pid}").stat().st_uid
             for pid in lab.daemon_pids()}
    assert pathlib.Path(f"/proc/{lab.worker()}/status").read_text().split("Uid:")[1].split()[0] != "0", users
    for user, profile in ((ALICE, "1g.10gb"), (BOB, "3g.40gb")):
        assert lab.carve(user, "session", "request", "--mig-profile", profile).returncode == 0
        assert lab.carve_json(user, "session", "show")["mig_profile"] == profile
    seen = [i["owner"] for i in lab.carve_json(ALICE, "mig", "list")]
    assert sorted(map(str, seen)) == ["60101", "None"]  # whose the other one is, is none of her business
    lab.restart()
    assert {i["state"] for i in lab.carve_json(ROOT, "mig", "list")} == {"busy"}
    for user in (ALICE, BOB):
        assert lab.carve(user, "session", "release").returncode == 0
    refused = lab.carve(ALICE, "mig", "gc")
    assert refused.returncode == 5 and "may remove idle MIG instances" in refused.stderr
    assert lab.carve(ROOT, "mig", "gc").returncode == 0
    wait_until(lambda: not lab.carve_json(ROOT, "mig", "list"))


def test_a_separated_daemon_lets_go_of_the_gpu_for_the_mode(make_lab):
    lab = make_lab("h100-80gb")
    assert lab.host.carve("sim", "fault", "mig-clients").returncode == 0
    done = lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled", "--enable-mode")
    assert done.returncode == 0, done.stderr
    assert lab.carve(ALICE, "run", "--mig-profile", "1g.10gb", "--", "true").returncode == 0


def test_a_separated_daemon_learns_in_an_instance_what_a_context_takes(make_lab):
    lab = make_lab("h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    refused = lab.carve(ALICE, "session", "request", "--vram", "0.1", "--mig-share")
    assert refused.returncode == 2 and re.search(r"one CUDA context alone takes \d+ MiB", refused.stderr), refused.stderr
    assert lab.carve(ALICE, "session", "request", "--vram", "1", "--mig-share").returncode == 0


def test_the_daemon_outlives_the_process_that_makes_instances(make_lab):
    """The warden has another. Sessions and their instances are as before."""
    lab = make_lab("h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    assert lab.carve(ALICE, "session", "request", "--mig-profile", "1g.10gb").returncode == 0
    before = lab.carve_json(ALICE, "session", "show")
    assert lab.host.carve("sim", "fault", "mig-time", "--delay", "500ms").returncode == 0
    asked = lab.popen(BOB, CARVED.parent / "carve", "session", "request", "--mig-profile", "2g.20gb")
    wait_until(lambda: "creating" in [i["state"] for i in lab.carve_json(ROOT, "mig", "list")])
    pid, = [pid for pid in processes_called("carve-mig") if parent_of(pid) == lab.supervisor()]
    os.kill(pid, signal.SIGKILL)
    asked.wait(60)
    assert lab.serves_still()
    assert lab.carve_json(ALICE, "session", "show")["gpus"][0]["instance"] == before["gpus"][0]["instance"]
    assert lab.carve(BOB, "run", "--ephemeral", "--mig-profile", "3g.40gb", "--", "true").returncode == 0


@pytest.mark.parametrize("point", rest_long(["mig.half_made", "mig.taken_apart", "mig.made", "mig.destroyed"], 2))
def test_work_that_a_killed_process_left_half_done_is_put_right(make_lab, tmp_path, point):
    """Three instances were asked for at once."""
    token = tmp_path / "token"
    lab = make_lab("h100-80gb+mig", daemon_env={"CARVE_KILL_POINT": f"{point}:{token}"})
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    assert lab.carve(ALICE, "run", "--mig-profile", "1g.10gb", "--gpus", "3", "--", "true").returncode == 0
    if point in ("mig.half_made", "mig.made"):
        assert lab.carve(ROOT, "mig", "gc").returncode == 0
        wait_until(lambda: not lab.carve_json(ROOT, "mig", "list"))
    token.touch()
    words = ["--mig-profile", "1g.10gb", "--gpus", "3"] if point in ("mig.half_made", "mig.made") else ["--mig-profile", "7g.80gb"]
    lab.carve(ALICE, "session", "request", *words)
    assert not token.exists() and lab.serves_still()
    lab.carve(ALICE, "session", "release")
    wait_until(lambda: {i["state"] for i in lab.carve_json(ROOT, "mig", "list")} <= {"idle"})
    assert lab.carve(ALICE, "run", "--ephemeral", "--mig-profile", "7g.80gb", "--", "true").returncode == 0
    assert lab.carve(ROOT, "mig", "gc").returncode == 0
    wait_until(lambda: not lab.carve_json(ROOT, "mig", "list"))


def test_an_upgrade_while_an_instance_is_made(make_lab):
    """The warden ends with its worker. The next one puts right what was half done, and the client asks again by its ID."""
    lab = make_lab("h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    assert lab.host.carve("sim", "fault", "mig-time", "--delay", "500ms").returncode == 0
    asked = lab.popen(ALICE, CARVED.parent / "carve", "session", "request", "--mig-profile", "1g.10gb")
    wait_until(lambda: "creating" in [i["state"] for i in lab.carve_json(ROOT, "mig", "list")])
    upgrade(lab)
    assert asked.wait(60) == 0
    assert lab.carve_json(ALICE, "session", "show")["mig_profile"] == "1g.10gb"
    assert lab.carve(BOB, "run", "--mig-profile", "1g.10gb", "--", "true").returncode == 0
    assert "busy" in [i["state"] for i in lab.carve_json(ROOT, "mig", "list")]
