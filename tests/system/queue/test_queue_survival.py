"""No job is lost and none runs twice, whoever dies when: the daemon and the shim are killed between every two steps."""
import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

from command import CARVE
from conftest import BUILD, PATIENCE, ROOT, Host, clean_env, process_ended, rest_long, run, wait_until
from disk import fill, small_disk  # noqa: F401: fixtures
from queueing import ENDED, Queues, queues  # noqa: F401: fixtures

DAEMON_POINTS = ["enqueue.committed", "start.chosen", "start.spawned", "start.granted", "end.recorded", "enqueue.begun", "enqueue.durable",
                 "start.recorded", "start.gone", "end.read", "end.left"]
UNSTARTED_POINTS = ["shim.go", "shim.forked", "shim.recorded"]
ENDED_POINTS = ["shim.exit_recorded"]
LOST_POINTS = ["shim.running", "shim.ended"]
# An answer of the daemon's is waited for as long, before it is asked again.
ANSWER_S = 5
OTHER_POINTS = ["shim.released", "cancel.recorded", "enqueue.part"]  # tests of their own


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


@pytest.mark.parametrize("point", rest_long(DAEMON_POINTS, 5))
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


def test_a_job_that_never_began_is_started_again_though_its_record_cannot_grow(queues, armed):
    """A limit of files' sizes (ulimit -f) fails writes as a full disk does: the start is recorded, and that nothing ran cannot be added.
    The next start of root's job fails by the same limit, as its mount namespace needs files: then that is the reason."""
    token = armed("shim.recorded")
    done = queues.host.run(["sh", "-c", f"ulimit -Sf 0; exec {CARVE} enqueue --queue half -- true"])
    assert done.returncode == 0, done.stderr
    job = queues.ended(done.stdout.strip())
    assert not token.exists()
    assert job["state"] == "done" or (job["state"], job["reason"].endswith("File too large")) == ("failed", True), job


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
    assert job["exit_code"] is None and re.search("^exit code +-$", queues.host.carve("job", "show", id).stdout, re.M)
    assert queues.runs(id) == [f"{id} 1 start", f"{id} 1 end"]  # once, and whole


AS_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class UsersHost(Host):
    """Of a user whose daemon can make no cgroup for a job: its processes are found by other means."""

    def __init__(self):
        super().__init__("h100-80gb", wrap=AS_USER)

    def run(self, argv, **kw):
        return super().run([*AS_USER, *argv], **kw)


@pytest.fixture
def users_queues(another_user, tmp_path):
    host = UsersHost()
    with tempfile.TemporaryDirectory(prefix="carve-user-") as directory:
        os.chown(directory, 65534, 65534)
        yield Queues(host, pathlib.Path(directory))
        host.close()


@pytest.mark.parametrize("ignores", [False, True])
def test_a_cancelled_job_is_so_once_its_processes_have_ended_though_its_shim_was_killed(users_queues, ignores):
    """After the death of the daemon, too: the next one sees to the processes that the shim knew."""
    queues = users_queues
    queues.agent("half=0.5")
    ignored = "trap '' TERM; " if ignores else ""
    id = queues.enqueue("sh", "-c", f"({ignored}while :; do sleep 0.1; done) & echo $! > {queues.dir}/left; "
                        f"setsid sleep 1000 & echo $! >> {queues.dir}/left; echo $PPID > {queues.dir}/shim; {queues.gate()}",
                        options=["--grace", "3"])
    wait_until((queues.dir / "shim").exists)
    wait_until(lambda: (queues.dir / "shim").read_text().strip())
    shim = int((queues.dir / "shim").read_text())
    left = [int(pid) for pid in (queues.dir / "left").read_text().split()]
    queues.kill_daemon()
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: process_ended(shim))
    assert not any(map(process_ended, left))
    assert queues.host.carve("job", "cancel", id).returncode == 0
    seen = []
    while queues.state(id) not in ENDED:
        seen.append([process_ended(pid) for pid in left])
    assert all(map(process_ended, left)) and queues.state(id) == "cancelled" and queues.job(id)["exit_code"] is None
    assert not ignores or [False, True] in seen, "it had no grace"


def test_a_command_killed_before_its_program_began_has_failed(queues, armed):
    token = armed("shim.released")
    id = queues.witnessed()
    job = queues.ended(id)
    assert job["state"] == "failed" and job["signal"] == signal.SIGKILL and not token.exists()
    assert queues.runs(id) == []


