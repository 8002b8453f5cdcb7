"""Limits for everybody: quotas of everyone, of each member of a group and of carved.json, and carve limits."""
import json
import os
import pathlib
import pwd
import tempfile
import time
from datetime import datetime, timedelta, timezone

import pytest

from conftest import BUILD, clean_env, needs_admin, run, wait_until
from daemon_client import GIB
from own_daemon import Asker, daemon, make_daemon, set_quota, waiting  # noqa: F401: fixtures

CARVE = BUILD / "carve"
ME, GROUP = os.geteuid(), os.getegid()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs several users")
ALICE, BOB = 60301, 60302
STUDENTS, GUESTS = 60311, 60312


def carve(daemon, *argv, user=None, groups=()):
    prefix = []
    if user:
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}",
                  f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"]
    return run([*prefix, CARVE, *argv, "--host", daemon.runtime / "carved.sock"])


def carve_json(daemon, *argv, **who):
    done = carve(daemon, *argv, "--json", **who)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def limits(daemon, *argv, **who):
    """The rows of carve limits: {(limit, from, name): (value, used)}."""
    answer = carve_json(daemon, "limits", *argv, **who)
    return {(r["limit"], r["from"], r["name"]): (r["value"], r["used"]) for r in answer["limits"]}


def ask(daemon, vram, **who):
    return carve(daemon, "session", "request", "--vram", vram, **who)


@pytest.fixture
def shared(make_daemon):
    """A daemon for several users, whose carved.json can be written."""
    with tempfile.TemporaryDirectory(prefix="carve-limits-") as dir:
        os.chmod(dir, 0o755)  # the daemon reads it again as its own user
        config = pathlib.Path(dir) / "carved.json"
        config.write_text("{}")
        daemon = make_daemon(args=["--system", "--config", config])
        os.chmod(daemon.dir, 0o755)
        daemon.config = config
        yield daemon


def test_a_user_without_quotas_sees_that_nobody_set_a_limit(daemon):
    rows = limits(daemon)
    for name in ("vram_bytes", "sessions", "gpus"):
        assert rows[(name, None, None)] == (None, 0)
    assert rows[("living_sessions", "default", "living_sessions")] == (4096 if ME else 3072, 0)
    daemon.grant(vram="4")
    assert limits(daemon)[("living_sessions", "default", "living_sessions")][1] == 1
    assert limits(daemon)[("vram_bytes", None, None)] == (None, 4 * GIB)
    lines = carve(daemon, "limits").stdout.splitlines()
    assert lines[0].split() == ["LIMIT", "VALUE", "USED", "FROM"]
    assert "no limit" in lines[1] and "4 GiB" in lines[1]


@needs_root
def test_the_most_specific_limit_holds(shared):
    shared.config.write_text('{"defaults": {"vram": "2GiB", "sessions": 9}}')
    shared.reload()
    wait_until(lambda: ("sessions", "defaults", None) in limits(shared, user=ALICE))
    assert "by the defaults in carved.json, is 2 GiB of GPU memory" in ask(shared, "3", user=ALICE).stderr
    carve_json(shared, "quota", "set", "--everyone", "--vram", "4")
    assert ask(shared, "3", user=ALICE).returncode == 0
    refused = ask(shared, "5", user=BOB)
    assert refused.returncode == 5 and "the quota of each user is 4 GiB of GPU memory" in refused.stderr
    carve_json(shared, "quota", "set", "--group", str(STUDENTS), "--each", "--vram", "6")
    assert ask(shared, "5", user=BOB, groups=[STUDENTS]).returncode == 0
    refused = ask(shared, "7", user=60303, groups=[STUDENTS])
    assert f"your group {STUDENTS}'s quota is 6 GiB of GPU memory for each member" in refused.stderr
    carve_json(shared, "quota", "set", "60303", "--vram", "8")
    assert ask(shared, "7", user=60303, groups=[STUDENTS]).returncode == 0
    rows = limits(shared, user=60303, groups=[STUDENTS])
    assert rows[("vram_bytes", "user", "60303")] == (8 * GIB, 7 * GIB)
    assert rows[("sessions", "defaults", None)] == (9, 1)
    assert limits(shared, user=ALICE)[("vram_bytes", "everyone", None)] == (4 * GIB, 3 * GIB)
    # An exception from all of them, and the way back.
    carve_json(shared, "quota", "set", "60303", "--vram", "unlimited")
    assert limits(shared, user=60303)[("vram_bytes", "user", "60303")] == (None, 7 * GIB)
    carve_json(shared, "quota", "set", "60303", "--vram", "none")
    assert limits(shared, user=60303, groups=[STUDENTS])[("vram_bytes", "each", str(STUDENTS))][0] == 6 * GIB
    carve_json(shared, "quota", "remove", "--everyone")
    assert limits(shared, user=ALICE)[("vram_bytes", "defaults", None)] == (2 * GIB, 3 * GIB)


