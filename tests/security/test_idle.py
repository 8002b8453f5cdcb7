"""idle_timeout and the longest times: nobody's work is ended by what others do, and nobody gets round them by asking."""
import json
import pathlib
import sys
import tempfile

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, MALLORY, ROOT

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "system"))
from programs import python  # noqa: E402

ASK = """
sys.path.insert(0, LAB["tests"])
from unix_http import UnixConnection
for method, path, body in json.loads(sys.argv[1]):
    connection = UnixConnection(LAB["http"])
    connection.request(method, path, json.dumps(body))
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode()]))
"""


@pytest.fixture
def lab_with(make_lab):
    with tempfile.TemporaryDirectory(prefix="carve-open-") as path:
        config = pathlib.Path(path) / "carved.json"
        pathlib.Path(path).chmod(0o755)

        def make(**keys):
            config.write_text(json.dumps(keys))
            return make_lab("h100-80gb", args=["--config", str(config)])

        yield make


def ask(lab, uid, *calls):
    done = lab.python(uid, ASK, json.dumps(calls))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.attack("2", "an idle user, in whose place a user who computes would be released")
def test_a_user_who_computes_stays_while_an_idle_one_is_released(lab_with):
    lab = lab_with(idle_timeout=8, idle_warning=4)
    works = lab.popen(ALICE, CARVE, "run", "--vram", "4", "--", *python("busy"))
    alices = wait_until(lambda: [s for s in lab.carve_json(ALICE, "session", "list") if s.get("pids")])[0]["id"]
    idle = lab.carve_json(MALLORY, "session", "request", "--vram", "4")["id"]
    wait_until(lambda: lab.carve_json(MALLORY, "session", "show", idle)["state"] == "ended")
    assert lab.carve_json(MALLORY, "session", "show", idle)["reason"] == "it used no GPU time for 8s (idle_timeout)"
    shown = lab.carve_json(ALICE, "session", "show", alices)
    assert shown["state"] == "active" and shown["idle_since"] is None and not shown["idle_warned"]
    # The warning of one user is no other user's to read.
    (status, mine), (_, others) = ask(lab, MALLORY, ("GET", "/v1/events?from=0", None)) + ask(lab, BOB, ("GET", "/v1/events?from=0", None))
    assert status == 200 and idle in mine and idle not in others
    assert lab.carve(ALICE, "session", "release", alices, "--force").returncode == 0
    works.wait(60)


@pytest.mark.attack("5", "a user who asks for more time than the administrator allows, in all ways that there are")
def test_no_way_of_asking_gives_a_user_more_time(lab_with):
    lab = lab_with(session_timeout_max="1h", idle_timeout="1h")
    size = {"vram": "1"}
    refused = ask(lab, MALLORY, ("POST", "/v1/sessions", {**size, "session_timeout": 3601}),
                  ("POST", "/v1/sessions", {**size, "session_timeout": "30d", "ephemeral": True, "wait_for": 5}),
                  ("POST", "/v1/sessions", {**size, "kept": True}))
    assert [status for status, _ in refused] == [403] * 3, refused
    for body in ({"session_timeout": None}, {"name": "more"}, {"ephemeral": True}):
        (status, text), = ask(lab, MALLORY, ("POST", "/v1/sessions", {**size, **body}))
        assert status == 201 and json.loads(text)["ends_at"] and json.loads(text)["idle_timeout_ns"] == 3600 * 10**9
    assert lab.carve(ROOT, "session", "list").returncode == 0
