"""Things that a user can do with the cgroup that the launcher makes for each of that user's jobs."""
import os
import pathlib
import shutil
import signal

import pytest

from cgroups import MOUNT, cgroup_of, cgroups_can_be_made, pids_cgroup, tasks_can_be_limited
from conftest import wait_until

from .lab import ALICE, BOB, ROOT
from .test_budgets import settings
from .test_jobs import Jobs
from .test_warden_service import anew, service  # noqa: F401

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


@pytest.mark.parametrize("how", ["freeze", "move", "kill"])
@pytest.mark.attack("8", "a user who freezes, moves or kills the process of a job while that is root's")
def test_a_job_that_starts_is_not_its_users_yet(lab, how):
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    lab.kill_daemon()
    warden = lab.start_warden(before=["strace", "-f", "-o", "/dev/null", "-e", "trace=setgroups",
                                         "-e", f"inject=setgroups:delay_enter={HELD_US}"])
    lab.as_the_unit()
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
    assert lab.serves_still() and warden.poll() is None
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


# Forks until it may not, and tries again and again. It stops at 400, so that it does no harm where nothing bounds it.
BOMB = r"""
import os, time
made = 0
while made < 400:
    try:
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        made += 1
    except BlockingIOError:
        with open("new", "w") as file:
            file.write(str(made))
        os.rename("new", "full")
        time.sleep(0.01)
open("full", "w").write("never")
time.sleep(1000)
"""
# Few, for a test: each job may have so many.
TASKS = 64
TASKS_OF_USER = 300


@pytest.mark.skipif(not tasks_can_be_limited(), reason="no cgroup with the controller pids can be made here")
@pytest.mark.attack("8", "a job that forks without end")
def test_a_fork_bomb_fills_its_own_job_alone(make_lab, tmp_path):
    lab = make_lab(args=settings(tmp_path, job_tasks=TASKS))
    jobs = Jobs(lab)
    bomb = jobs.enqueue(ALICE, "/usr/bin/python3", "-c", BOMB, queue="sixth")
    full = lab.home(ALICE) / "full"
    wait_until(full.exists)
    assert 0 < int(full.read_text()) < TASKS
    # Others go on, and so do other jobs of the same user.
    assert jobs.output(BOB, "id", "-u", queue="sixth").strip() == str(BOB)
    assert jobs.output(ALICE, "sh", "-c", "sh -c 'id -u'", queue="sixth").strip() == str(ALICE)
    assert lab.carve_json(ROOT, "check")["daemon"]["job_tasks"] == TASKS
    assert lab.carve_json(ROOT, "check")["daemon"]["job_tasks_of"] == "job"
    assert lab.carve(ALICE, "job", "cancel", bomb).returncode == 0
    assert jobs.ended(ALICE, bomb)["state"] == "cancelled"
    assert lab.serves_still()


@pytest.mark.skipif(not tasks_can_be_limited(), reason="no cgroup with the controller pids can be made here")
@pytest.mark.attack("8", "a job that leaves the cgroup of its limit, or lifts the limit")
def test_the_limit_of_tasks_is_not_the_users(make_lab, tmp_path):
    lab = make_lab(args=settings(tmp_path, job_tasks=TASKS))
    place = "/sys/fs/cgroup/pids$(sed -n 's/^[0-9]*:pids://p' /proc/self/cgroup)" if pids_cgroup() else "$mine"
    output = Jobs(lab).output(ALICE, "sh", "-c", MINE + f"""exec 2>/dev/null
        at={place}; cat $at/pids.max; echo max > $at/pids.max && echo lifted; echo 0 > $at/../cgroup.procs && echo left
        mkdir $at/../mine && echo made; cat $at/pids.max; echo $at""").split()
    assert output[:2] == [str(TASKS), str(TASKS)], output
    wait_until(lambda: not pathlib.Path(output[2]).exists())