def test_every_kill_point_of_jobs_has_a_test():
    named = set()
    for room in ("src/daemon/queue", "src/shim"):
        for path in (ROOT / room).glob("*.c"):
            named |= set(re.findall(r'kill_point\("([^"]+)"\)', path.read_text()))
    assert named == {*DAEMON_POINTS, *UNSTARTED_POINTS, *ENDED_POINTS, *LOST_POINTS, *OTHER_POINTS}


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


def test_a_job_whose_daemon_died_as_it_began_brings_one_back(queues, tmp_path):
    """Nobody else is there to do so: the job's slice waits for a daemon."""
    token = tmp_path / "token"
    queues.host.env["CARVE_KILL_POINT"] = f"start.gone:{token}"
    queues.agent("half=0.5")
    first = queues.witnessed(queues.gate())
    queues.wait_state(first, "running")
    second = queues.witnessed(options=["--after", first])
    token.touch()
    queues.open_gate()
    wait_until(lambda: len(queues.runs()) == 4)  # the jobs' own file: no command looks for a daemon
    assert not token.exists() and len(queues.runs(second)) == 2


def test_a_job_whose_daemon_is_away_for_long_as_it_begins_runs(queues, tmp_path):
    """The supervisor holds the sockets: the job's request waits there, longer than one answer is waited for."""
    token = tmp_path / "token"
    queues.host.env["CARVE_KILL_POINT"] = f"start.gone:{token}"
    queues.agent("half=0.5")
    daemon = queues.host.daemon_pid()
    supervisor = int(pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"], "lock").read_text().split()[0])
    assert supervisor != daemon
    first = queues.witnessed(queues.gate())
    queues.wait_state(first, "running")
    id = queues.witnessed(options=["--after", first])
    os.kill(supervisor, signal.SIGSTOP)
    token.touch()
    queues.open_gate()
    wait_until(lambda: not token.exists() and process_ended(daemon))
    time.sleep(ANSWER_S + 1)
    assert queues.runs(id) == []
    os.kill(supervisor, signal.SIGCONT)
    assert queues.ended(id)["state"] == "done", queues.job(id)
    assert queues.runs(id) == [f"{id} 1 start", f"{id} 1 end"]


def parent_of_command(record):
    """The process ID of a job's shim, by the job's record."""
    return int(pathlib.Path(f"/proc/{json.loads(record.read_text())['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1])


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


@pytest.mark.parametrize("spoil", rest_long(["link", "noise", "directory", "too much"], 2))
def test_a_job_whose_record_cannot_be_read_is_not_run_again(queues, spoil):
    queues.agent("half=0.5")
    id = queues.witnessed(queues.gate())
    wait_until(lambda: queues.runs(id))  # its shim has let it run
    record = pathlib.Path(queues.job(id)["log"]).with_suffix(".record")
    wait_until(lambda: record.exists() and record.read_text().endswith("\n"))
    shim = parent_of_command(record)
    wait_until(lambda: len(queues.runs(id)) == 1)  # until then the command waits for the shim
    os.kill(shim, signal.SIGSTOP)  # it would see to another daemon
    queues.kill_daemon()
    queues.open_gate()
    wait_until(lambda: len(queues.runs(id)) == 2)
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: process_ended(shim))
    record.unlink()
    if spoil == "directory":
        record.mkdir()
    elif spoil == "link":
        record.symlink_to("/dev/null")
    else:
        record.write_text("noise\n" if spoil == "noise" else "{}\n" * 100000)
    job = queues.ended(id)
    assert job["state"] == "lost" and "cannot be read" in job["reason"], job
    assert len(queues.runs(id)) == 2


@pytest.mark.parametrize("by", ["shim", "command"])
def test_a_daemon_that_a_job_had_to_start_outlives_the_job(queues, by, tmp_path):
    """And so do the jobs that this daemon started, as all of them descend from that job's shim."""
    held = "until [ -e {} ]; do sleep 0.02; done"
    dead, first, second = (tmp_path / name for name in ("dead", "first", "second"))
    calls = f"{held.format(dead)}; {CARVE} queue list >/dev/null; " if by == "command" else ""
    queues.agent("half=0.5")
    early = queues.witnessed(calls + held.format(first))
    queues.wait_state(early, "running")
    pid = queues.host.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_ended(pid))
    dead.touch()
    lock = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]) / "lock"
    wait_until(lambda: lock.read_text().strip() not in ("", str(pid)) and not process_ended(int(lock.read_text())))
    revived = queues.host.daemon_pid()
    late = queues.witnessed(held.format(second))
    queues.wait_state(late, "running")
    first.touch()
    assert queues.ended(early)["state"] == "done"
    assert queues.host.daemon_pid() == revived and queues.state(late) == "running"
    # Its parent is gone, and with it the way to find what it started.
    os.kill(revived, signal.SIGKILL)
    wait_until(lambda: process_ended(revived))
    second.touch()
    assert queues.ended(late)["state"] == "done"
    assert len(queues.runs()) == 4


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


