"""No job is lost and none runs twice, whoever dies when: the daemon and the shim are killed between every two steps."""
import os
import signal

import pytest

from conftest import BUILD, process_ended, wait_until
from queueing import queues  # noqa: F401: fixtures

DAEMON_POINTS = ["enqueue.begun", "enqueue.committed", "start.spawned", "start.granted", "start.recorded", "start.gone",
                 "end.recorded"]
UNSTARTED_POINTS = ["shim.go", "shim.forked", "shim.recorded"]
ENDED_POINTS = ["shim.exit_recorded"]
LOST_POINTS = ["shim.running", "shim.ended"]


@pytest.fixture
def armed(queues, tmp_path):
    """arm(NAME): the next process that comes to that point is killed there."""
    def arm(name):
        token = tmp_path / "token"
        queues.host.env["CARVE_KILL_POINT"] = f"{name}:{token}"
        queues.agent("half=0.5")
        token.touch()
        return token
    return arm


@pytest.mark.parametrize("point", DAEMON_POINTS)
def test_a_daemon_killed_between_two_steps_loses_no_job(queues, armed, point):
    token = armed(point)
    id = queues.witnessed()
    assert queues.ended(id)["state"] == "done"
    assert not token.exists(), "nobody came to that point"
    assert queues.runs(id) == [f"{id} 1 start", f"{id} 1 end"]
    assert len(queues.host.carve_json("job", "list")) == 1  # its client asked again, which was one job


@pytest.mark.parametrize("point", UNSTARTED_POINTS)
def test_a_shim_killed_before_the_command_began_is_followed_by_another(queues, armed, point):
    token = armed(point)
    id = queues.witnessed()
    assert queues.ended(id)["state"] == "done"
    assert not token.exists()
    assert queues.runs(id) == [f"{id} 1 start", f"{id} 1 end"]


@pytest.mark.parametrize("point", ENDED_POINTS)
def test_a_shim_killed_after_the_end_was_recorded_changes_nothing(queues, armed, point):
    token = armed(point)
    id = queues.witnessed()
    assert queues.ended(id)["state"] == "done" and not token.exists()
    assert len(queues.runs(id)) == 2


@pytest.mark.parametrize("point", LOST_POINTS)
def test_a_job_whose_shim_was_killed_runs_to_its_end_and_is_lost(queues, armed, point):
    token = armed(point)
    id = queues.witnessed("sleep 0.3")
    job = queues.ended(id)
    assert job["state"] == "lost" and "shim" in job["reason"] and not token.exists()
    assert queues.runs(id) == [f"{id} 1 start", f"{id} 1 end"]  # once, and whole


def test_jobs_survive_the_daemon(queues):
    queues.agent("half=0.5")
    running = queues.witnessed(queues.gate())
    queues.wait_state(running, "running")
    waiting = [queues.witnessed(options=["--after", running]) for _ in range(3)]
    session = queues.job(running)["session"]
    for _ in range(3):
        pid = queues.host.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
        assert queues.state(running) == "running"  # by the next daemon
    assert queues.host.carve_json("session", "show", session)["state"] == "active"
    assert len(queues.host.carve_json("agent", "--status")) == 1
    queues.open_gate()
    assert [queues.ended(id)["state"] for id in [running, *waiting]] == ["done"] * 4
    assert len(queues.runs()) == 8


def test_a_job_that_ended_without_a_daemon_is_known_to_the_next(queues):
    queues.agent("half=0.5")
    id = queues.witnessed(queues.gate() + "; exit 5")
    queues.wait_state(id, "running")
    pid = queues.host.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    queues.open_gate()
    wait_until(lambda: queues.runs(id))
    job = queues.ended(id)
    assert job["state"] == "failed" and job["exit_code"] == 5


def test_a_cancellation_survives_the_daemon(queues, tmp_path):
    token = tmp_path / "token"
    queues.host.env["CARVE_KILL_POINT"] = f"cancel.recorded:{token}"
    queues.agent("half=0.5")
    id = queues.witnessed("sleep 1000")
    wait_until(lambda: queues.runs(id))
    token.touch()
    queues.host.carve("job", "cancel", id)
    assert queues.ended(id)["state"] == "cancelled" and not token.exists()


def test_jobs_survive_an_upgrade(queues):
    queues.agent("half=0.5")
    running = queues.witnessed(queues.gate())
    queues.wait_state(running, "running")
    done = queues.host.run([BUILD / "carved", "--runtime-dir", queues.host.env["CARVE_RUNTIME_DIR"], "--takeover"])
    assert done.returncode == 0, done.stderr
    assert queues.state(running) == "running"
    queues.open_gate()
    assert queues.ended(running)["state"] == "done" and len(queues.runs(running)) == 2


@pytest.mark.long
def test_random_kills_under_many_jobs(queues):
    """The daemon is killed again and again while jobs come and go: each runs exactly once."""
    queues.agent("half=0.1")
    id = queues.witnessed("sleep 0.0$CARVE_JOB_INDEX", options=["--array", "0-199"])
    for _ in range(30):
        pid = queues.host.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
        queues.host.carve("queue", "list")
    jobs = queues.ended(id)
    assert {j["state"] for j in jobs} == {"done"}
    assert sorted(queues.runs()) == sorted(f"{id}_{i} 1 {what}" for i in range(200) for what in ("start", "end"))
