"""Sessions that use no GPU time (idle_timeout), by what a driver says of the processes in them."""
import datetime
import json
import os
import re
import subprocess
import time

import pytest

from conftest import BUILD, clean_env, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from test_daemon_times import daemon_with  # noqa: F401: a fixture

# Longer than any test, with a warning that comes at once.
LONG = {"idle_timeout": "1h", "idle_warning": "3599s"}
REASON = "it used no GPU time for {} (idle_timeout)"


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Member:
    """This process, attached to a session of its own, and what the driver says of it."""

    def __init__(self, daemon, held=GIB, **size):
        self.daemon = daemon
        self.id = daemon.grant(**(size or {"vram": "4"}))["id"]
        self.connection = Attached(daemon)
        status, self.slot, message = self.connection.ask(WORKLOAD, self.id)
        assert status == OK, message
        if held:
            Ledger(self.connection.fds[1]).charge(self.slot, held)
            daemon.processes.append((0, os.getpid(), held))
        self.works(0)

    def works(self, percent):
        self.daemon.use = [(0, os.getpid(), percent)] if percent else []
        self.daemon.write_state()

    def show(self):
        return self.daemon.show(self.id)


@pytest.fixture
def member_of():
    """Makes members; they let go at the end."""
    members = []

    def make(daemon, **kw):
        members.append(Member(daemon, **kw))
        return members[-1]
    yield make
    for m in members:
        m.connection.close()


# ---- what idle is ----

def test_a_session_that_nobody_uses_is_idle_since_its_beginning(daemon):
    session = daemon.grant(vram="1")
    wait_until(lambda: daemon.show(session["id"])["idle_since"])
    shown = daemon.show(session["id"])
    assert abs(moment(shown["idle_since"]) - moment(session["created"])) < 1
    assert shown["idle_release_at"] is None and not shown["idle_warned"] and shown["idle_unknown"] is None
    assert shown["idle_timeout_ns"] is None and shown["idle_warning_ns"] is None


def test_a_process_that_works_is_not_idle_and_is_once_it_rests(daemon, member_of):
    member = member_of(daemon)
    wait_until(lambda: member.show()["idle_since"])
    member.works(1)
    wait_until(lambda: not member.show()["idle_since"])
    time.sleep(2.5)
    assert member.show()["idle_since"] is None
    rested = time.time()
    member.works(0)
    wait_until(lambda: member.show()["idle_since"])
    assert moment(member.show()["idle_since"]) > rested - 2.5


def test_memory_that_is_held_is_no_use(daemon, member_of):
    member = member_of(daemon, held=2 * GIB)
    wait_until(lambda: member.show()["idle_since"])
    assert member.show()["gpus"][0]["used_bytes"] == 2 * GIB


@pytest.mark.parametrize("silent, why", [
    ("use", "the driver does not tell which process uses GPU time"),
    ("processes", "the driver does not list its processes"),
    ("all", "the driver does not answer")])
def test_where_the_driver_does_not_tell_nobody_is_idle(daemon_with, member_of, silent, why):
    daemon = daemon_with(idle_timeout=2)
    member = member_of(daemon)
    daemon.use_untold, daemon.failing = silent == "use", silent == "all"
    daemon.processes = [] if silent == "processes" else daemon.processes
    daemon.write_state()
    wait_until(lambda: member.show()["idle_unknown"] == why)
    time.sleep(4)
    shown = member.show()
    assert shown["state"] == "active" and shown["idle_since"] is None and shown["idle_release_at"] is None


def test_work_that_the_driver_gives_to_no_process_may_be_the_sessions(daemon, member_of):
    member = member_of(daemon)
    wait_until(lambda: member.show()["idle_since"])
    daemon.busy = [(0, 3)]
    daemon.write_state()
    wait_until(lambda: not member.show()["idle_since"])
    daemon.use = [(0, 1, 3)]  # it was another process
    daemon.write_state()
    wait_until(lambda: member.show()["idle_since"])


# ---- the policy ----

def test_an_idle_session_is_warned_and_then_released(daemon_with):
    daemon = daemon_with(idle_timeout=4, idle_warning=2)
    began = time.monotonic()
    session = daemon.grant(vram="1")
    wait_until(lambda: daemon.show(session["id"])["idle_warned"])
    warned = time.monotonic()
    shown = daemon.show(session["id"])
    assert shown["state"] == "active" and warned - began >= 1.5
    assert moment(shown["idle_release_at"]) - moment(shown["idle_since"]) >= 4
    assert (shown["idle_timeout_ns"], shown["idle_warning_ns"]) == (4 * 10**9, 2 * 10**9)
    wait_until(lambda: daemon.show(session["id"])["state"] == "ended")
    assert time.monotonic() - began >= 3.9
    shown = daemon.show(session["id"])
    assert shown["reason"] in (REASON.format("4s"), REASON.format("5s"))
    assert shown["idle_since"] is None and not shown["idle_warned"]
    assert daemon.gpu()["available_bytes"] == 80 * GIB
    events = [e for e in daemon.call("GET", "/v1/events?from=0").json["events"] if e["subject"] == f"session {session['id']}"]
    assert [e["kind"] for e in events] == ["session.idle_warned", "session.idle_released"]
    # A busy machine looks a second later.
    assert re.match("no GPU time for [23]s, released in [12]s", events[0]["text"]) and re.match("no GPU time for [45]s", events[1]["text"]), events