def end_all_of(queues, id):
    """The machine goes down: the daemon, the shim and what it runs end without a word. Returns the job's log path."""
    log = pathlib.Path(queues.job(id)["log"])
    record = log.with_suffix(".record")
    wait_until(lambda: record.exists() and record.read_text().endswith("\n"))
    command, shim = json.loads(record.read_text())["pid"], parent_of_command(record)
    os.kill(shim, signal.SIGSTOP)  # it would see to another daemon
    queues.kill_daemon()
    for pid in (shim, command):
        (os.killpg if pid == command else os.kill)(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
    return log


def state_directory(log):
    return log.parent.parent.parent


@pytest.mark.parametrize("retries, state, runs", [("0", "lost", 1), ("1", "done", 3)])
def test_a_job_that_ran_when_the_machine_went_down_is_lost(queues, retries, state, runs):
    queues.agent("half=0.5")
    id = queues.witnessed("[ $CARVE_JOB_ATTEMPT -gt 1 ] || sleep 1000", options=["--retries", retries])
    wait_until(lambda: queues.runs(id))
    log = end_all_of(queues, id)
    with sqlite3.connect(state_directory(log) / "queue.db") as db:
        db.execute("UPDATE job SET boot='another'")
    db.close()
    job = queues.ended(id)
    assert job["state"] == state and len(queues.runs(id)) == runs
    assert state == "done" or "machine went down" in job["reason"]


def test_a_start_that_the_database_lost_is_not_made_again(queues):
    """After a power cut the database may be older than the records are."""
    queues.agent("half=0.5")
    id = queues.witnessed("sleep 1000")
    wait_until(lambda: queues.runs(id))
    log = end_all_of(queues, id)
    with sqlite3.connect(state_directory(log) / "queue.db") as db:
        db.execute("UPDATE job SET state=0, attempt=0, pid=0, birth=0, boot='', session='', started=0")
    db.close()
    assert queues.ended(id)["state"] == "lost" and len(queues.runs(id)) == 1


def test_an_end_that_the_database_lost_is_known_by_its_record(queues, armed):
    """The power goes just after a job has ended, and of the database only the part before its start is on the disk."""
    token = armed("end.left")
    token.unlink()
    queues.host.carve("agent", "--drain")
    id = queues.witnessed()
    state = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"])
    with sqlite3.connect(state / "queue.db") as db, sqlite3.connect(state / "before") as before:
        db.backup(before)
        before.execute("PRAGMA journal_mode=DELETE")
    db.close()
    before.close()
    pid = queues.host.daemon_pid()
    supervisor = int((state / "lock").read_text().split()[0])
    os.kill(supervisor, signal.SIGSTOP)
    token.touch()
    resuming = queues.host.popen([CARVE, "agent", "--resume"])
    wait_until(lambda: not token.exists() and process_ended(pid))
    for number in (signal.SIGTERM, signal.SIGCONT):
        os.kill(supervisor, number)
    wait_until(lambda: process_ended(supervisor))
    resuming.kill()
    resuming.wait()
    for name in ("queue.db-wal", "queue.db-shm"):
        (state / name).unlink(missing_ok=True)
    (state / "before").rename(state / "queue.db")
    queues.host.carve("agent", "--resume")
    assert queues.ended(id)["state"] == "done"
    assert queues.runs(id) == [f"{id} 1 start", f"{id} 1 end"]


def test_records_go_once_the_end_is_on_the_disk(queues):
    queues.agent("half=0.5")
    log = pathlib.Path(queues.ended(queues.enqueue("true"))["log"])
    wait_until(lambda: not list(log.parent.glob("*.record")))


def test_a_damaged_database_of_jobs_stops_queues_alone(queues):
    queues.agent("half=0.5")
    id = queues.witnessed()
    log = pathlib.Path(queues.ended(id)["log"])
    queues.kill_daemon()
    for name in ("queue.db-wal", "queue.db-shm"):
        (state_directory(log) / name).unlink(missing_ok=True)
    (state_directory(log) / "queue.db").write_bytes(b"no database" * 1000)
    assert queues.host.carve("gpu", "list").returncode == 0
    done = queues.host.carve("job", "list")
    assert done.returncode == 1 and "damaged" in done.stderr and "queue.db" in done.stderr


def test_a_database_of_jobs_of_another_version_is_kept_and_check_says_so(queues):
    queues.agent("half=0.5")
    id = queues.ended(queues.enqueue("true"))["id"]
    path = state_directory(pathlib.Path(queues.job(id)["log"])) / "queue.db"

    def version(new):
        queues.kill_daemon()
        with contextlib.closing(sqlite3.connect(path)) as db:
            was, = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version={new}")
        return was

    was = version(99)
    says = f"cannot use the database of jobs {path}: another version of carve wrote it; install that version again, or move the database away"
    done = queues.host.carve("enqueue", "--queue", "half", "true")
    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert queues.host.carve("session", "list").returncode == 0
    check = queues.host.carve("check")
    assert check.returncode == 1 and says in check.stdout, check.stdout
    version(was)
    assert queues.job(id)["state"] == "done"


def test_a_database_of_the_version_before_is_taken(queues):
    """Its agents had hooks, and each end a number of which it kept no last one."""
    agent = queues.agent("half=0.5")
    ended = queues.ended(queues.enqueue("true"))["id"]
    state = state_directory(pathlib.Path(queues.job(ended)["log"]))
    queues.kill_daemon()
    with contextlib.closing(sqlite3.connect(state / "queue.db")) as db:
        db.executescript("""
            ALTER TABLE number DROP COLUMN change;
            ALTER TABLE number DROP COLUMN id;
            CREATE TABLE told(agent TEXT PRIMARY KEY, change INTEGER NOT NULL) WITHOUT ROWID;
            INSERT INTO told VALUES('a-9', 7);
            PRAGMA user_version=8;""")
        db.execute("UPDATE agent SET text=json_set(text, '$.hook', json('{\"argv\": [\"/bin/true\"]}'))")
        db.commit()
    assert queues.job(ended)["state"] == "done"
    assert [a["id"] for a in queues.host.carve_json("agent", "list")] == [agent["id"]]
    later = queues.ended(queues.enqueue("true"))["id"]
    with contextlib.closing(sqlite3.connect(state / "queue.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (9,)
        assert db.execute("SELECT last FROM number").fetchone()[0] >= int(later)
        # The end after the last that a hook had been told of.
        wait_until(lambda: db.execute("SELECT change FROM job WHERE id=?", [later]).fetchone()[0] == 8)


def test_jobs_of_an_empty_database_have_no_files_of_others(queues):
    """A damaged database was moved away while a job ran: the next jobs do not take its number, log and record."""
    queues.agent("half=0.5")
    old = [queues.enqueue("echo", "old"), queues.witnessed(f"echo old; {queues.gate()}")]
    assert queues.ended(old[0])["state"] == "done"
    wait_until(lambda: queues.runs(old[1]))
    log, pid = pathlib.Path(queues.job(old[1])["log"]), queues.host.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: process_ended(pid))
    for path in state_directory(log).glob("queue.db*"):
        path.unlink()
    queues.agent("half=0.5")
    new = queues.enqueue("sh", "-c", f"echo new; {queues.gate('later')}")
    assert int(new) > max(map(int, old))
    queues.wait_state(new, "running")
    queues.open_gate()
    wait_until(lambda: len(queues.runs(old[1])) == 2)
    queues.open_gate("later")
    assert queues.ended(new)["state"] == "done"
    assert queues.host.carve("job", "logs", new).stdout == "new\n" and log.read_text() == "old\n"


# Job, attempt, process, boot, what: a line each at the start and at the end of every run.
WITNESS_OF_KILLS = 'read B </proc/sys/kernel/random/boot_id; echo "$CARVE_JOB_NAME $CARVE_JOB_ATTEMPT $$ $B start" >>"$W"; ' \
                   'sleep $0; echo "$CARVE_JOB_NAME $CARVE_JOB_ATTEMPT $$ $B end" >>"$W"'


class Enqueuer(threading.Thread):
    """Enqueues jobs by the command, one after the other, while the daemon is killed. `known`: an ID was printed. A command may
    fail: on a busy machine daemons are killed before any of them answers."""

    def __init__(self, queues, count, lasts):
        super().__init__()
        self.queues, self.count, self.lasts, self.known = queues, count, lasts, {}

    def run(self):
        for number in range(self.count):
            # Nobody waits for the end of those: room for as many again, so that the kills meet jobs at every step.
            while len(self.known) - len(self.queues.runs()) // 2 > 40:
                time.sleep(0.02)
            name = f"n{number}"
            done = self.queues.host.carve("enqueue", "--queue", "half", "--name", name, "--", "sh", "-c", WITNESS_OF_KILLS,
                                          str(self.lasts[number]))
            if done.returncode == 0:
                self.known[name] = done.stdout.strip()


def workers_of(supervisor):
    try:
        children = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return [int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "carved\n"]
    except OSError:
        return []


def judge(jobs, runs, enqueuer, boot):
    """No job is lost and none is there twice; the witness saw each once, whole, in one process."""
    names = [j["name"] for j in jobs]
    assert len(names) == len(set(names)) and set(enqueuer.known) <= set(names)
    assert all(j["id"] == enqueuer.known[j["name"]] for j in jobs if j["name"] in enqueuer.known)
    assert [(j["id"], j["state"], j["reason"]) for j in jobs if j["state"] != "done"] == []
    seen = {}
    for line in runs:
        name, attempt, pid, its_boot, what = line.split()
        seen.setdefault(name, []).append((attempt, pid, its_boot, what))
    assert set(seen) == set(names)
    for name, lines in seen.items():
        pid = lines[0][1]
        assert lines == [("1", pid, boot, "start"), ("1", pid, boot, "end")], (name, lines)


@pytest.mark.parametrize("jobs, kills", [(60, 40), pytest.param(1000, 1000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_random_kills_under_many_jobs(queues, jobs, kills):
    """The daemon or its supervisor is killed again and again, at any step, while jobs are enqueued, run and end: each runs exactly once."""
    dice = random.Random(24)
    queues.agent("half=0.1")
    enqueuer = Enqueuer(queues, jobs, [round(dice.uniform(0, 0.4 if jobs < 1000 else 2), 2) for _ in range(jobs)])
    enqueuer.start()
    lock = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]) / "lock"
    killed = missed = 0
    while killed < kills:
        time.sleep(dice.uniform(0, 0.06))
        supervisor = int((lock.read_text().split() or ["0"])[0])
        pid = dice.choice([supervisor, *workers_of(supervisor)])
        if pid and not process_ended(pid):
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: process_ended(pid))
            killed, missed = killed + 1, 0
            continue
        missed += 1
        # Nobody but a client starts another supervisor.
        if missed > 20 or not enqueuer.is_alive():
            queues.host.carve("queue", "list")
    enqueuer.join()

    def listed():
        return json.loads(queues.host.carve("job", "list", "--json", "--last", "100000").stdout or "[]")

    wait_until(lambda: listed() and all(j["state"] in ENDED for j in listed()), timeout=120, step=0.2)
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    judge(listed(), queues.runs(), enqueuer, boot)


def test_an_upgrade_under_load_loses_and_repeats_nothing(queues):
    queues.agent("half=0.1")
    id = queues.witnessed("sleep 0.0$((CARVE_JOB_INDEX % 10))", options=["--array", "0-99"])
    for _ in range(4):
        begun = len(queues.runs())
        wait_until(lambda: len(queues.runs()) > begun or all(j["state"] == "done" for j in queues.jobs(id)))
        done = queues.host.run([BUILD / "carved", "--runtime-dir", queues.host.env["CARVE_RUNTIME_DIR"], "--takeover"])
        assert done.returncode == 0, done.stderr
    assert {j["state"] for j in queues.ended(id)} == {"done"}
    assert sorted(queues.runs()) == sorted(f"{id}_{i} 1 {what}" for i in range(100) for what in ("start", "end"))


def test_a_full_disk_refuses_jobs_and_forgets_none(queues, small_disk):
    """The end of one that runs then is written once there is room."""
    runtime, filler = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]), small_disk / "filler"
    daemon = queues.host.popen([BUILD / "carved", "--runtime-dir", runtime, "--state-dir", small_disk / "state", "--foreground"])
    wait_until((runtime / "carved.sock").exists)
    queues.agent("half=0.5")
    running = queues.witnessed(queues.gate())
    wait_until(lambda: queues.runs(running))
    fill(filler)

    def refused():
        done = queues.host.carve("enqueue", "--queue", "half", "--", "sh", "-c", ": " + "x" * 20000)
        return done if done.returncode else None

    wait_until(refused)
    done = refused()
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "the disk is full" in done.stderr, done.stderr
    queues.open_gate()
    wait_until(lambda: len(queues.runs(running)) == 2)
    filler.unlink()
    assert queues.ended(running)["state"] == "done" and len(queues.runs(running)) == 2
    later = queues.witnessed()
    assert queues.ended(later)["state"] == "done"
    daemon.terminate()
    daemon.communicate()


