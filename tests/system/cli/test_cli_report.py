"""carve report against a daemon on a driver of this file's own."""
import csv
import datetime
import io
import json
import os
import pwd
import sqlite3
import time

import pytest

from conftest import BUILD, needs_admin, run, wait_until
from daemon_client import GIB
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures
from programs import python

CARVE = BUILD / "carve"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
ME = pwd.getpwuid(os.geteuid()).pw_name
HOUR_NS = 3600 * 10**9


def carve(daemon, *argv, prefix=()):
    return run([*prefix, CARVE, *argv, "--host", daemon.runtime / "carved.sock"])


def report(daemon, *argv, prefix=()):
    done = carve(daemon, "report", *argv, "--json", prefix=prefix)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def today():
    return datetime.datetime.now(datetime.timezone.utc).date()


def fails(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_living_session_is_in_the_report_at_once(daemon):
    daemon.grant(vram="20", name="train")
    time.sleep(1.2)
    found = report(daemon)
    row, = found["rows"]
    assert (row["user"], row["uid"], row["sessions"], row["jobs"]) == (ME, os.geteuid(), 1, 0)
    assert 10**9 < row["held_ns"] < 120 * 10**9
    assert abs(row["gpu_ns"] / row["held_ns"] - 20 / 80) < 0.001
    assert row["asked_bytes"] == 20 * GIB
    assert " 20Gi " in carve(daemon, "report").stdout
    assert row["peak_bytes"] == 0 and row["peak_most_bytes"] == 0
    assert found["total"]["held_ns"] == row["held_ns"] and found["left_out"] == 0
    assert found["history_since"] == found["until"] == today().isoformat()
    again, = report(daemon)["rows"]
    assert again["held_ns"] > row["held_ns"] and again["sessions"] == 1


def test_rows_are_of_users_groups_gpus_and_names(make_daemon):
    daemon = make_daemon(gpus=((80 * GIB, 0, 0, "Fake H100"), (40 * GIB, 0, 0, "Fake A100")))
    daemon.release(daemon.grant(vram="20", name="train", gpu_ids="0")["id"])
    daemon.release(daemon.grant(vram="20", name="tune", gpu_ids="1")["id"])
    daemon.release(daemon.grant(vram="20", gpu_ids="1")["id"])
    gpus = {row["gpu"]["index"]: row for row in report(daemon, "--by", "gpu")["rows"]}
    assert (gpus[0]["sessions"], gpus[1]["sessions"], gpus[1]["gpu"]["name"]) == (1, 2, "Fake A100")
    names = {row["name"]: row["sessions"] for row in report(daemon, "--by", "name")["rows"]}
    assert names == {"train": 1, "tune": 1, "": 1}
    group, = report(daemon, "--by", "group")["rows"]
    assert (group["gid"], group["sessions"]) == (os.getegid(), 3)
    assert report(daemon, "--by", "gpu")["total"]["sessions"] == 3
    text = carve(daemon, "report", "--by", "name").stdout
    assert "(none)" in text and "SLICE-HOURS" in text


def test_waits_and_refusals_are_counted(daemon):
    held = daemon.grant(vram="79", name="a")
    asker = Asker(daemon, vram="20", wait_for="60", name="b")
    wait_until(lambda: waiting(daemon))
    time.sleep(1)
    assert daemon.request(vram="20", name="c").status != 201
    daemon.release(held["id"])
    asker.join()
    assert asker.answer.status in (200, 201)
    row, = report(daemon)["rows"]
    assert (row["refusals"], row["waits"], row["sessions"]) == (1, 1, 2)
    assert 10**9 <= row["wait_ns"] < 120 * 10**9


def test_csv_opens_in_a_spreadsheet_and_is_no_formula(daemon):
    daemon.release(daemon.grant(vram="20", name="plain")["id"])
    done = carve(daemon, "report", "--by", "name", "--csv")
    assert done.stdout.count("\r\n") == 2 or "\n" in done.stdout
    rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    assert rows[0]["name"] == "plain" and rows[0]["user"] == ME
    assert float(rows[0]["gpu_hours"]) >= 0 and rows[0]["used_hours"] in ("", "0.000000")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_others_see_their_own_only(make_daemon):
    daemon = make_daemon(args=["--system"])
    daemon.dir.chmod(0o755)
    daemon.release(daemon.grant(vram="20", name="secret")["id"])
    for by in ("user", "group", "gpu", "name"):
        assert report(daemon, "--by", by, prefix=NOBODY)["rows"] == []
    fails(run([*NOBODY, "curl", "--silent", "--fail", "--unix-socket", daemon.runtime / "carved.sock",
               "http://localhost/v1/report?uid=0"]), 22)
    assert daemon.call("GET", "/v1/report?uid=0").json["rows"][0]["sessions"] == 1
    assert daemon.call("GET", "/v1/report?uid=65534").json["rows"] == []


def test_a_killed_daemon_counts_nothing_twice(daemon):
    daemon.grant(vram="20", name="a")
    begin = time.monotonic()
    time.sleep(1)
    before = report(daemon)["rows"][0]["held_ns"]
    daemon.kill()
    time.sleep(2)
    daemon.start()
    after, = report(daemon)["rows"]
    passed = (time.monotonic() - begin) * 1e9
    # The time without a daemon counts, too: the slice was held.
    assert before + 2 * 10**9 <= after["held_ns"] <= passed + 2 * 10**9
    assert after["sessions"] == 1


def test_a_period_without_history_is_told(daemon):
    daemon.grant(vram="20")
    old = (today() - datetime.timedelta(days=400)).isoformat()
    done = carve(daemon, "report", "--since", old)
    assert done.returncode == 0 and ME in done.stdout
    assert f"the history begins on {today().isoformat()}" in done.stderr
    until = (today() - datetime.timedelta(days=300)).isoformat()
    fails(carve(daemon, "report", "--since", old, "--until", until), 1, "there is no history from", "it begins on",
          f"--since {today().isoformat()}")


@pytest.mark.parametrize("argv, word", [
    (("--since", "soon"), "neither a time"), (("--since", "30"), "for example: --since 30d"),
    (("--since", "2026-02-30"), "a day of UTC"), (("--until", "1h", "--since", "1d"), ""),
    (("--by", "colour"), "user, group, gpu and name"), (("--csv", "--json"), "leave one of them out"),
    (("--since", "2026-03-02", "--until", "2026-03-01"), "after the last"),
    (("--since", "2030-01-01"), "since: 2030-01-01 is after the last day of the period, ")])
def test_wrong_input_is_refused_in_one_line(daemon, argv, word):
    done = carve(daemon, "report", *argv)
    if not word:
        assert done.returncode == 0, done.stderr
        return
    fails(done, 2, word)


def test_nothing_was_held(daemon):
    done = carve(daemon, "report")
    assert done.returncode == 0 and "nothing was held or asked for" in done.stdout


def test_a_report_of_a_full_year_is_fast_and_small(daemon):
    """30 users, 8 GPUs and 366 days; the file is as large as docs/admin/monitoring.md says."""
    daemon.stop()
    path = daemon.runtime / "carve.db"
    day = (today() - datetime.date(1970, 1, 1)).days
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO tally VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                       [(day - d, 1000 + u, 1000 + u, f"GPU-{g:08d}-0000-0000-0000-000000000000", *[HOUR_NS] * 4, *[10**10] * 3, 3, 3, 0, 1, 2, HOUR_NS)
                        for d in range(366) for u in range(30) for g in range(8)])
        db.executemany("INSERT INTO tally_name VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                       [(day - d, 1000 + u, f"train-{n}", *[HOUR_NS] * 4, *[10**10] * 3, 3, 3, 0, 1, 2, HOUR_NS)
                        for d in range(366) for u in range(30) for n in range(4)])
        db.execute("INSERT OR REPLACE INTO tally_state VALUES(1, 0, 0, ?, '')", (day - 365,))
    size = path.stat().st_size
    daemon.start()
    begin = time.monotonic()
    found = report(daemon, "--since", "365d")
    passed = time.monotonic() - begin
    assert len(found["rows"]) == 30
    assert found["rows"][0]["gpu_ns"] == 366 * 8 * HOUR_NS
    print(f"{size >> 20} MiB, {passed:.2f} s")
    assert size < 24 << 20


def test_use_is_told_where_time_is_not_sliced(host):
    """Each second in which the driver saw a session work counts; a session without a process works on nothing."""
    assert host.carve("session", "request", "--vram", "1", "--name", "idle").returncode == 0
    done = host.carve("run", "--vram", "1", "--name", "busy", "--", "timeout", "8", *python("busy"))
    assert done.returncode == 124, done.stderr
    rows = {row["name"]: row for row in host.carve_json("report", "--by", "name")["rows"]}
    assert rows["idle"]["measured_ns"] > 0 and rows["idle"]["used_ns"] == 0
    assert rows["busy"]["used_ns"] > 10**9
    assert rows["busy"]["used_ns"] <= rows["busy"]["measured_ns"] <= rows["busy"]["held_ns"]