def test_work_withdraws_a_warning(daemon_with, member_of):
    daemon = daemon_with(**LONG)
    member = member_of(daemon)
    wait_until(lambda: member.show()["idle_warned"])
    member.works(50)
    wait_until(lambda: not member.show()["idle_warned"])
    assert member.show()["idle_release_at"] is None and "session.idle_withdrawn" in daemon.log()
    member.works(0)
    wait_until(lambda: member.show()["idle_warned"])


def test_a_process_of_a_released_session_is_ended_as_by_a_time_out(daemon_with):
    daemon = daemon_with(idle_timeout=2, idle_warning=1)
    session = daemon.grant(vram="1")["id"]
    child = subprocess.Popen(["/usr/bin/python3", "-S", "-c",
                              f"import sys; sys.path.insert(0, {os.path.dirname(__file__) + '/..'!r})\n"
                              "from attach_client import *\nimport time\n"
                              f"class D: runtime = __import__('pathlib').Path({str(daemon.runtime)!r})\n"
                              f"print(Attached(D).ask(WORKLOAD, {session!r})[0], flush=True)\ntime.sleep(1000)"],
                             stdout=subprocess.PIPE, env=clean_env(), text=True)
    assert child.stdout.readline() == "0\n"
    assert child.wait(60) == -15
    wait_until(lambda: daemon.show(session)["state"] == "ended")
    assert daemon.show(session)["reason"] == REASON.format("2s")


def test_a_stricter_policy_warns_first(daemon_with):
    daemon = daemon_with()
    session = daemon.grant(vram="1")["id"]
    time.sleep(3)
    daemon.set(idle_timeout=2, idle_warning=1.9)
    wait_until(lambda: daemon.show(session)["idle_warned"])
    warned = time.monotonic()
    wait_until(lambda: daemon.show(session)["state"] == "ended")
    assert time.monotonic() - warned > 0.8


def test_a_policy_that_is_switched_off_releases_nobody(daemon_with):
    daemon = daemon_with(**LONG)
    session = daemon.grant(vram="1")["id"]
    wait_until(lambda: daemon.show(session)["idle_warned"])
    daemon.set()
    wait_until(lambda: not daemon.show(session)["idle_warned"])
    assert daemon.show(session)["idle_since"] and daemon.show(session)["idle_release_at"] is None


def test_a_restart_begins_the_idle_time_anew(daemon_with):
    daemon = daemon_with(idle_timeout=5, idle_warning=1)
    session = daemon.grant(vram="1")["id"]
    wait_until(lambda: daemon.show(session)["idle_since"])
    before = moment(daemon.show(session)["idle_since"])
    time.sleep(2)
    daemon.restart()
    wait_until(lambda: daemon.show(session)["idle_since"])
    assert moment(daemon.show(session)["idle_since"]) > before + 1.9, "late, and never early"
    wait_until(lambda: daemon.show(session)["state"] == "ended")


@pytest.mark.parametrize("names", [{"users": ["root"]}, {"users": ["nobody", 0]}, {"groups": ["root"]}, {"users": ["nobody"], "groups": [0]}])
def test_exempt_users_and_groups_are_spared(daemon_with, names):
    if os.geteuid() != 0:
        pytest.skip("needs to be root")
    daemon = daemon_with(**LONG, idle_exempt=names)
    session = daemon.grant(vram="1")["id"]
    time.sleep(2.5)
    shown = daemon.show(session)
    assert shown["idle_since"] and not shown["idle_warned"] and shown["idle_release_at"] is None and shown["idle_timeout_ns"] is None
    daemon.set(**LONG, idle_exempt={"users": ["nobody"]})
    wait_until(lambda: daemon.show(session)["idle_warned"])


def test_nobody_is_released_while_an_exempt_name_is_unknown(daemon_with):
    daemon = daemon_with(**LONG, idle_exempt={"groups": ["no-such-group"]})
    session = daemon.grant(vram="1")["id"]
    time.sleep(2.5)
    assert daemon.show(session)["idle_since"] and not daemon.show(session)["idle_warned"]
    assert daemon.log().count("idle.no_group name=no-such-group") == 1


EXEMPT = 'idle_exempt takes an object such as {"users": ["ci"], "groups": ["video"]}'


@pytest.mark.parametrize("keys, wrong", [
    ({"idle_timeout": "2h", "idle_warning": "10m", "idle_exempt": {"users": ["alice", 1001], "groups": ["lab"]}}, None), ({"idle_timeout": 0}, None),
    ({"idle_timeout": "2 hours"}, 'idle_timeout takes a duration such as "8h"'), ({"idle_timeout": True}, "idle_timeout takes"),
    ({"idle_warning": []}, 'idle_warning takes a duration such as "10m"'),
    ({"idle_timeout": "10m", "idle_warning": "10m"}, "idle_warning (10m) is not shorter than idle_timeout (10m)"),
    ({"idle_exempt": "alice"}, EXEMPT), ({"idle_exempt": ["alice"]}, EXEMPT),
    ({"idle_exempt": {"user": []}}, "idle_exempt: user is unknown; it has users and groups"),
    ({"idle_exempt": {"users": [""]}}, "idle_exempt.users: entry 1 is neither a name nor a number"),
    ({"idle_exempt": {"groups": ["a"] * 33}}, "idle_exempt.groups takes 32 names at most")])
def test_a_wrong_policy_is_refused_with_its_key_and_a_right_value(tmp_path, keys, wrong):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps(keys))
    done = subprocess.run([BUILD / "carved", "--config", config, "--check-config"], capture_output=True, text=True, timeout=60,
                          env=clean_env())
    assert done.returncode == (2 if wrong else 0), done.stderr
    assert (wrong or "") in done.stderr