@pytest.mark.parametrize("asked", [False, True], ids=["by itself", "by SIGTERM"])
def test_a_shim_whose_record_nobody_will_read_ends_and_says_so(queues, tmp_path, asked):
    """The daemon is dead and its directories are gone: the job's end cannot be written."""
    runtime, log = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]), tmp_path / "log"
    with open(log, "w") as file:
        daemon = queues.host.popen([BUILD / "carved", "--runtime-dir", runtime, "--foreground"], stdout=file, stderr=file)
    wait_until((runtime / "carved.sock").exists)
    queues.agent("half=0.5")
    id = queues.witnessed(queues.gate())
    wait_until(lambda: queues.runs(id))
    record = pathlib.Path(queues.job(id)["log"]).with_suffix(".record")
    shim = parent_of_command(record)
    os.kill(shim, signal.SIGSTOP)  # it would see to another daemon
    daemon.kill()
    daemon.communicate()
    shutil.rmtree(runtime)
    os.kill(shim, signal.SIGCONT)
    queues.open_gate()
    wait_until(lambda: len(queues.runs(id)) == 2)
    wait_until(lambda: process_ended(shim) or (asked and os.kill(shim, signal.SIGTERM)))
    assert f"carve-shim: the end of job {id} is not recorded: {record}: No such file or directory" in log.read_text()


