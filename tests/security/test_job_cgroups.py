"""Things that a user can do with the cgroup that the launcher makes for each of that user's jobs."""
import os
import pathlib
import shutil
import signal

import pytest

from cgroups import MOUNT, cgroups_can_be_made
from conftest import wait_until

from .lab import ALICE, BOB
from .test_jobs import Jobs
from .test_launcher import launcher_start, service  # noqa: F401
from .test_restart import rights_of_the_unit

pytestmark = pytest.mark.skipif(not cgroups_can_be_made(), reason="no cgroup can be made here")

# For so long each job's process is held while it has root's rights.
HELD_US = 400000
# In a job: the cgroup that its launcher made, in which its shim makes the job's own.
MINE = f"mine={MOUNT}$(dirname $(sed -n 's/^0:://p' /proc/self/cgroup)); "

# As soon as the cgroups of own jobs are this user's, moves the processes there to another one.
MOVES = r"""
top, how, *numbers = sys.argv[1:]
wanted = [f"{top}/{number}.1" for number in numbers]
print("begun", flush=True)
while wanted:
    for path in list(wanted):
        try:
            os.mkdir(path + "/x")
        except OSError:
            continue
        wanted.remove(path)
        if how == "freeze":
            open(path + "/x/cgroup.freeze", "w").write("1")
        for pid in open(path + "/cgroup.procs").read().split():
            try:
                open(path + "/x/cgroup.procs", "w").write(pid)
            except OSError:
                pass
        if how == "kill":
            open(path + "/x/cgroup.kill", "w").write("1")
"""


@pytest.fixture
def jobs(lab):
    return Jobs(lab)


def leftover(jobs, uid, begin=""):
    """A job that waits for a file `gate`. It leaves a process in another cgroup of its user's. Its ID, that process, its shim, the cgroup."""
    home = jobs.lab.home(uid)
    script = MINE + begin + ("mkdir $mine/x; setsid sleep 1000 & echo $! > $mine/x/cgroup.procs; echo $! $PPID $mine > part; mv part left; "
                             "while [ ! -e gate ]; do sleep 0.02; done; touch over")
    id = jobs.enqueue(uid, "sh", "-c", script, queue="sixth")
    wait_until((home / "left").exists)
    pid, shim, path = (home / "left").read_text().split()
    return id, int(pid), int(shim), pathlib.Path(path)


def has_ended(pid):
    return not pathlib.Path(f"/proc/{pid}").exists()


def launcher_anew(lab):
    (lab.runtime / "launcher.sock").unlink()
    lab.launcher = launcher_start(lab)


@pytest.mark.parametrize("how", ["freeze", "move", "kill"])
@pytest.mark.attack("8", "a user who freezes, moves or kills the process of a job while that is root's")
def test_a_job_that_starts_is_not_its_users_yet(lab, how):
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    lab.kill_daemon()
    launcher = launcher_start(lab, before=["strace", "-f", "-o", "/dev/null", "-e", "trace=setgroups",
                                           "-e", f"inject=setgroups:delay_enter={HELD_US}"])
    lab.before_daemon = rights_of_the_unit()
    wait_until(lab.can_lock)
    lab.start()
    jobs = Jobs(lab)
    top = jobs.output(ALICE, "sh", "-c", MINE + "dirname $mine").strip()
    attack = lab.python(ALICE, MOVES, top, how, 2, 3, method=lab.popen)
    assert attack.stdout.readline() == "begun\n"
    assert [jobs.enqueue(ALICE, "true", queue="sixth") for _ in range(2)] == ["2", "3"]
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    wait_until(lambda: attack.poll() is not None)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    assert "launcher.gone" not in lab.log() and launcher.poll() is None
    # Once the process is its user's, it may be killed before it has said that it began. That costs this job alone.
    assert how == "kill" or "job.not_started" not in lab.log()


@pytest.mark.attack("8", "a job that makes many cgroups, which the launcher has to remove")
def test_a_job_makes_few_cgroups(jobs):
    output = jobs.output(ALICE, "sh", "-c", MINE + """
        for i in $(seq 300); do mkdir $mine/$i && echo made; done
        deep=$mine/1; rmdir $mine/2 $mine/3 $mine/4 $mine/5 $mine/6 $mine/7 $mine/8 $mine/9
        for i in $(seq 20); do deep=$deep/d; mkdir $deep && echo deep; done
        for f in max.descendants max.depth; do echo max > $mine/cgroup.$f && echo raised; done
        echo $mine""").splitlines()
    assert 0 < output.count("made") <= 64 and 0 < output.count("deep") < 8 and "raised" not in output, output
    mine = pathlib.Path(output[-1])
    wait_until(lambda: not mine.exists())


def test_an_empty_cgroup_of_a_running_job_stays(jobs):
    """While the launcher removes those of jobs that are over."""
    id, left, _, mine = leftover(jobs, ALICE, begin="mkdir $mine/empty; ")
    other, others, _, place = leftover(jobs, BOB)
    (jobs.lab.home(BOB) / "gate").touch()
    assert jobs.ended(BOB, other)["state"] == "done"
    wait_until(lambda: has_ended(others) and not place.exists())
    assert (mine / "empty").exists() and not has_ended(left)
    (jobs.lab.home(ALICE) / "gate").touch()
    assert jobs.ended(ALICE, id)["state"] == "done"
    wait_until(lambda: has_ended(left) and not mine.exists())


@pytest.mark.attack("8", "a job that ends while its launcher is away, and leaves a process")
def test_processes_left_by_a_job_end_though_its_launcher_was_away(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    id, left, shim, _ = leftover(jobs, ALICE)
    lab.launcher.kill()
    lab.launcher.wait()
    wait_until(lambda: "launcher.gone" in lab.log())
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: f"job.orphaned id={id}" in lab.log())
    (lab.home(ALICE) / "gate").touch()
    wait_until(lambda: (lab.home(ALICE) / "over").exists())
    launcher_anew(lab)
    assert jobs.ended(ALICE, id)["state"] == "lost"
    wait_until(lambda: has_ended(left))


@pytest.mark.attack("8", "a job that leaves a process, and a directory of jobs that was made anew")
def test_processes_left_by_a_job_are_ended_by_another_launcher(service):  # noqa: F811
    """The cgroup's name does not hang on the directory."""
    lab, jobs = service, Jobs(service)
    id, left, shim, _ = leftover(jobs, ALICE)
    directory, = lab.runtime.rglob("jobs")
    shutil.rmtree(directory)
    wait_until(lambda: "runtime.vanished file=jobs made=anew" in lab.log())
    lab.launcher.kill()
    lab.launcher.wait()
    launcher_anew(lab)
    os.kill(shim, signal.SIGKILL)
    (lab.home(ALICE) / "gate").touch()
    jobs.ended(ALICE, id)
    wait_until(lambda: has_ended(left))
