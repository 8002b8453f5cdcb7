"""Users: a daemon runs jobs of its own user only, and says so."""
import getpass
import os

import pytest

from conftest import BUILD, open_to_others, wait_until
from queueing import queues  # noqa: F401: fixtures


def test_jobs_of_another_user_are_refused(queues, another_user):
    queues.agent("half=0.5")
    open_to_others(queues.host)
    sock = queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    os.chmod(queues.host.env["CARVE_RUNTIME_DIR"], 0o755)
    os.chmod(sock, 0o666)
    own = queues.witnessed()
    queues.ended(own)

    def ask(method, path, body="{}"):
        return queues.host.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-s", "-X", method, "-d",
                                body, "--unix-socket", sock, "http://localhost" + path]).stdout

    refused = ask("POST", "/v1/jobs", '{"queue": "half", "argv": ["true"], "cwd": "/"}')
    assert '"code":5' in refused.replace(" ", ""), refused
    assert '"code":5' in ask("DELETE", "/v1/agents/a-1").replace(" ", "")
    for method in ("GET", "DELETE"):
        assert '"code":5' in ask(method, f"/v1/jobs/{own}").replace(" ", ""), method
    assert '"code":5' in ask("GET", f"/v1/jobs/log/{own}").replace(" ", "")
    assert ask("GET", "/v1/jobs").split() == ["[]"]
    assert '"waiting"' in ask("GET", "/v1/queues")


def test_a_job_larger_than_its_users_quota_is_refused_and_one_that_waits_for_it_says_so(queues):
    me = getpass.getuser()
    queues.agent("half=0.5", "eighth=0.125")
    assert queues.host.carve("quota", "set", me, "--vram", "45").returncode == 0
    first = queues.witnessed(queues.gate())
    queues.wait_state(first, "running")
    second = queues.witnessed()
    wait_until(lambda: "used up" in queues.job(second)["reason"])
    assert queues.host.carve("quota", "set", me, "--vram", "20").returncode == 0
    done = queues.host.carve("enqueue", "--queue", "half", "--", "true")
    assert done.returncode == 5 and "quota" in done.stderr, done.stderr
    wait_until(lambda: "can never start" in queues.job(second)["reason"])
    assert queues.host.carve("quota", "remove", me).returncode == 0
    queues.open_gate()
    assert [queues.ended(id)["state"] for id in (first, second)] == ["done"] * 2


def test_jobs_wait_for_the_next_month_once_the_hours_of_this_one_are_used_up(queues):
    me = getpass.getuser()
    queues.agent("half=0.5")
    assert queues.host.carve("quota", "set", me, "--gpu-hours", "0.0005").returncode == 0
    first = queues.witnessed(queues.gate())
    queues.wait_state(first, "running")
    wait_until(lambda: any(row["limit"] == "gpu_hours" and row["used"] >= row["value"]
                           for row in queues.host.carve_json("limits")["limits"]))
    second = queues.witnessed()
    wait_until(lambda: "the GPU-hours of its user in this month are used up: the month starts anew on 2" in queues.job(second)["reason"])
    assert queues.job(first)["state"] == "running"
    assert queues.host.carve("quota", "set", me, "--gpu-hours", "0").returncode == 0
    done = queues.host.carve("enqueue", "--queue", "half", "--", "true")
    assert done.returncode == 5 and "quota" in done.stderr, done.stderr
    assert queues.host.carve("quota", "set", me, "--gpu-hours", "unlimited").returncode == 0
    queues.open_gate()
    assert [queues.ended(id)["state"] for id in (first, second)] == ["done"] * 2