@pytest.mark.parametrize("removed", [False, True], ids=["record", "no record"])
def test_a_job_whose_end_cannot_be_recorded_says_so(queues, removed):
    """Its shim tries for long; a second SIGTERM ends that. A limit of files' sizes fails writes as a full disk does."""
    queues.agent("half=0.5")
    id = queues.witnessed(queues.gate())
    wait_until(lambda: queues.runs(id))
    record = pathlib.Path(queues.job(id)["log"]).with_suffix(".record")
    shim = parent_of_command(record)
    resource.prlimit(shim, resource.RLIMIT_FSIZE, (0, 0))
    if removed:
        record.unlink()
    queues.open_gate()
    wait_until(lambda: len(queues.runs(id)) == 2)
    wait_until(lambda: process_ended(shim) or os.kill(shim, signal.SIGTERM))
    job = queues.ended(id)
    assert job["state"] == "lost" and job["reason"] == "its shim could not record its end: File too large", job
    wait_until(lambda: not list(record.parent.glob(f"{record.stem}.[!l]*")))


def test_a_shim_ends_with_its_simulated_host(queues):
    queues.agent("half=0.5")
    id = queues.witnessed(queues.gate())
    wait_until(lambda: queues.runs(id))
    record = pathlib.Path(queues.job(id)["log"]).with_suffix(".record")
    shim = parent_of_command(record)
    queues.host.close()
    wait_until(lambda: process_ended(shim))