@needs_root
def test_each_member_has_a_quota_beside_the_sum_of_the_group(shared):
    carve_json(shared, "quota", "set", "--group", str(STUDENTS), "--each", "--vram", "4")
    carve_json(shared, "quota", "set", "--group", str(STUDENTS), "--vram", "6")
    carve_json(shared, "quota", "set", "--group", str(GUESTS), "--each", "--vram", "2", "--sessions", "1")
    assert ask(shared, "4", user=ALICE, groups=[STUDENTS]).returncode == 0
    refused = ask(shared, "3", user=BOB, groups=[STUDENTS])
    assert "for all its members together: 4 GiB are held, 3 GiB more were asked" in refused.stderr
    assert ask(shared, "2", user=BOB, groups=[STUDENTS]).returncode == 0
    # Who is in two groups has the larger quota of each member.
    rows = limits(shared, user=BOB, groups=[STUDENTS, GUESTS])
    assert rows[("vram_bytes", "each", str(STUDENTS))] == (4 * GIB, 2 * GIB)
    assert rows[("sessions", "each", str(GUESTS))] == (1, 1)
    assert rows[("vram_bytes", "group", str(STUDENTS))] == (6 * GIB, 6 * GIB)
    shown = carve(shared, "quota", "list").stdout
    assert "group (together)" in shown and "group (each)" in shown
    assert "all members together" in carve(shared, "limits", user=BOB, groups=[STUDENTS]).stdout
    carve_json(shared, "quota", "remove", "--group", str(STUDENTS))
    kinds = [(q["kind"], q["id"]) for q in carve_json(shared, "quota", "list")]
    assert kinds == [("each", STUDENTS), ("each", GUESTS)]
    shared.kill()
    shared.start()
    assert [(q["kind"], q["id"]) for q in carve_json(shared, "quota", "list")] == kinds
    assert limits(shared, user=BOB, groups=[STUDENTS])[("vram_bytes", "each", str(STUDENTS))] == (4 * GIB, 2 * GIB)


@needs_root
def test_root_sees_the_limits_of_any_user_and_a_user_only_its_own(shared):
    carve_json(shared, "quota", "set", "--group", str(STUDENTS), "--each", "--vram", "4")
    assert ask(shared, "1", user=ALICE, groups=[STUDENTS]).returncode == 0
    # The session tells in which groups its user is.
    assert limits(shared, "--user", str(ALICE))[("vram_bytes", "each", str(STUDENTS))] == (4 * GIB, GIB)
    assert limits(shared, "--user", str(BOB))[("vram_bytes", None, None)] == (None, 0)
    refused = carve(shared, "limits", "--user", str(ALICE), user=BOB)
    assert refused.returncode == 5 and "only root and members of group carve" in refused.stderr
    assert limits(shared, "--user", str(BOB), user=BOB)
    unknown = carve(shared, "limits", "--user", "no-such-user")
    assert unknown.returncode == 2 and "there is no user 'no-such-user'" in unknown.stderr


@needs_admin
@pytest.mark.parametrize("option", ["--vram", "--sessions", "--gpus", "--gpu-hours"])
def test_a_quota_of_nothing_bars(daemon, option):
    carve_json(daemon, "quota", "set", str(ME), option, "0")
    refused = ask(daemon, "1")
    assert refused.returncode == 5 and "your quota is 0 " in refused.stderr
    waited = carve(daemon, "session", "request", "--vram", "1", "--wait-for", "600")
    assert waited.returncode == 5 and "your quota is 0 " in waited.stderr
    carve_json(daemon, "quota", "set", str(ME), option, "none")
    assert ask(daemon, "1").returncode == 0


@needs_admin
def test_waiting_for_hours_that_are_used_up_ends_with_what_helps(daemon):
    session = daemon.grant(gpu="1", ephemeral=False)["id"]
    time.sleep(1)
    daemon.release(session, force=True)
    carve_json(daemon, "quota", "set", str(ME), "--gpu-hours", "0.0001")
    refused = carve(daemon, "session", "request", "--vram", "1", "--wait-for", "0.2s")
    assert refused.returncode == 5 and "it is used up" in refused.stderr, refused
    assert "can raise the quota" in refused.stderr and "ask for less" not in refused.stderr


@needs_admin
def test_defaults_bind_at_once_after_a_reload_and_let_waiting_requests_through(make_daemon, tmp_path):
    config = tmp_path / "carved.json"
    config.write_text('{"defaults": {"vram": "2GiB"}}')
    daemon = make_daemon(args=["--config", config])
    first = daemon.grant(vram="2")
    asker = Asker(daemon, vram="2", wait_for=600)
    wait_until(lambda: waiting(daemon))
    config.write_text('{"defaults": {"vram": "4GiB"}}')
    daemon.reload()
    asker.join(60)
    assert asker.answer.status == 201
    assert daemon.call("PATCH", f"/v1/sessions/{first['id']}", {"vram": "3"}).status == 403
    assert [q["kind"] for q in daemon.call("GET", "/v1/quotas").json] == ["defaults"]
    assert "defaults (each)" in carve(daemon, "quota", "list").stdout


