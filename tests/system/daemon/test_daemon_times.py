"""Default and longest times of sessions and jobs, as an administrator sets them in carved.json."""
import contextlib
import datetime
import http.client
import json
import os
import re
import subprocess

import pytest

from conftest import BUILD, clean_env, needs_admin, wait_until
from daemon_client import *
from own_daemon import Asker, daemon, make_daemon  # noqa: F401: fixtures


@pytest.fixture
def daemon_with(make_daemon, tmp_path):
    """A daemon with these keys in its configuration; .set(keys) reloads it with others."""
    config = tmp_path / "carved.json"

    def make(**keys):
        config.write_text(json.dumps(keys))
        one = make_daemon(args=["--config", config])

        def set_keys(**keys):
            before = one.log().count("config.read")
            config.write_text(json.dumps(keys))
            one.reload()
            wait_until(lambda: one.log().count("config.read") > before)
        one.set = set_keys
        return one
    return make


class Forsaken(Asker):
    """One whose daemon may be killed while it waits."""

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            super().run()


def lasts(session):
    """Seconds from the grant to the end."""
    begin, end = (datetime.datetime.fromisoformat(session[key].replace("Z", "+00:00")) for key in ("created", "ends_at"))
    return (end - begin).total_seconds()


DURATION = 'takes a duration such as "8h" or "1h30m"; 0 for none'


@pytest.mark.parametrize("keys, wrong", [
    ({"session_timeout_default": "8h", "session_timeout_max": "1d"}, None),
    ({"session_timeout_default": 0, "session_timeout_max": 3600.5, "job_time_default": "0", "job_time_max": "1h30m"}, None),
    ({"session_timeout_default": "8 h"}, f"session_timeout_default {DURATION}"),
    ({"session_timeout_max": "long"}, f"session_timeout_max {DURATION}"),
    ({"session_timeout_max": -1}, f"session_timeout_max {DURATION}"),
    ({"session_timeout_max": 1e300}, f"session_timeout_max {DURATION}"),
    ({"session_timeout_max": "99999d"}, f"session_timeout_max {DURATION}"),
    ({"job_time_default": True}, f"job_time_default {DURATION}"),
    ({"job_time_max": None}, f"job_time_max {DURATION}"),
    ({"job_time_max": {}}, f"job_time_max {DURATION}"),
    ({"session_timeout_default": "9h", "session_timeout_max": "8h"},
     "session_timeout_default (9h) is longer than session_timeout_max (8h): make it 8h or less"),
    ({"job_time_max": "90s", "job_time_default": 91},
     "job_time_default (1m31s) is longer than job_time_max (1m30s): make it 1m30s or less")])
def test_a_wrong_time_is_refused_with_its_key_and_a_right_value(tmp_path, keys, wrong):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps(keys))
    done = subprocess.run([BUILD / "carved", "--config", config, "--check-config"], capture_output=True, text=True, timeout=60,
                          env=clean_env())
    assert done.returncode == (2 if wrong else 0), done.stderr
    assert (wrong or "") in done.stderr


def test_a_request_without_a_time_out_gets_the_default(daemon_with):
    daemon = daemon_with(session_timeout_default="8h", session_timeout_max="1d")
    assert lasts(daemon.grant(vram="1")) == 8 * 3600
    assert lasts(daemon.grant(vram="1", ephemeral=True)) == 8 * 3600
    assert lasts(daemon.grant(vram="1", session_timeout="1d")) == 24 * 3600
    daemon.set(session_timeout_max="2h")
    assert lasts(daemon.grant(vram="1")) == 2 * 3600  # as a partition of Slurm without DefaultTime
    daemon.set()
    assert daemon.grant(vram="1")["ends_at"] is None