def test_a_process_that_has_a_jobs_number_now_is_not_the_job(queues):
    """Its number was given to another process while no daemon ran: the job is lost, and that process is left alone."""
    queues.agent("half=0.5")
    id = queues.witnessed("sleep 1000")
    wait_until(lambda: queues.runs(id))
    log = end_all_of(queues, id)
    other = subprocess.Popen(["sleep", "1000"])
    record = log.with_suffix(".record")
    record.write_text(re.sub(r'"pid": ?\d+', f'"pid": {other.pid}', record.read_text()))
    with sqlite3.connect(state_directory(log) / "queue.db") as db:
        db.execute("UPDATE job SET pid=?", (other.pid,))
    db.close()
    assert queues.ended(id)["state"] == "lost"
    queues.host.carve("job", "cancel", id)
    assert other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("days", [-2, 2])
def test_a_stepped_clock_ends_no_job_and_starts_none_twice(queues, days):
    """Times that were written before the step are days ahead, or days ago."""
    queues.agent("half=0.5,max=1")
    running = queues.witnessed(queues.gate(), options=["--time", "1h"])
    waiting = queues.witnessed()
    wait_until(lambda: queues.runs(running))
    database = state_directory(pathlib.Path(queues.job(running)["log"])) / "queue.db"
    pid = queues.host.daemon_pid()
    shim = queues.job(running)["log"]
    record = pathlib.Path(shim).with_suffix(".record")
    parent = parent_of_command(record)
    os.kill(parent, signal.SIGSTOP)  # it would see to another daemon
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_ended(pid))
    with sqlite3.connect(database) as db:
        db.execute("UPDATE job SET started=started+? WHERE started", (days * 86400 * 10**9,))
        db.execute("UPDATE job SET enqueued=enqueued+?", (days * 86400 * 10**9,))
    db.close()
    os.kill(parent, signal.SIGCONT)
    assert queues.state(running) == "running" and queues.state(waiting) == "queued"
    queues.open_gate()
    assert [queues.ended(id)["state"] for id in (running, waiting)] == ["done", "done"]
    assert queues.runs() == [f"{id} 1 {what}" for id in (running, waiting) for what in ("start", "end")]


