"""Who sees what of the event log, and what users can do to it."""
import json
import time

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, MALLORY, ROOT
from .test_jobs import Jobs, jobs  # noqa: F401: a fixture


def audit(lab, uid, *options):
    done = lab.run(uid, CARVE, "audit", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.attack("1", "the session of another user, released by root, in the audit of its owner and of others")
def test_a_forced_release_is_shown_to_its_owner_and_administrators_alone(lab):
    for options in ((), ("--force",)):
        done = lab.run(ALICE, CARVE, "session", "request", "--vram", "1", "--json")
        assert done.returncode == 0, done.stderr
        id = json.loads(done.stdout)["id"]
        assert lab.run(ROOT, CARVE, "session", "release", id, *options).returncode == 0
    (first, _), mine = audit(lab, ROOT, "--kind", "session.released"), audit(lab, ALICE, "--kind", "session.released")
    assert first["user"] == "root" and first["process"] == "carve" and first["pid"] and first["before"] == "1 GiB on 1 GPU"
    assert first["after"] == "released" and first["subject"].startswith("session s-")
    assert len(mine) == 2 and mine[0]["number"] == first["number"] and mine[0]["user"] == "root"
    assert mine[0]["pid"] is None and mine[0]["process"] is None and mine[0]["parents"] is None and mine[0]["login"] is None
    assert audit(lab, BOB, "--kind", "session.released") == []


@pytest.mark.attack("1", "a session and a job of another user, changed by root")
def test_actions_of_root_on_a_users_session_and_job_are_shown_to_that_user(lab, jobs):
    id = json.loads(lab.run(ALICE, CARVE, "session", "request", "--vram", "1", "--json").stdout)["id"]
    assert lab.run(ROOT, CARVE, "session", "resize", id, "2").returncode == 0
    assert lab.run(ALICE, CARVE, "session", "resize", id, "3").returncode == 0
    job = jobs.enqueue(ALICE, "sleep", "1000")
    assert lab.run(ROOT, CARVE, "job", "cancel", str(job)).returncode == 0
    for uid in (ROOT, ALICE):
        changes = [(c["kind"], c["subject"], c["before"], c["after"], c["owner"]) for c in audit(lab, uid, "--user", str(ALICE))]
        assert changes == [("session.resized", f"session {id}", "1 GiB on 1 GPU", "2 GiB on 1 GPU", str(ALICE)),
                           ("job.changed", f"job {job}", None, "cancelled", str(ALICE))], changes
    assert [c for c in audit(lab, BOB) if c["owner"]] == []


@pytest.mark.attack("1", "releases of a user's own sessions, which are no matter for the audit")
def test_a_users_own_release_is_no_event(lab):
    lab.run(ALICE, CARVE, "session", "request", "--vram", "1")
    id = json.loads(lab.run(ALICE, CARVE, "session", "list", "--json").stdout)[0]["id"]
    assert lab.run(ALICE, CARVE, "session", "release", id).returncode == 0
    assert audit(lab, ROOT, "--kind", "session.released") == []


@pytest.mark.attack("1", "filters that name another user")
def test_nobody_asks_for_another_users_events(lab):
    done = lab.run(MALLORY, CARVE, "audit", "--user", str(ALICE))
    assert done.returncode == 5 and "only root and members of group carve" in done.stderr, done.stderr


@pytest.mark.attack("9", "many readers of one user who wait, and numbers that no event has")
def test_waiting_readers_of_one_user_hold_up_nobody(lab):
    readers = [lab.popen(MALLORY, CARVE, "events", "--json") for _ in range(20)]
    began = time.monotonic()
    for number in range(5):
        assert lab.run(ROOT, CARVE, "quota", "set", str(BOB), "--vram", str(number + 1)).returncode == 0
    assert time.monotonic() - began < 20
    for reader in readers:
        reader.kill()
        reader.wait()
    done = lab.run(MALLORY, CARVE, "events", "--from", str((1 << 53) - 1))
    assert done.returncode == 2 and "the next event has number" in done.stderr
    wait_until(lab.serves_still)


@pytest.mark.attack("1", "users who set the notice, take it back, and say that others have seen it")
def test_a_user_says_of_nobody_else_that_the_notice_was_shown(lab):
    for options in (("free GPUs",), ("--clear",)):
        done = lab.run(MALLORY, CARVE, "notice", *options)
        assert done.returncode == 5 and "the notice is set by root" in done.stderr, done.stderr
    assert lab.run(ROOT, CARVE, "notice", "read this").returncode == 0
    script = ("import http.client, json, os, socket, sys\n"
              "def call(method, body):\n"
              "    c = http.client.HTTPConnection('x'); c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(os.environ['CARVE_HOST'])\n"
              "    c.request(method, '/v1/notice', json.dumps(body) if body else None); return json.loads(c.getresponse().read())\n"
              "number = call('GET', None)['number']\n"
              f"for body in ({{'seen': number, 'uid': {ALICE}}}, {{'seen': number}}, {{'seen': number}}): answer = call('POST', body)\n"
              "print(json.dumps(answer))\n")
    assert json.loads(lab.run(MALLORY, "/usr/bin/python3", "-c", script).stdout)["due"] is False
    assert json.loads(lab.run(ALICE, CARVE, "notice", "--json").stdout)["due"] is True
