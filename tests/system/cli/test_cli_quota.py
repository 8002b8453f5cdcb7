"""carve quota and carve explain against a daemon on a driver of this file's own."""
import json
import os
import pwd

import pytest

from conftest import BUILD, needs_admin, run, wait_until
from daemon_client import GIB
from own_daemon import Asker, daemon, make_daemon, module_daemon, waiting  # noqa: F401: fixtures

CARVE = BUILD / "carve"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
ME = pwd.getpwuid(os.geteuid()).pw_name


def carve(daemon, *argv, prefix=()):
    return run([*prefix, CARVE, *argv, "--host", daemon.runtime / "carved.sock"])


def carve_json(daemon, *argv):
    done = carve(daemon, *argv, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr, done.stderr


# ---- quotas ---------------------------------------------------------------------------------

@needs_admin
def test_limits_are_set_one_by_one_and_removed(daemon):
    quota = carve_json(daemon, "quota", "set", ME, "--vram", "16", "--sessions", "4", "--gpus", "2")
    assert quota == {"kind": "user", "name": ME, "id": os.geteuid(), "vram_bytes": 16 * GIB,
                     "sessions": 4, "gpus": 2, "gpu_hours": None,
                     "used": {"vram_bytes": 0, "sessions": 0, "gpus": 0, "gpu_hours": 0}}
    assert carve_json(daemon, "quota", "set", ME, "--sessions", "none")["sessions"] is None
    assert carve_json(daemon, "quota", "set", ME, "--gpus", "-")["vram_bytes"] == 16 * GIB
    assert carve_json(daemon, "quota", "show") == carve_json(daemon, "quota", "show", ME)
    daemon.grant(vram="10")
    assert "10 GiB of 16 GiB" in carve(daemon, "quota", "list").stdout
    assert "1, no limit" in carve(daemon, "quota", "show", str(os.geteuid())).stdout
    assert daemon.request(vram="7").status == 403
    assert carve_json(daemon, "quota", "remove", ME)["vram_bytes"] is None
    assert carve_json(daemon, "quota", "list") == []
    for argv, whose in (([ME], f"user {ME}"), (["--everyone"], "everyone (each)")):
        again = carve(daemon, "quota", "remove", *argv)
        assert (again.returncode, again.stdout) == (0, f"{whose} had no quota, so nothing was removed\n")
    daemon.grant(vram="7")


@needs_admin
def test_quotas_are_listed_by_number_after_a_restart_too(make_daemon):
    daemon = make_daemon()
    for argv in (["--group", "5"], ["30"], ["10"], ["--group", "3"], ["20"]):
        carve_json(daemon, "quota", "set", *argv, "--sessions", "4")
    carve_json(daemon, "quota", "set", "10", "--vram", "4")
    want = [("user", 10), ("user", 20), ("user", 30), ("group", 3), ("group", 5)]
    assert [(q["kind"], q["id"]) for q in carve_json(daemon, "quota", "list")] == want
    carve_json(daemon, "quota", "remove", "20")
    daemon.kill()
    daemon.start()
    want.remove(("user", 20))
    assert [(q["kind"], q["id"]) for q in carve_json(daemon, "quota", "list")] == want


@needs_admin
def test_quotas_are_asked_about_mebibytes_only_without_a_unit(daemon):
    told = carve(daemon, "quota", "set", ME, "--vram", "4096")
    assert told.returncode == 0 and "did you mean 4096MiB?" in told.stderr
    for size in ("4096GiB", "4TiB", "4096MiB", "100", "none"):
        told = carve(daemon, "quota", "set", ME, "--vram", size)
        assert (told.returncode, told.stderr) == (0, ""), size
    assert carve(daemon, "quota", "set", ME, "--sessions", "4096").stderr == ""


@needs_admin
def test_quota_of_a_group(daemon):
    gid = str(os.getegid())
    assert carve_json(daemon, "quota", "set", "--group", gid, "--sessions", "1")["kind"] == "group"
    daemon.grant(vram="1")
    assert "'s quota is 1 session for all its members together: 1 is held" in daemon.request(vram="1").error["message"]
    assert carve_json(daemon, "quota", "show", "--group", gid)["used"]["sessions"] == 1
    # My group's, which binds me too, stands below my own.
    rows = [line.split()[:2] for line in carve(daemon, "quota", "show").stdout.splitlines()[1:]]
    assert [kind for kind, _ in rows] == ["user", "group"]
    assert carve_json(daemon, "quota", "remove", "--group", gid)["sessions"] is None


@pytest.mark.parametrize("argv, words", [
    (["set", "root"], ["no limit is given", "--vram 16"]),
    (["set", "--vram", "1"], ["quota set: no user given; name a user"]),
    (["set", "root", "--group", "root", "--vram", "1"], ["both given"]),
    (["set", "no-such-user", "--sessions", "1"], ["there is no user no-such-user"]),
    (["set", "--group", "no-such-group", "--sessions", "1"], ["there is no group no-such-group"]),
    (["show", "no-such-user"], ["there is no user"]),
    (["remove", "no such\nuser"], ["there is no user"]),
    (["set", "a/b", "--sessions", "1"], ["no user's or group's name"]),
    (["set", "", "--sessions", "1"], ["no user's or group's name"]),
    (["set", "root", "--vram", "4 GiB"], ["--vram", "4 GiB"]),
    (["set", "root", "--sessions", "-1"], ["--sessions", "-1"]),
    (["set", "root", "--gpus", "1.5"], ["--gpus", "1.5"]),
])
@needs_admin
def test_senseless_quotas_are_refused_in_words(module_daemon, argv, words):
    fails(carve(module_daemon, "quota", *argv), 2, *words)
    assert carve_json(module_daemon, "quota", "list") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_users_see_their_own_and_change_none(make_daemon):
    daemon = make_daemon(args=["--system"])
    os.chmod(daemon.dir, 0o755)
    carve(daemon, "quota", "set", "root", "--sessions", "7")
    carve(daemon, "quota", "set", "65534", "--sessions", "3")
    own = carve(daemon, "quota", "list", "--json", prefix=NOBODY)
    assert [(q["id"], q["sessions"]) for q in json.loads(own.stdout)] == [(65534, 3)]
    assert json.loads(carve(daemon, "quota", "show", "--json", prefix=NOBODY).stdout)["sessions"] == 3
    for argv in (["show", "root"], ["set", "65534", "--sessions", "9"], ["remove", "65534"]):
        fails(carve(daemon, "quota", *argv, prefix=NOBODY), 5, "group carve")
    assert len(carve_json(daemon, "quota", "list")) == 2


@needs_admin
def test_a_limit_is_changed_without_touching_the_others(daemon):
    path = f"/v1/quotas/user/{os.geteuid()}"
    daemon.call("PUT", path, {"vram": "16", "sessions": 4})
    assert daemon.call("PATCH", path, {"gpus": 2}).json["sessions"] == 4
    assert daemon.call("PATCH", path, {"sessions": None}).json["vram_bytes"] == 16 * GIB
    assert daemon.call("PATCH", path, {"vram": "x"}).status == 400
    assert daemon.call("GET", path).json["gpus"] == 2
    assert daemon.call("PUT", path, {}).json["vram_bytes"] is None
    assert daemon.call("GET", path).json["gpus"] is None


# ---- explaining -----------------------------------------------------------------------------

@pytest.fixture
def two_gpus(make_daemon):
    return make_daemon(gpus=[(80 * GIB, 0, 10 * GIB, "Big"), (24 * GIB, 0, 0, "Small")])


def test_a_request_is_explained_with_numbers_for_each_gpu(two_gpus):
    two_gpus.grant(vram="20", gpu_ids="1")
    yes = carve(two_gpus, "explain", "--vram", "30")
    assert yes.returncode == 0 and yes.stderr == ""
    lines = yes.stdout.splitlines()
    assert lines[0] == "30 GiB: would be granted: 30 GiB on GPU 0"
    assert lines[1].split() == ["GPU", "NAME", "ASKED", "AVAILABLE", "CAPACITY", "FITS", "WHY"]
    assert lines[2].split()[:8] == ["0", "Big", "30", "GiB", "70", "GiB", "80", "GiB"]
    assert lines[3].endswith("no    4 GiB of 24 GiB free")
    no = carve(two_gpus, "explain", "--vram", "60", "--gpus", "2").stdout.splitlines()
    assert no[0] == "60 GiB on each of 2 GPUs: would be refused: 60 GiB on each of 2 GPUs is more " \
        "than there is"
    rule = carve(two_gpus, "explain", "--vram", "72").stdout
    assert "93% rule is applied" in rule and ": would be granted: 70 GiB on GPU 0" in rule
    strict = carve_json(two_gpus, "explain", "--vram", "72", "--vram-strict")
    assert strict["granted"] is False and [g["reason"] for g in strict["gpus"]] == ["no_memory"] * 2
    assert len(two_gpus.call("GET", "/v1/sessions").json) == 1  # it takes nothing


def test_the_current_session_is_a_reason_unless_ephemeral(two_gpus):
    current = two_gpus.request(vram="1", ephemeral=False).json["id"]
    assert current in carve(two_gpus, "explain", "--vram", "1").stdout.splitlines()[0]
    assert carve_json(two_gpus, "explain", "--vram", "1", "--ephemeral")["granted"]


def test_a_waiting_request_is_explained(two_gpus):
    first = two_gpus.grant(vram="60")
    asker = Asker(two_gpus, vram="40", wait_for=600)
    one, = wait_until(lambda: waiting(two_gpus))
    done = carve(two_gpus, "explain", one["id"])
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{one['id']}: waits since 20") and lines[0].endswith(", at place 1 in line")
    assert lines[1] == "40 GiB: waits: not enough GPU memory for 40 GiB"
    assert "10 GiB of 80 GiB free, programs outside carve hold 10 GiB" in lines[3]
    last = Asker(two_gpus, vram="41", wait_for=600)
    two = wait_until(lambda: [w for w in waiting(two_gpus) if w["position"] == 2])[0]
    owner = one["owner"]
    lines = carve(two_gpus, "explain", two["id"]).stdout.splitlines()
    assert lines[0].endswith(", at place 2 in line") and lines[2] == f"ahead of it: {one['id']} of {owner} (40 GiB)"
    assert [w["id"] for w in carve_json(two_gpus, "explain", two["id"])["ahead"]] == [one["id"]]
    lines = carve(two_gpus, "explain", "--vram", "50").stdout.splitlines()
    assert lines[2] == f"ahead of it: {one['id']} of {owner} (40 GiB), {two['id']} of {owner} (41 GiB)"
    two_gpus.release(two["id"])
    last.join(60)
    shown = carve_json(two_gpus, "explain", one["id"])
    assert shown["ahead"] == []
    assert shown["state"] == "waiting" and shown["position"] == 1 and shown["granted"] is False
    two_gpus.release(first["id"])
    asker.join(60)
    granted = carve(two_gpus, "explain", one["id"]).stdout
    assert "active, granted 20" in granted and "40 GiB on GPU 0" in granted
    assert two_gpus.call("GET", f"/v1/explain/{one['id']}").status == 409
    two_gpus.release(one["id"])
    assert "ended: released" in carve(two_gpus, "explain", one["id"]).stdout
    assert carve_json(two_gpus, "explain", one["id"])["state"] == "ended"


def test_explain_refuses_bad_arguments(two_gpus):
    fails(carve(two_gpus, "explain"), 2, "no ID and no size")
    fails(carve(two_gpus, "explain", "s-abcdef", "--vram", "1"), 2, "both given")
    fails(carve(two_gpus, "explain", "s-abcdef"), 1, "s-abcdef")
    fails(carve(two_gpus, "explain", "--vram", "4 GiB"), 2, "--vram")
    fails(carve(two_gpus, "explain", "--vram", "4", "--gpu-ids", "7"), 2, "--gpu-ids: there is no GPU 7")


def test_gpus_tell_what_is_used_and_by_whom(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 2 * GIB, "A")])
    daemon.processes, daemon.busy = [(0, 4711, 3 * GIB)], [(0, 37)]
    daemon.write_state()
    gpu = daemon.gpu()
    assert gpu["used_bytes"] == gpu["outside_bytes"] == 5 * GIB and gpu["utilization"] == 37
    assert gpu["outside_processes"] == [{"pid": 4711, "memory_bytes": 3 * GIB, "stray": False}]
    daemon.failing = True
    daemon.write_state()
    assert daemon.gpu()["used_bytes"] is None and daemon.gpu()["utilization"] is None