def test_the_log_is_what_tee_writes(queues, tmp_path):
    """Whatever order its processes write in, and however often the daemon is killed meanwhile."""
    script = tmp_path / "script"
    script.write_text("""for i in $(seq 400); do echo "out $i"; printf 'err %s\\r\\0\\377' $i >&2; [ $((i % 40)) != 0 ] || sleep 0.05; done
(head -c 300000 /dev/zero | tr '\\0' x; echo from a child)
printf 'no newline at the end'""")
    tee = tmp_path / "tee"
    subprocess.run(f"sh {script} 2>&1 | tee {tee} >/dev/null", shell=True, check=True)
    queues.agent("half=0.5")
    id = queues.enqueue("sh", str(script))
    wait_until(lambda: queues.state(id) == "running" or queues.state(id) in ENDED)
    for _ in range(3):
        pid = queues.host.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
        queues.host.carve("queue", "list")
    job = queues.ended(id)
    assert job["state"] == "done"
    assert pathlib.Path(job["log"]).read_bytes() == tee.read_bytes()
    assert queues.host.run(["sh", "-c", f"{CARVE} job logs {id} | cmp - {tee}"]).returncode == 0


def test_a_daemon_that_is_killed_while_no_job_runs_is_started_again(queues):
    """Jobs wait for a time, and no command comes: its supervisor alone sees to it."""
    queues.agent("half=0.5")
    id = queues.witnessed(options=["--begin", "now+5s"])
    for _ in range(2):  # the next daemon is as safe
        os.kill(queues.host.daemon_pid(), signal.SIGKILL)
    wait_until(lambda: len(queues.runs(id)) == 2)


def test_the_queue_goes_on_where_nobody_starts_the_next_daemon(queues, tmp_path):
    """It is killed with a job that runs, and just after that one has ended."""
    token = tmp_path / "token"
    queues.host.env["CARVE_KILL_POINT"] = f"end.read:{token}"
    queues.agent("half=0.5,max=1")
    first = queues.witnessed(queues.gate())
    waiting = [queues.witnessed(options=["--after", first]) for _ in range(2)]
    wait_until(lambda: len(queues.runs()) == 1)
    os.kill(queues.host.daemon_pid(), signal.SIGKILL)
    token.touch()
    queues.open_gate()
    wait_until(lambda: all(len(queues.runs(id)) == 2 for id in waiting))
    assert not token.exists()


def test_a_process_that_a_job_starts_without_a_daemon_has_its_slice(queues, programs, examples):
    """Nobody but the job's shim sees to the next daemon, and it does so while the job runs."""
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", f"{queues.gate()}; {examples}/hog")
    queues.wait_state(id, "running")
    pid = queues.host.daemon_pid()
    lock = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"], "lock")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: queues.host.run(["curl", "-s", "--unix-socket", lock.parent / "carved.sock",
                                        "http://localhost/v1/version"]).returncode == 0)
    queues.open_gate()
    assert queues.ended(id)["state"] == "done", queues.host.carve("job", "logs", id).stdout
    assert "this GPU has 40" in queues.host.carve("job", "logs", id).stdout


