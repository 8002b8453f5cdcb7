"""The launcher of a system daemon's jobs, forked by it or a service of its own, when things happen to it."""
import shutil
import subprocess

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVED
from .test_jobs import Jobs
from .test_restart import rights_of_the_unit


@pytest.fixture
def service(lab):
    """A daemon as its unit has it, and a launcher beside it."""
    lab.kill_daemon()
    lab.before_daemon = rights_of_the_unit()
    wait_until(lab.can_lock)
    lab.launcher = launcher_start(lab)
    lab.start()
    return lab


def launcher_start(lab, before=()):
    """`before`: words that go before its command, as of strace."""
    env = dict(lab.host.env)
    env.pop("CARVE_RUNTIME_DIR", None)
    launcher = subprocess.Popen([*before, CARVED, "--system", "--runtime-dir", lab.runtime, "--launcher"], env=env)
    lab.started.append(launcher)
    wait_until((lab.runtime / "launcher.sock").exists)
    return launcher


@pytest.mark.parametrize("launcher", ["lab", "service"])
def test_the_directory_of_jobs_is_made_anew(request, launcher):
    """With the key of before: a job that waits has its warrant by it. The one that runs leaves its record there."""
    lab = request.getfixturevalue(launcher)
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
    wait_until(lambda: "runtime.vanished file=jobs made=anew" in lab.log())
    assert (directory / "key").read_bytes() == key
    gate.touch()
    assert jobs.ended(ALICE, running)["exit_code"] == 7
    assert jobs.ended(ALICE, waiting)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", waiting).stdout.strip() == str(ALICE)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    # While no job runs, too.
    count = lab.log().count("runtime.vanished file=jobs made=anew")
    shutil.rmtree(directory)
    wait_until((directory / "key").exists)
    wait_until(lambda: lab.log().count("runtime.vanished file=jobs made=anew") > count)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)


def test_the_daemon_outlives_its_launchers_restart(service):
    """Jobs that run go on, those that wait start, and who enqueues meanwhile is told in words."""
    lab, daemon = service, service.daemon
    jobs = Jobs(lab)
    gate, began = lab.home(ALICE) / "gate", lab.home(ALICE) / "began"
    running = jobs.enqueue(ALICE, "sh", "-c", f"touch {began}; while [ ! -e {gate} ]; do sleep 0.02; done; echo ended")
    waiting = jobs.enqueue(ALICE, "id", "-u", options=("--after", f"ok:{running}"))
    wait_until(began.exists)
    for _ in range(3):
        lab.launcher.kill()
        lab.launcher.wait()
        refused = lab.carve(BOB, "enqueue", "--queue", "half", "--", "true")
        assert refused.returncode == 1 and "carve-launcher.service, which starts users' jobs, does not answer" in refused.stderr
        assert "systemctl status carve-launcher.service" in refused.stderr
        (lab.runtime / "launcher.sock").unlink()
        lab.launcher = launcher_start(lab)
        assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    gate.touch()
    job = jobs.ended(ALICE, running)
    assert job["state"] == "done", job
    assert jobs.ended(ALICE, waiting)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", waiting).stdout.strip() == str(ALICE)
    assert daemon.poll() is None and lab.log().count("carved.listening") == 2


def test_a_job_that_starts_while_the_launcher_is_away_starts_later(service):
    lab = service
    jobs = Jobs(lab)
    job = jobs.enqueue(BOB, "id", "-u", options=["--hold"])
    lab.launcher.kill()
    lab.launcher.wait()
    assert lab.carve(BOB, "job", "release", job).returncode == 0
    wait_until(lambda: f"job.not_started id={job}" in lab.log())
    (lab.runtime / "launcher.sock").unlink()
    lab.launcher = launcher_start(lab)
    assert jobs.ended(BOB, job)["state"] == "done"
    assert lab.daemon.poll() is None


def test_a_launcher_that_comes_after_the_daemon_is_found(lab):
    lab.kill_daemon()
    lab.before_daemon = rights_of_the_unit()
    wait_until(lab.can_lock)
    lab.start()
    jobs = Jobs(lab)
    refused = lab.carve(ALICE, "enqueue", "--queue", "half", "--", "true")
    assert refused.returncode == 5 and "carve-launcher.service does not run" in refused.stderr
    launcher_start(lab)
    wait_until(lambda: "launcher.connected" in lab.log())
    assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)


def test_jobs_whose_key_was_lost_end_with_a_reason_and_hold_up_none(lab):
    """Nobody kept the key while no launcher ran. Only their users can prove once more that these jobs are theirs."""
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
