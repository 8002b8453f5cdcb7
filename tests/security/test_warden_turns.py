"""What one user's jobs cost another user by way of the warden, which has root's rights: cgroups that are left, and a warden that hangs."""
import json
import os
import pathlib
import shutil
import signal

import pytest

from cgroups import cgroups_can_be_made
from conftest import wait_until

from .lab import ALICE, BOB, CARVE, MALLORY, ROOT
from .latency import times
from .test_arrivals import ASKS, MANY
from .test_job_cgroups import MINE
from .test_jobs import Jobs
from .test_warden_service import service  # noqa: F401

GOAL_MS = 50
CGROUPS = 64

needs_cgroups = pytest.mark.skipif(not cgroups_can_be_made(), reason="no cgroup can be made here")
# Cgroups of a job's own: side by side, and as a tree of the depth that is allowed.
LEAVES = {
    "side by side": f"mkdir $mine/c{{2..{CGROUPS - 2}}}; ",
    "below each other": "for i in $(seq 7); do d=$mine/d$i; for k in $(seq 6); do mkdir $d; d=$d/d; done; done; ",
}
# A process is left as well, so that the cgroup is not empty when the job ends.
STAYS = "mkdir $mine/c1; setsid sleep 1000 & echo $! > $mine/c1/cgroup.procs; "


def slow_removal(lab, delay_us):
    """A warden, beside a daemon as its unit has it, for which the removal of a cgroup takes so long."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    lab.kill_daemon()
    lab.start_warden(before=["strace", "-f", "-o", "/dev/null", "-e", "trace=rmdir", "-e", f"inject=rmdir:delay_enter={delay_us}"])
    lab.as_the_unit()
    wait_until(lab.can_lock)
    lab.start()
    return Jobs(lab)


@needs_cgroups
@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.attack("1", "a job that leaves as many cgroups as it may, whose removal takes long")
def test_a_request_waits_for_one_step_of_the_removal_of_cgroups(lab, kind):
    jobs = slow_removal(lab, 200000)
    mine = pathlib.Path(jobs.output(MALLORY, "bash", "-c", MINE + LEAVES[kind] + STAYS + "echo $mine", queue="sixth").strip())
    assert jobs.output(BOB, "id", "-u", queue="sixth").strip() == str(BOB)
    assert mine.exists(), "the job's cgroups were removed before another user's job could run"
    lab.end_left_behind()


@pytest.mark.attack("1", "a warden that hangs, while jobs of several users start, end and are enqueued")
def test_a_warden_that_hangs_ends_no_daemon(lab):
    """The supervisor, which hosts it, is stopped, as nothing that a user can do takes so long."""
    jobs = Jobs(lab)
    gate = lab.home(ALICE) / "gate"
    ends = jobs.enqueue(ALICE, "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done", queue="sixth")
    starts = jobs.enqueue(BOB, "id", "-u", options=["--hold"], queue="sixth")
    cancelled = jobs.enqueue(BOB, "id", "-u", options=["--hold"], queue="sixth")
    jobs.running(ALICE, ends)
    warden = lab.supervisor()
    os.kill(warden, signal.SIGSTOP)
    try:
        gate.touch()
        for job in (starts, cancelled):
            assert lab.carve(BOB, "job", "release", job).returncode == 0
        enqueues = lab.popen(BOB, CARVE, "enqueue", "--queue", "sixth", "--", "true", cwd=lab.home(BOB))
        wait_until(lambda: "warden.slow" in lab.log())
        assert lab.carve(ALICE, "gpu", "list").returncode == 0
        check = json.loads(lab.carve(ROOT, "check", "--json").stdout)
        note, = [c for c in check["conditions"] if c["name"] == "launcher"]
        assert note["state"] == "problem" and "has not answered" in note["message"], note
        assert lab.carve(BOB, "job", "cancel", cancelled).returncode == 0
        assert jobs.show(ALICE, ends)["state"] == "running"
    finally:
        os.kill(warden, signal.SIGCONT)
    assert jobs.ended(ALICE, ends)["state"] == "done"
    assert jobs.ended(BOB, starts)["state"] == "done"
    assert jobs.ended(BOB, cancelled)["state"] == "cancelled"
    assert enqueues.wait() in (0, 1)
    assert jobs.output(BOB, "id", "-u", queue="sixth").strip() == str(BOB)
    wait_until(lambda: "warden.answers" in lab.log())
    assert lab.serves_still()


@pytest.mark.attack("1", "requests that wait behind those that a warden which hangs has")
def test_requests_in_line_for_a_warden_that_hangs_fail_with_the_first(lab):
    warden = lab.supervisor()
    os.kill(warden, signal.SIGSTOP)
    try:
        asks = lab.python(BOB, ASKS, 100, *MANY["jobs"][:2], json.dumps(MANY["jobs"][2]), method=lab.popen)
        assert asks.stdout.readline() == "asked\n", asks.communicate()
        failed = json.loads(asks.stdout.readline())
    finally:
        os.kill(warden, signal.SIGCONT)
    assert len(failed) == 100 and all("carve-supervise, which starts users' jobs, does not answer now" in answer for answer in failed), failed
    assert Jobs(lab).output(BOB, "id", "-u", queue="sixth").strip() == str(BOB)


def many(jobs, count, script, options=()):
    """An array of Mallory's in small slices, whose jobs do this. Waits until some have ended."""
    lab = jobs.lab
    assert lab.carve(ROOT, "agent", "--stop").returncode == 0
    lab.carve_json(ROOT, "agent", "--detached", "--gpus", "all", "--queue", "tiny=0.02")
    id = jobs.enqueue(MALLORY, "bash", "-c", script, queue="tiny", options=["--array", f"0-{count - 1}", *options])
    wait_until(lambda: lab.log().count("job.started") > 10)
    return id


ATTACKS = {
    "cgroups of 400 jobs": (400, MINE + LEAVES["side by side"] + STAYS + "true"),
    "trees of cgroups of 400 jobs": (400, MINE + LEAVES["below each other"] + STAYS + "true"),
    "3000 jobs that fail": (3000, "exit 7"),
    "3000 jobs that are done at once": (3000, "true"),
}


@needs_cgroups
@pytest.mark.timed
@pytest.mark.long
@pytest.mark.alone
@pytest.mark.once("it judges the time that the daemon takes")
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.attack("1", "many jobs that leave cgroups, or fail at once, beside another user's requests")
def test_requests_take_no_longer_beside_many_jobs(lab, name):
    count, script = ATTACKS[name]
    jobs = Jobs(lab)
    none = times(lab, count=300)
    many(jobs, count, script)
    under = times(lab, count=1500)
    print(f"\nnone: {none}\n{name}: {under}; ends meanwhile {lab.log().count('job.failed') + lab.log().count('job.done')}")
    assert lab.serves_still()
    assert under.served_p(99) <= none.served_p(99) + GOAL_MS