def test_jobs_end_with_their_simulated_host(tmp_path):
    """The host's command ends; a job that ran there is gone soon, and so is its shim."""
    done = run([BUILD / "carve", "sim", "--", "sh", "-c",
                f"{BUILD}/carve agent --detached --queue half=0.5 >&2 && "
                f"{BUILD}/carve enqueue --queue half sh -c 'echo $$ $PPID >{tmp_path}/pid; exec sleep 1000' >&2 && "
                f"until [ -s {tmp_path}/pid ]; do sleep 0.05; done"], env=clean_env())
    assert done.returncode == 0, done.stderr
    for pid in (tmp_path / "pid").read_text().split():
        wait_until(lambda: process_ended(int(pid)))  # noqa: B023


def test_jobs_move_with_the_state_directory(queues, tmp_path):
    """There and back by `mv`, with jobs that wait and one that runs meanwhile."""
    queues.agent("half=0.5,max=1")
    ended = queues.enqueue("echo", "out")
    queues.ended(ended)
    running, waiting = queues.witnessed(queues.gate()), queues.witnessed()
    wait_until(lambda: len(queues.runs()) == 1)
    runtime = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"])
    daemon, before = None, runtime
    for state in (tmp_path / "state", runtime, tmp_path / "third"):
        pid = queues.host.daemon_pid()
        os.kill(pid, signal.SIGTERM)
        if daemon:
            daemon.communicate()
        wait_until(lambda: process_ended(pid))
        assert run(["sh", "-c", f"mkdir -p {state} && chmod 700 {state} && cd {before} && mv *.db* jobs {state}"]).returncode == 0
        before = state
        daemon = queues.host.popen([BUILD / "carved", "--runtime-dir", runtime, "--state-dir", state, "--foreground"])
        wait_until(lambda: queues.host.run(["curl", "-s", "--unix-socket", runtime / "carved.sock", "http://localhost/v1/version"]).returncode == 0)
        assert (state / "queue.db").exists() and len(list(tmp_path.glob("*/queue.db"))) + (runtime / "queue.db").exists() == 1
        assert queues.host.carve("job", "logs", ended).stdout == "out\n"
        assert queues.state(running) == "running" and queues.state(waiting) == "queued"
    queues.open_gate()
    assert queues.ended(waiting)["state"] == "done" and queues.state(running) == "done"
    assert len(queues.runs()) == 4
    daemon.terminate()
    daemon.communicate()


def test_a_record_that_was_removed_is_there_when_the_job_ends(queues):
    queues.agent("half")
    id = queues.enqueue("sh", "-c", queues.gate() + "; exit 7", options=("--vram", "4"))
    jobs = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]) / "jobs" / str(os.getuid())
    record = jobs / f"{id}.1.record"
    wait_until(lambda: record.exists() and "start" in record.read_text())
    # The daemon may make files anew while they are removed: then what is left of them is not empty.
    shutil.rmtree(jobs.parent, ignore_errors=True)
    wait_until(jobs.exists)
    queues.open_gate()
    ended = queues.ended(id)
    assert (ended["state"], ended["exit_code"]) == ("failed", 7)


def test_a_claim_outlives_the_daemon_and_ends_no_second_job(queues):
    queues.agent("half=0.5", gpus="0")
    body = f"trap '' TERM; {queues.gate()}"
    lows = [queues.witnessed(body, options=("--requeue", "--priority", "-1", "--grace", "600s")) for _ in range(2)]
    for low in lows:
        queues.wait_state(low, "running")
        wait_until(lambda: queues.runs(low))

    def ending():
        return [low for low in lows if queues.job(low)["reason"].startswith("preempted")]
    high = queues.witnessed()
    wait_until(ending)
    victim, = ending()
    pid = queues.host.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_ended(pid))
    queues.wait_state(high, "queued")
    # A decision of the next daemon's has been made when it knows why the job waits.
    wait_until(lambda: queues.job(high)["reason"].startswith("it starts when"))
    assert ending() == [victim]
    queues.open_gate()
    assert queues.ended(high)["state"] == "done"
    assert [queues.ended(low)["attempt"] for low in lows] == [2 if low == victim else 1 for low in lows]