def test_a_time_out_above_the_longest_is_refused_and_names_the_longest(daemon_with):
    daemon = daemon_with(session_timeout_max="8h")
    refused = daemon.request(vram="1", session_timeout=28801)
    assert refused.status == 403 and refused.error["code"] == 5
    assert refused.error["message"] == "session_timeout: a session lasts 8h at most here, and 8h1s is asked for"
    assert "--session-timeout 8h or less" in refused.error["hint"] and "session_timeout_max" in refused.error["hint"]
    assert daemon.call("GET", "/v1/sessions").json == []
    explained = daemon.call("POST", "/v1/explain", {"vram": "1", "session_timeout": "9h"})
    assert "a session lasts 8h at most here" in json.dumps(explained.json)


def test_a_default_ends_a_session(daemon_with):
    daemon = daemon_with(session_timeout_default=0.6)
    session = daemon.grant(vram="1")
    wait_until(lambda: daemon.show(session["id"])["state"] == "ended")
    assert daemon.show(session["id"])["reason"].startswith("its time of ")


def test_a_request_that_waits_gets_the_default_also_after_a_restart(daemon_with):
    daemon = daemon_with(session_timeout_default="1h")
    held = daemon.grant(gpu="1")
    asked = {"vram": "1", "wait_for": 60, "id": "s-waiting1"}
    asker = Forsaken(daemon, **asked)
    wait_until(lambda: [s for s in daemon.call("GET", "/v1/sessions").json if s["state"] == "waiting"])
    daemon.restart()
    asker.join(60)
    asker = Asker(daemon, **asked)
    daemon.release(held["id"])
    asker.join(60)
    assert lasts(asker.answer.json) == 3600


@needs_admin
def test_a_session_that_roots_service_keeps_has_no_default(daemon_with):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    daemon = daemon_with(session_timeout_max="1h")
    assert daemon.grant(vram="1", ephemeral=False, kept=True)["ends_at"] is None


@pytest.mark.parametrize("key", ["session_timeout_default", "session_timeout_max"])
def test_a_grant_names_the_key_that_ends_the_session(daemon_with, key):
    daemon = daemon_with(**{key: "1h"})
    carve = [BUILD / "carve", "--host", daemon.runtime / "carved.sock", "session"]
    for words, cause in ((["request", "--vram", "1"], f" by {key} in carved.json, as no --session-timeout was given\n"), (["resize", "2"], "\n")):
        done = subprocess.run([*carve, *words], capture_output=True, text=True, env=clean_env(), timeout=60)
        assert done.returncode == 0 and re.search(r"^it ends at \S+" + re.escape(cause), done.stdout, re.M), done


def limits_of(daemon):
    return {row["limit"]: (row["value"], row["name"]) for row in daemon.call("GET", "/v1/limits").json["limits"]
            if row["unit"] == "ns"}


def test_limits_show_each_time_and_the_key_that_sets_it(daemon_with):
    daemon = daemon_with(session_timeout_default="8h", session_timeout_max="1d", job_time_max="90m", idle_timeout="2h")
    second = 10**9
    assert limits_of(daemon) == {
        "session_timeout_default_ns": (8 * 3600 * second, "session_timeout_default"),
        "session_timeout_max_ns": (24 * 3600 * second, "session_timeout_max"),
        "job_time_default_ns": (5400 * second, "job_time_max"), "job_time_max_ns": (5400 * second, "job_time_max"),
        "idle_timeout_ns": (7200 * second, "idle_timeout")}
    said = subprocess.run([BUILD / "carve", "--host", daemon.runtime / "carved.sock", "limits"], capture_output=True, text=True,
                          env=clean_env(), timeout=60).stdout
    assert "session time-out, longest" in said and "1h30m" in said and "carved.json, idle_timeout" in said
    daemon.set()
    assert set(limits_of(daemon).values()) == {(None, None)}
    if os.geteuid() == 0:
        daemon.set(idle_timeout="2h", idle_exempt={"users": ["root"]})
        assert limits_of(daemon)["idle_timeout_ns"] == (None, "idle_exempt")