@needs_admin
@pytest.mark.parametrize("text, words", [
    ('{"defaults": {"vrma": "2GiB"}}', "unknown key 'defaults.vrma'; did you mean 'defaults.vram'?"),
    ('{"defaults": {"memory": "2GiB"}}', "unknown key 'defaults.memory'; there are vram, vram_bytes, sessions, gpus, gpu_hours"),
    ('{"defaults": {"gpu_hours": "many"}}', "defaults.gpu_hours takes a number of GPU-hours in a month such as 100"),
    ('{"defaults": {"gpu_hours": -1}}', "defaults.gpu_hours takes a number of GPU-hours"),
    ('{"defaults": {"vram": 16}}', "defaults.vram takes a size such as \"16GiB\""),
    ('{"defaults": {"vram": "much"}}', "defaults.vram takes a size such as \"16GiB\""),
    ('{"defaults": {"sessions": "2"}}', "defaults.sessions takes a whole number, or \"unlimited\""),
    ('{"defaults": {"sessions": -1}}', "defaults.sessions takes a whole number"),
    ('{"defaults": 3}', "defaults takes an object such as {\"vram\": \"16GiB\""),
])
def test_a_wrong_policy_is_refused_with_its_key_and_the_last_good_one_holds(make_daemon, tmp_path, text, words):
    config = tmp_path / "carved.json"
    config.write_text('{"defaults": {"vram": "2GiB", "sessions": "unlimited", "gpus": 1}}')
    daemon = make_daemon(args=["--config", config])
    config.write_text(text)
    done = run([BUILD / "carved", "--config", config, "--check-config"], env=clean_env())
    assert done.returncode == 2 and words in done.stderr, done.stderr
    daemon.reload()
    wait_until(lambda: "config.refused" in daemon.log())
    assert limits(daemon)[("vram_bytes", "defaults", None)] == (2 * GIB, 0)
    assert daemon.request(vram="3").status == 403


@needs_admin
@pytest.mark.parametrize("argv, words", [
    (["set", "--each", "--vram", "1"], "--each is given without --group"),
    (["set", "root", "--everyone", "--vram", "1"], "a user and --everyone are both given"),
    (["set", "--group", "root", "--everyone", "--vram", "1"], "--group and --everyone are both given"),
    (["set", "--everyone"], "no limit is given"),
    (["set", "--everyone", "--vram", "1MiB"], "--vram"),
    (["set", "--everyone", "--sessions", "many"], "--sessions"),
    (["set", "--everyone", "--gpu-hours", "1h"], "--gpu-hours: '1h' is no number of hours"),
    (["set", "--vram", "1"], "name a user, or --group GROUP, or --everyone"),
])
def test_senseless_quotas_of_many_are_refused_in_words(daemon, argv, words):
    done = carve(daemon, "quota", *argv)
    assert done.returncode == 2 and words in done.stderr and done.stdout == ""


@needs_root
def test_only_administrators_set_the_quotas_of_others(shared):
    carve_json(shared, "quota", "set", "--everyone", "--sessions", "3")
    for argv in (["--everyone"], ["--group", str(STUDENTS), "--each"]):
        refused = carve(shared, "quota", "set", *argv, "--sessions", "9", user=ALICE, groups=[STUDENTS])
        assert refused.returncode == 5 and "set by root" in refused.stderr
    assert [q["kind"] for q in carve_json(shared, "quota", "list", user=ALICE)] == ["everyone"]
    assert "3" in carve(shared, "quota", "show", user=ALICE).stdout
    assert carve_json(shared, "quota", "show", "--everyone", user=ALICE)["sessions"] == 3


# ---- GPU-hours ------------------------------------------------------------------------------

# Of a whole GPU: 1.8 s.
SOON = "0.0005"


def next_month():
    return (datetime.now(timezone.utc).replace(day=1) + timedelta(days=32)).strftime("%Y-%m-01")


def hours(daemon, from_, **who):
    return next((value, used) for (limit, from_here, _), (value, used) in limits(daemon, **who).items()
                if limit == "gpu_hours" and from_here == from_)


def used_up(daemon, from_, **who):
    value, used = hours(daemon, from_, **who)
    return used >= value


