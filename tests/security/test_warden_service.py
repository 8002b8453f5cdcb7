"""The warden of a system daemon, forked by it or a service of its own, when things happen to it."""
import shutil
import signal
import socket
import threading

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, MALLORY
from .test_jobs import Jobs


@pytest.fixture
def service(lab):
    """A daemon as its unit has it, and a warden beside it."""
    lab.kill_daemon()
    lab.as_the_unit()
    wait_until(lab.can_lock)
    lab.warden = lab.start_warden()
    lab.start()
    return lab


@pytest.mark.parametrize("warden", ["lab", "service"])
def test_the_directory_of_jobs_is_made_anew(request, warden):
    """With the key of before: a job that waits has its warrant by it. The one that runs leaves its record there."""
    lab = request.getfixturevalue(warden)
    jobs = Jobs(lab)
    gate = lab.home(ALICE) / "gate"
    running = jobs.enqueue(ALICE, "sh", "-c", f"echo began; while [ ! -e {gate} ]; do sleep 0.02; done; exit 7")
    waiting = jobs.enqueue(ALICE, "id", "-u", options=("--after", f"notok:{running}"))
    jobs.running(ALICE, running)
    directory, = lab.runtime.rglob("*-jobs")
    wait_until(lambda: any(log.read_text() for log in directory.rglob("*.log")))
    key = (directory / "key").read_bytes()
    shutil.rmtree(directory)
    wait_until(lambda: (directory / str(ALICE)).exists())
    assert (directory / "key").read_bytes() == key
    gate.touch()
    assert jobs.ended(ALICE, running)["exit_code"] == 7
    assert jobs.ended(ALICE, waiting)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", waiting).stdout.strip() == str(ALICE)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    # While no job runs, too.
    shutil.rmtree(directory)
    wait_until((directory / "key").exists)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)


def anew(lab, before=()):
    """As systemd does when the warden has ended: it starts that, and the daemon, which has ended with it."""
    lab.daemon.terminate()
    lab.daemon.wait()
    wait_until(lab.can_lock)
    (lab.runtime / "warden.sock").unlink()
    lab.warden = lab.start_warden(before)
    lab.start()


def test_jobs_outlive_the_warden(service):
    """Jobs that run go on, and those that wait start."""
    lab, jobs = service, Jobs(service)
    gate, began = lab.home(ALICE) / "gate", lab.home(ALICE) / "began"
    running = jobs.enqueue(ALICE, "sh", "-c", f"touch {began}; while [ ! -e {gate} ]; do sleep 0.02; done; echo ended")
    waiting = jobs.enqueue(ALICE, "id", "-u", options=("--after", f"ok:{running}"))
    wait_until(began.exists)
    for _ in range(3):
        lab.warden.kill()
        lab.warden.wait()
        anew(lab)
        assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    gate.touch()
    job = jobs.ended(ALICE, running)
    assert job["state"] == "done", job
    assert jobs.ended(ALICE, waiting)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", waiting).stdout.strip() == str(ALICE)


def test_a_job_that_starts_as_the_warden_ends_starts_later(service):
    lab, jobs = service, Jobs(service)
    job = jobs.enqueue(BOB, "id", "-u", options=["--hold"])
    lab.warden.send_signal(signal.SIGSTOP)
    assert lab.carve(BOB, "job", "release", job).returncode == 0
    wait_until(lambda: jobs.show(BOB, job)["state"] == "starting")
    lab.warden.kill()
    lab.warden.wait()
    anew(lab)
    assert jobs.ended(BOB, job)["state"] == "done"


def test_a_daemon_that_systemd_runs_serves_nobody_without_the_warden(lab):
    """It says which service is missing, and serves as soon as that runs."""
    lab.kill_daemon()
    lab.as_the_unit()
    wait_until(lab.can_lock)
    starting = threading.Thread(target=lab.start)
    starting.start()
    wait_until(lambda: "carve-warden.service, which does what takes root's rights, does not answer" in lab.log())
    refused = lab.carve(ALICE, "gpu", "list", env={"CARVE_TIMEOUT": "1"}, timeout=60)
    assert refused.returncode != 0, refused.stdout
    lab.start_warden()
    assert (lab.runtime / "warden.sock").stat().st_mode & 0o007 == 0
    starting.join(60)
    jobs = Jobs(lab)
    for _ in range(2):
        assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)
        lab.restart()


@pytest.mark.attack("3", "a user who connects to the socket of the warden")
def test_the_warden_serves_the_worker_alone(service):
    lab = service
    for uid in (ALICE, MALLORY):
        refused = lab.run(uid, "/usr/bin/python3", "-c", "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
                          "s.connect(sys.argv[1])", lab.runtime / "warden.sock")
        assert refused.returncode != 0 and "PermissionError" in refused.stderr
    # One at a time: root's second connection waits, and the worker is served on.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.connect(str(lab.runtime / "warden.sock"))
        assert Jobs(lab).output(ALICE, "id", "-u").strip() == str(ALICE)
    assert lab.serves_still()


def test_jobs_whose_key_was_lost_end_with_a_reason_and_hold_up_none(lab):
    """Nobody kept the key while no warden ran. Only their users can prove once more that these jobs are theirs."""
    jobs = Jobs(lab)
    gate = lab.home(ALICE) / "gate"
    first = jobs.enqueue(ALICE, "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done")
    jobs.running(ALICE, first)
    array = jobs.enqueue(ALICE, "id", "-u", options=("--array", "0-2", "--after", f"any:{first}", "--retries", "3"))
    behind = jobs.enqueue(ALICE, "id", "-u", options=("--after", f"notok:{array}"))
    directory, = lab.runtime.rglob("*-jobs")
    lab.kill_daemon()
    wait_until(lab.can_lock)
    (directory / "key").unlink()
    lab.start()
    later = jobs.enqueue(ALICE, "id", "-u", options=("--after", f"any:{first}"))
    gate.touch()
    assert jobs.ended(ALICE, later)["state"] == "done"
    for index in range(3):
        job = jobs.ended(ALICE, f"{array}_{index}")
        assert job["state"] == "failed" and "key" in job["reason"] and job["reason"].endswith(f"carve job rerun {array}_{index}"), job
    assert jobs.ended(ALICE, behind)["state"] == "failed"
    again = lab.carve(ALICE, "job", "rerun", f"{array}_1")
    assert again.returncode == 0, again.stderr
    assert jobs.ended(ALICE, again.stdout.split()[-1])["state"] == "done"
