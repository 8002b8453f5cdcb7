"""MIG instances of a system daemon: its worker has no right to make any, a part of it that has makes them for all."""
import pathlib

from conftest import wait_until
from .lab import ALICE, BOB, ROOT


def test_a_separated_daemon_makes_instances_for_users(make_lab):
    lab = make_lab("h100-80gb:2+mig")
    assert lab.carve(ALICE, "node", "set-role", "--dynamic-mig-enabled").returncode == 5
    done = lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled")
    assert done.returncode == 0, done.stderr
    # The daemon's own process is not root's: what makes instances for it is.
    users = {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): pathlib.Path(f"/proc/{pid}").stat().st_uid
             for pid in lab.daemon_pids()}
    assert pathlib.Path(f"/proc/{lab.daemon.pid}/status").read_text().split("Uid:")[1].split()[0] != "0", users
    for user, profile in ((ALICE, "1g.10gb"), (BOB, "3g.40gb")):
        assert lab.carve(user, "session", "request", "--mig-profile", profile).returncode == 0
        assert lab.carve_json(user, "session", "show")["mig_profile"] == profile
    seen = [i["owner"] for i in lab.carve_json(ALICE, "mig", "list")]
    assert sorted(map(str, seen)) == ["60101", "None"]  # whose the other one is, is none of her business
    lab.restart()
    assert {i["state"] for i in lab.carve_json(ROOT, "mig", "list")} == {"busy"}
    for user in (ALICE, BOB):
        assert lab.carve(user, "session", "release").returncode == 0
    assert lab.carve(ALICE, "mig", "gc").returncode == 5
    assert lab.carve(ROOT, "mig", "gc").returncode == 0
    wait_until(lambda: not lab.carve_json(ROOT, "mig", "list"))


def test_a_separated_daemon_lets_go_of_the_gpu_for_the_mode(make_lab):
    lab = make_lab("h100-80gb")
    assert lab.host.carve("sim", "fault", "mig-clients").returncode == 0
    done = lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled", "--enable-mode")
    assert done.returncode == 0, done.stderr
    assert lab.carve(ALICE, "run", "--mig-profile", "1g.10gb", "--", "true").returncode == 0