@needs_admin
def test_once_the_hours_of_a_month_are_used_up_nothing_is_granted_and_what_is_held_stays(make_daemon):
    daemon = make_daemon()
    assert carve_json(daemon, "quota", "set", str(ME), "--gpu-hours", SOON)["gpu_hours"] == float(SOON)
    held = daemon.grant(vram="40")
    wait_until(lambda: used_up(daemon, "user"))
    # Half a GPU is held: one second counts half a second.
    refused = ask(daemon, "1")
    assert refused.returncode == 5 and len(refused.stderr.splitlines()) == 1, refused.stderr
    assert f"your quota is {SOON} GPU-hours in a month, and it is used up (" in refused.stderr
    assert f"the month starts anew on {next_month()} (UTC)" in refused.stderr
    assert daemon.show(held["id"])["state"] == "active"
    grown = daemon.call("PATCH", f"/v1/sessions/{held['id']}", {"vram": "41"})
    assert grown.status == 403 and "used up" in grown.error["message"]
    assert daemon.call("PATCH", f"/v1/sessions/{held['id']}", {"vram": "1"}).status == 200
    assert used_up(daemon, "user")  # the time before counts by the size before
    # People read hundredths; a limit is shown as it was set.
    row, = [line.split() for line in carve(daemon, "limits").stdout.splitlines() if line.startswith("GPU-hours")]
    assert row[3:5] == [SOON, "0.00"]
    assert f"0.00 of {SOON}" in carve(daemon, "quota", "show").stdout
    daemon.release(held["id"])
    assert ask(daemon, "1").returncode == 5
    daemon.stop()  # one that is killed loses a minute
    daemon.start()
    assert "used up" in ask(daemon, "1").stderr
    row, = [r for r in carve_json(daemon, "limits")["limits"] if r["limit"] == "gpu_hours"]
    assert row["unit"] == "gpu_hours" and row["renews"].startswith(next_month()) and row["used"] >= float(SOON)
    asker = Asker(daemon, vram="1", wait_for=600)
    waits = wait_until(lambda: waiting(daemon))
    assert "used up" in daemon.call("GET", f"/v1/explain/{waits[0]['id']}").json["message"]
    carve_json(daemon, "quota", "set", str(ME), "--gpu-hours", "100")
    asker.join(60)
    assert asker.answer.status == 201


@needs_admin
def test_a_small_limit_of_hours_has_no_exponent(daemon):
    set_to = carve(daemon, "quota", "set", "--everyone", "--gpu-hours", "0.000001", "--json").stdout
    assert '"gpu_hours": 0.0001' in set_to
    daemon.grant(vram="40")
    for argv in (("limits",), ("limits", "--json"), ("quota", "list"), ("quota", "list", "--json"), ("quota", "show", "--json"), ("audit",)):
        shown = carve(daemon, *argv).stdout
        assert shown and "e-0" not in shown, shown
    assert carve_json(daemon, "quota", "set", "--everyone", "--gpu-hours", "1000000")["gpu_hours"] == 1000000
    assert "1000000" in carve(daemon, "limits").stdout


@needs_root
def test_hours_of_a_group_are_the_sum_of_members_whom_the_kernel_knows(shared):
    carve_json(shared, "quota", "set", "--group", str(STUDENTS), "--gpu-hours", SOON)
    carve_json(shared, "quota", "set", "--group", str(GUESTS), "--each", "--gpu-hours", SOON)
    assert ask(shared, "40", user=ALICE, groups=[STUDENTS, GUESTS]).returncode == 0
    wait_until(lambda: used_up(shared, "group", user=ALICE, groups=[STUDENTS]))
    carve(shared, "session", "release", user=ALICE)
    # Alice is in the group by her process alone, and has no session any more.
    refused = ask(shared, "1", user=BOB, groups=[STUDENTS])
    assert f"your group {STUDENTS}'s quota is {SOON} GPU-hours in a month for all its members together" in refused.stderr
    assert ask(shared, "1", user=BOB, groups=[GUESTS]).returncode == 0
    refused = ask(shared, "1", user=ALICE, groups=[GUESTS])
    assert f"your group {GUESTS}'s quota is {SOON} GPU-hours in a month for each member" in refused.stderr
    assert ask(shared, "1", user=ALICE).returncode == 0


@needs_admin
def test_hours_of_which_a_tenth_is_left_are_told_once_a_month(daemon):
    def near():
        events = daemon.call("GET", "/v1/events?from=0").json["events"]
        return [(e["subject"], e["after"]) for e in events if e["kind"] == "quota.near"]

    carve_json(daemon, "quota", "set", str(ME), "--gpu-hours", SOON)
    daemon.grant(vram="40")
    wait_until(near)
    wait_until(lambda: used_up(daemon, "user"))
    (subject, after), = near()
    assert subject == f"user {pwd.getpwuid(ME).pw_name}" and after.endswith(f" of {SOON} GPU-hours in this month")
    assert float(after.split()[0]) >= 0.9 * float(SOON)
