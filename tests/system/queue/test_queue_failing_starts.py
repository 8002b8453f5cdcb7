"""Jobs that cannot be started: each says why, is tried again, and holds up no other job."""
import pathlib
import sqlite3

import pytest

from conftest import BUILD, wait_until
from disk import fill, small_disk  # noqa: F401: fixtures
from queueing import queues  # noqa: F401: fixtures


def reason(queues, id):
    return queues.job(id)["reason"]


@pytest.mark.long
def test_a_job_that_cannot_start_says_why_and_those_like_it_run(queues):
    """The texts of two are lost. The jobs after them in their queue are of the same size and user."""
    bad = [queues.witnessed() for _ in range(2)]
    good = [queues.witnessed() for _ in range(3)]
    with sqlite3.connect(queues.host.env["CARVE_RUNTIME_DIR"] + "/queue.db") as db:
        db.execute("DELETE FROM spec WHERE id IN (SELECT spec FROM job WHERE id IN (?, ?))", bad)
    db.close()
    queues.agent("half=0.5,max=1")
    assert [queues.ended(id)["state"] for id in good] == ["done"] * 3
    for id in bad:
        wait_until(lambda: "it could not be started: No such file or directory" in reason(queues, id), step=0.1)
        assert queues.state(id) == "queued"


def test_jobs_whose_directory_cannot_be_made_say_so_and_start_when_it_can(queues):
    jobs = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]) / "jobs"
    id = queues.witnessed()
    jobs.write_text("")
    queues.agent("half=0.5")
    wait_until(lambda: "its files cannot be made in" in reason(queues, id), step=0.1)
    assert f"{jobs}/" in reason(queues, id) and "Not a directory" in reason(queues, id)
    jobs.unlink()
    assert queues.ended(id)["state"] == "done" and len(queues.runs(id)) == 2


def test_a_job_without_room_for_its_files_says_so_and_runs_once_there_is(queues, small_disk):
    runtime, filler = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]), small_disk / "filler"
    daemon = queues.host.popen([BUILD / "carved", "--runtime-dir", runtime, "--state-dir", small_disk / "state", "--foreground"])
    wait_until((runtime / "carved.sock").exists)
    id = queues.witnessed()
    fill(filler)
    queues.agent("half=0.5")
    wait_until(lambda: "No space left on device" in reason(queues, id), step=0.1)
    filler.unlink()
    assert queues.ended(id)["state"] == "done" and len(queues.runs(id)) == 2
    daemon.terminate()
    daemon.communicate()


def test_a_job_whose_log_cannot_be_made_fails_and_says_why(queues):
    """A log's name is taken by a directory."""
    queues.agent("half=0.5")
    first = queues.witnessed()
    directory = pathlib.Path(queues.ended(first)["log"]).parent
    (directory / f"{int(first) + 1}.1.log").mkdir()
    second, third = queues.witnessed(), queues.witnessed()
    failed = queues.ended(second)
    assert failed["state"] == "failed" and "Is a directory" in failed["reason"], failed
    assert queues.ended(third)["state"] == "done"