@pytest.mark.skipif(not tasks_can_be_limited(), reason="no cgroup with the controller pids can be made here")
def test_a_job_may_have_a_third_of_the_machines_tasks(lab):
    """As a service of systemd's, where the configuration does not say how many."""
    most = min(int(pathlib.Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
    tasks = wait_until(lambda: lab.carve_json(ROOT, "check")["daemon"]["job_tasks"])
    assert 0 < tasks <= most * 33 // 100


@pytest.mark.skipif(not pids_cgroup(), reason="hides the hierarchy of pids, which is not of version 1 here")
@pytest.mark.attack("8", "a job that forks without end, where no cgroup can have a limit")
def test_without_the_pids_controller_a_fork_bomb_fills_its_users_limit(make_lab, tmp_path):
    """As with systemd before 254 and cgroups of version 2 alone. All of the user's processes on the machine count, also of other tests."""
    hide = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs -o ro none /sys/fs/cgroup/pids && exec "$@"', "sh"]
    lab = make_lab(args=settings(tmp_path, job_tasks=TASKS_OF_USER), before=hide)
    jobs = Jobs(lab)
    bomb = jobs.enqueue(ALICE, "/usr/bin/python3", "-c", BOMB, queue="sixth")
    full = lab.home(ALICE) / "full"
    wait_until(full.exists)
    assert 0 < int(full.read_text()) < TASKS_OF_USER
    assert jobs.output(BOB, "id", "-u", queue="sixth").strip() == str(BOB)
    daemon = lab.carve_json(ROOT, "check")
    assert (daemon["daemon"]["job_tasks"], daemon["daemon"]["job_tasks_of"]) == (TASKS_OF_USER, "user")
    note, = [c for c in daemon["conditions"] if c["name"] == "job_tasks"]
    assert note["state"] == "note" and f"may have {TASKS_OF_USER} processes and threads together" in note["message"]
    # It is so on every start of such a machine, and no event.
    assert "tasks_of_user" not in lab.log()
    assert lab.carve(ALICE, "job", "cancel", bomb).returncode == 0
    assert jobs.ended(ALICE, bomb)["state"] == "cancelled"
    assert jobs.output(ALICE, "bash", "-c", "ulimit -Hu").strip() == str(TASKS_OF_USER)
    assert lab.serves_still()


def test_jobs_are_beside_a_launcher_that_has_a_cgroup_of_its_own(lab):
    """As systemd makes it for the unit's DelegateSubgroup: the cgroup above it has no processes."""
    above = MOUNT / f"carve-test-{os.getpid()}"
    own = above / "carve-warden"
    own.mkdir(parents=True)
    try:
        lab.kill_daemon()
        lab.before_daemon = ["sh", "-c", f'echo $$ > {own}/cgroup.procs && exec "$@"', "sh"]
        wait_until(lab.can_lock)
        lab.start()
        mine = pathlib.Path(Jobs(lab).output(ALICE, "sh", "-c", MINE + "echo $mine").strip())
        assert mine.parent.parent == above and mine.parent.name.startswith("carve-jobs-")
        assert not (above / "cgroup.procs").read_text()
    finally:
        lab.kill_daemon()
        lab.end_left_behind()
        wait_until(lambda: not any(p.read_text() for p in above.rglob("cgroup.procs")))
        for path in [*sorted(above.rglob("*/"), reverse=True), above]:
            path.rmdir()


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


def away(lab):
    """The warden, and with it the daemon, as systemd has them."""
    lab.daemon.terminate()
    lab.daemon.wait()
    lab.warden.kill()
    lab.warden.wait()


@pytest.mark.attack("8", "a job that ends while its launcher is away, and leaves a process")
def test_processes_left_by_a_job_end_though_its_launcher_was_away(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    id, left, shim, _ = leftover(jobs, ALICE)
    away(lab)
    os.kill(shim, signal.SIGKILL)
    (lab.home(ALICE) / "gate").touch()
    wait_until(lambda: (lab.home(ALICE) / "over").exists())
    anew(lab)
    assert jobs.ended(ALICE, id)["state"] == "lost"
    wait_until(lambda: has_ended(left))


@pytest.mark.attack("8", "a job that leaves a process, and a directory of jobs that was made anew")
def test_processes_left_by_a_job_are_ended_by_another_launcher(service):  # noqa: F811
    """The cgroup's name does not hang on the directory."""
    lab, jobs = service, Jobs(service)
    id, left, shim, _ = leftover(jobs, ALICE)
    directory, = lab.runtime.rglob("*-jobs")
    shutil.rmtree(directory)
    wait_until((directory / "key").exists)
    away(lab)
    anew(lab)
    os.kill(shim, signal.SIGKILL)
    (lab.home(ALICE) / "gate").touch()
    jobs.ended(ALICE, id)
    wait_until(lambda: has_ended(left))


# docker's client, as far as carve asks it. Its container is a file.
DOCKER = """#!/bin/sh
case $1 in
run) for word; do case $word in --cidfile=*) echo c1 > "${word#*=}.new" && mv "${word#*=}.new" "${word#*=}";; esac; done
    echo $$ > HOME/client.new; mv HOME/client.new HOME/client; touch HOME/container
    exec sleep 600;;
rm) sleep 1; rm HOME/container;;
wait) exec sleep 600;;
esac
"""


@pytest.mark.parametrize("uid, also", [(ALICE, ""), (ALICE, "client"), (ROOT, "")])
def test_no_container_is_left_of_a_job_whose_shim_was_killed(jobs, uid, also):
    """The process that removes the container is in the job's cgroup, which is killed after that. carve cannot signal the client of
    root's runtime, which is in no slice: that client ends with its own cgroup."""
    lab, home = jobs.lab, jobs.lab.home(ALICE)
    program = lab.dir / "bin/docker"
    program.parent.mkdir()
    program.write_text(DOCKER.replace("HOME", str(home)))
    program.chmod(0o755)
    id = jobs.enqueue(uid, "true", options=["--docker", "image", "--grace", "1"], queue="sixth",
                      env={"PATH": f"{program.parent}:{os.environ['PATH']}", "CARVE_CONTAINER_RUNTIME": "docker"})
    wait_until((home / "container").exists)
    client = int((home / "client").read_text())
    path = cgroup_of(client).parent
    shim, = [int(pid) for pid in (path / "cgroup.procs").read_text().split() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "carve-shim\n"]
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: has_ended(shim))
    if also == "client":
        os.kill(client, signal.SIGKILL)
    else:
        assert lab.carve(uid, "job", "cancel", id).returncode == 0
    assert jobs.ended(uid, id)["state"] == ("lost" if also else "cancelled")
    assert not (home / "container").exists()
    wait_until(lambda: not path.exists())


@pytest.mark.long
@pytest.mark.attack("8", "a lock on the record of a job whose shim was killed, which would keep the slice")
def test_a_locked_record_keeps_no_job_for_ever(jobs):
    lab = jobs.lab
    id, _, shim, path = leftover(jobs, ALICE)
    record = pathlib.Path(jobs.show(ALICE, id)["log"]).with_suffix(".record")
    locks = lab.popen(ALICE, "flock", record, "sleep", "600")
    wait_until(lambda: lab.run(ALICE, "flock", "--nonblock", record, "true").returncode)
    os.kill(shim, signal.SIGKILL)
    (lab.home(ALICE) / "gate").touch()
    wait_until(lambda: jobs.show(ALICE, id)["state"] == "lost" or None, timeout=100, step=0.5)
    wait_until(lambda: not path.exists())
    assert locks.poll() is None
