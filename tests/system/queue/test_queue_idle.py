"""Limits of time for jobs that an administrator sets in carved.json, and jobs that use no GPU time."""
import pytest

from conftest import wait_until
from policed import policed  # noqa: F401: a fixture
from queueing import Queues


@pytest.fixture
def queues_with(policed, tmp_path):
    """Queues whose daemon has these keys in its configuration."""
    def make(**keys):
        policed(**keys)
        queues = Queues(policed.host, tmp_path)
        queues.agent("half=0.5")
        return queues
    return make


def test_an_idle_job_ends_with_its_reason(queues_with):
    queues = queues_with(idle_timeout=6, idle_warning=3)
    job = queues.enqueue("sleep", "1000")
    wait_until(lambda: queues.job(job).get("idle_warned"))
    shown = queues.job(job)
    assert shown["idle_release_at"] and shown["idle_release_at"][:19] in queues.host.carve("job", "show", job).stdout
    ended = queues.ended(job)
    assert ended["state"] == "timeout" and ended["reason"] == "it used no GPU time for 6s (idle_timeout)"
    wait_until(lambda: queues.host.carve_json("session", "list") == [])


def test_a_job_without_a_time_limit_gets_the_default(queues_with):
    queues = queues_with(job_time_default="2s", job_time_max="1h")
    job = queues.enqueue("sleep", "1000")
    assert queues.job(job)["asked"]["time"] == 2
    ended = queues.ended(job)
    assert ended["state"] == "timeout" and ended["reason"] == "its time limit was reached"
    longer = queues.enqueue("true", options=["--time", "1h"])
    assert queues.job(longer)["asked"]["time"] == 3600
    assert queues.ended(longer)["state"] == "done"


def test_a_time_limit_above_the_longest_is_refused_and_names_the_longest(queues_with):
    queues = queues_with(job_time_max="90m")
    refused = queues.host.carve("enqueue", "--queue", "half", "--time", "2h", "--", "true")
    assert refused.returncode == 5
    assert "time: a job runs for 1h30m at most here, and 2h is asked for" in refused.stderr
    assert "--time 1h30m or less" in refused.stderr and "job_time_max" in refused.stderr
    assert queues.host.carve_json("job", "list") == []
    # Without a limit of its own a job would run for ever: it gets the longest.
    waits = queues.enqueue("true", options=["--hold"])
    assert queues.job(waits)["asked"]["time"] == 5400
    refused = queues.host.carve("job", "edit", waits, "--time", "100m")
    assert refused.returncode == 5 and "at most here" in refused.stderr
    assert queues.host.carve("job", "edit", waits, "--time", "80m").returncode == 0
    assert queues.job(waits)["asked"]["time"] == 4800
    again = queues.host.carve("job", "clone", waits, "--time", "2h")
    assert again.returncode == 5 and "at most here" in again.stderr
