"""A worker that was broken into has what root enqueued, and wants to be root by it. It owns the state directory."""
import contextlib
import errno
import os
import pathlib
import shutil
import signal
import sqlite3
import struct

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, ROOT, as_user
from .test_jobs import Jobs
from .test_warden_service import anew, service  # noqa: F401
from .worker import END, OVER, PODS, REMOVE, TASK_POD, Worker, head_of, run_of, text_of

GO = struct.pack("<II32s", 0x4D494853, 0, b"s-abcdef")


@pytest.fixture
def worker(service):  # noqa: F811
    """In the place of the daemon, whose link it has."""
    service.kill_daemon()
    wait_until(service.can_lock)
    worker = Worker(service)
    yield worker
    worker.close()


@pytest.mark.attack("3", "root's job with another driver, image, attach socket or option of a container")
def test_nothing_of_the_workers_is_put_beside_roots_text(worker):
    text = text_of("true")
    warrant = worker.vouch(ROOT, text)
    evil = b'{"job":"1","attempt":1,"driver":{"cuda":"/tmp/evil.so","nvml":"/tmp/evil.so","paths":""},"attach":"/tmp/evil"}'
    image = b'{"image":"evil","images":{"half":"evil"}}'
    # Behind the text; as words of an agent's owner, vouched for by nobody or by another user; and within the text.
    assert worker.start(head_of(warrant, text) + evil) == errno.EINVAL
    assert worker.start(head_of(warrant, text, owners=image)) == errno.EINVAL
    assert worker.start(head_of(warrant, text, task=TASK_POD, owners=image)) == errno.EKEYREVOKED
    alices = worker.vouch(ALICE, image, PODS)
    assert worker.start(head_of(warrant, text, task=TASK_POD, owners=image, owner_warrant=alices)) == errno.EPERM
    assert worker.start(head_of(warrant, text_of("true", image="evil"))) == errno.EKEYREJECTED
    assert worker.start(head_of(warrant, text_of("true", container_args=["--privileged"]))) == errno.EKEYREJECTED
    for queue in (b"--privileged", b"../x", b"half\0--x", b"half\n", b"x" * 64):
        assert worker.start(head_of(warrant, text, run_of(queue=queue))) == errno.EINVAL, queue
    assert worker.start(head_of(warrant, text)) == 0


@pytest.mark.attack("3", "the warrant of one job with the text of another, or of another kind")
def test_a_warrant_is_for_one_text_of_one_kind(worker):
    text, other = text_of("sh"), text_of("true")
    warrant, bobs = worker.vouch(ROOT, text), worker.vouch(BOB, other)
    assert worker.start(head_of(warrant, other)) == errno.EKEYREJECTED
    assert worker.start(head_of(bobs, text)) == errno.EKEYREJECTED
    # The worker writes to the pipe of a shim. As the standard input of a shell that root enqueued it would be commands.
    for kind in (0, 2, 4):
        assert worker.start(head_of(warrant, text, run_of(job=0, grace_ns=0, queue=b""), kind), job=0) == errno.EINVAL, kind
    assert worker.start(head_of(worker.vouch(ROOT, text, PODS), text)) == errno.EKEYREJECTED
    # Not as another job than the launcher was told of, whose cgroup it would share.
    assert worker.start(head_of(warrant, text, run_of(job=2)), job=1) == errno.EINVAL


@pytest.mark.attack("3", "a session that is an option or a path")
def test_a_session_is_an_id_or_nothing_runs(worker):
    lab, text = worker.lab, text_of("true")
    files = pathlib.Path(f"{lab.runtime}/state-jobs/0")
    for attempt, session in enumerate((b"--x", b"../../x", b"s-", b"s-abc\0x", b"S-ABCDEF"), 1):
        assert worker.start(head_of(worker.vouch(ROOT, text, attempts=9), text, run_of(attempt=attempt)), attempt=attempt) == 0
        os.write(worker.got, struct.pack("<II32s", 0x4D494853, 0, session))
        wait_until(lambda: not shims(files))  # noqa: B023
        assert not list(files.glob("*.record")), session
    # The shim of a session that could be begins at once.
    assert worker.start(head_of(worker.vouch(ROOT, text, attempts=9), text, run_of(attempt=9)), attempt=9) == 0
    os.write(worker.got, GO)
    wait_until((files / "1.9.record").exists)
    assert worker.ask(END, 1, 9)[0] == 0  # it waits for a daemon


def shims(directory):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{directory}\0".encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


# As the worker's user, in the worker's state directory and in the directory of root's jobs.
RENAMES = """
cd {state}
mv {jobs} elsewhere
ln -s {victim} {jobs}/0/{next}.1.log
ln {victim} {jobs}/0/{next}.1.record
echo evil > {jobs}/0/{next}.1.cid
mkdir {jobs}/0/{next}.1.log
rm -f {jobs}/0/* {jobs}/key
mv {jobs}/0 {jobs}/1
rm -rf jobs; ln -s /etc jobs; true
"""


@pytest.mark.attack("3", "links and renamed directories where root's shim opens files")
def test_the_worker_decides_nothing_on_the_way_to_a_jobs_files(lab):
    jobs = Jobs(lab)
    first = jobs.enqueue(ROOT, "true")
    jobs.ended(ROOT, first)
    log = pathlib.Path(jobs.show(ROOT, first)["log"])
    state = lab.runtime / "state"
    user = state.stat().st_uid
    assert user not in (ROOT, ALICE) and log.parent.parent == lab.runtime / "state-jobs"
    victim = lab.dir / "victim"
    victim.write_text("root's")
    victim.chmod(0o666)
    done = lab.run(ROOT, *as_user(user), "sh", "-c",
                   RENAMES.format(state=state, jobs=log.parent.parent, victim=victim, next=int(first) + 1))
    assert done.returncode == 0 and done.stderr.count("ermission denied") >= 6, done.stderr
    second = jobs.enqueue(ROOT, "echo", "out")
    assert jobs.ended(ROOT, second)["state"] == "done"
    assert lab.carve(ROOT, "job", "logs", second).stdout == "out\n"
    assert log.exists() and victim.read_text() == "root's"


@pytest.mark.attack("3", "files that are no attempt's, removed by way of the launcher")
def test_the_launcher_removes_files_of_attempts_alone(worker):
    lab, text = worker.lab, text_of("true")
    assert worker.start(head_of(worker.vouch(ALICE, text), text)) == 0
    files = lab.runtime / "state-jobs" / str(ALICE)
    wait_until(files.exists)
    for name in ("7.1.record", "7.1.log", "7.1.other", "7.10.log"):
        (files / name).touch()
    (files / "7.1.cid").symlink_to(lab.runtime / "state-jobs" / "key")
    assert worker.ask(REMOVE, 7, 1, user=ALICE, files=0x7F)[0] == 0
    assert sorted(path.name for path in files.glob("7.*")) == ["7.1.other", "7.10.log"]
    assert (lab.runtime / "state-jobs" / "key").exists()
    assert worker.ask(REMOVE, 7, 1, user=ALICE, files=0x80)[0] == errno.EINVAL
    assert worker.ask(REMOVE, 7, 0, user=ALICE, files=1)[0] == errno.EINVAL


# ---- rights, which are spent ------------------------------------------------------------------------------------------------------

class Kept:
    """A daemon's database, which the worker has kept a copy of: the texts of jobs, and their warrants."""

    def __init__(self, lab):
        with contextlib.closing(sqlite3.connect(lab.runtime / "state" / "queue.db")) as db:
            self.specs = [(bytes(text.encode()), warrant) for text, warrant in db.execute("SELECT text, warrant FROM spec ORDER BY id")]

    def replay(self, worker, which, job, attempt=1, **more):
        """Has a job of `which` text start once more, with go: the errno value of the launcher, or 0."""
        text, warrant = self.specs[which]
        error = worker.start(head_of(warrant, text, run_of(job=job, attempt=attempt, **more)), job, attempt)
        if not error:
            os.write(worker.got, GO)
        return error


def worker_instead(lab):
    lab.kill_daemon()
    wait_until(lab.can_lock)
    return contextlib.closing(Worker(lab))


def launcher_anew(lab):
    lab.warden.kill()
    lab.warden.wait()
    (lab.runtime / "warden.sock").unlink()
    lab.warden = lab.start_warden()


@pytest.mark.attack("3", "a job of root's that has run, from a copy of the database, over a restart of the launcher")
def test_a_job_that_has_run_is_not_run_again(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    runs = lab.dir / "runs"
    id = jobs.enqueue(ROOT, "sh", "-c", f"echo ran >> {runs}", options=("--retries", "3"))
    assert jobs.ended(ROOT, id)["state"] == "done"
    kept = Kept(lab)
    with worker_instead(lab) as worker:
        for attempt in (1, 2, 4, 5, 65534, 65535, 1 << 31):
            assert kept.replay(worker, 0, int(id), attempt) == errno.EKEYEXPIRED, attempt
            assert kept.replay(worker, 0, int(id) + 1, attempt) == errno.EKEYEXPIRED, attempt
        assert kept.replay(worker, 0, int(id), position=1) == errno.EINVAL
        assert kept.replay(worker, 0, int(id), position=2**64 - 1) == errno.EINVAL
    launcher_anew(lab)
    with contextlib.closing(Worker(lab)) as worker:
        assert kept.replay(worker, 0, int(id), 2) == errno.EKEYEXPIRED
    assert runs.read_text() == "ran\n"
    lab.start()
    again = lab.carve(ROOT, "job", "rerun", id)
    assert again.returncode == 0, again.stderr
    assert jobs.ended(ROOT, again.stdout.split()[-1])["state"] == "done" and runs.read_text() == "ran\nran\n"


@pytest.mark.attack("3", "a job that its user cancelled while it waited, and one whose command was changed")
def test_a_job_that_was_cancelled_or_changed_is_not_run(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    runs = lab.dir / "runs"
    words = ("sh", "-c", f"echo ran >> {runs}")
    cancelled = jobs.enqueue(ROOT, *words, options=("--hold",))
    changed = jobs.enqueue(ROOT, *words, options=("--hold",))
    array = jobs.enqueue(ROOT, *words, options=("--hold", "--array", "0-2"))
    kept = Kept(lab)
    assert lab.carve(ROOT, "job", "cancel", cancelled).returncode == 0
    assert lab.carve(ROOT, "job", "edit", changed, "--grace", "7").returncode == 0
    assert lab.carve(ROOT, "job", "cancel", f"{array}_1").returncode == 0
    with worker_instead(lab) as worker:
        assert kept.replay(worker, 0, int(cancelled)) == errno.EKEYEXPIRED
        assert kept.replay(worker, 1, int(changed)) == errno.EKEYEXPIRED
        first = int(array)
        ids = 10**15 + first * 10**6
        assert kept.replay(worker, 2, ids + 1, array=first, index=1, position=1) == errno.EKEYEXPIRED
        assert kept.replay(worker, 2, ids + 3, array=first, index=3, position=3) == errno.EINVAL
    assert not runs.exists()
    # The rest of them runs as it should.
    lab.start()
    for id in (changed, f"{array}_0", f"{array}_2"):
        assert lab.carve(ROOT, "job", "release", id).returncode == 0
        assert jobs.ended(ROOT, id)["state"] == "done", id
    assert runs.read_text() == "ran\n" * 3


def rights_untold(lab):
    with contextlib.closing(sqlite3.connect(lab.runtime / "state" / "queue.db")) as db:
        return db.execute("SELECT count(*) FROM over").fetchone()[0]


@pytest.mark.attack("3", "jobs that are over, of which the warden was not told before the daemon died")
def test_the_next_daemon_tells_which_rights_are_over(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    runs = lab.home(ALICE) / "runs"
    first, kept_one, second = [jobs.enqueue(ALICE, "sh", "-c", f"echo ran >> {runs}", options=("--hold",)) for _ in range(3)]
    # The warden is asked of one range at a time: the second one is the daemon's alone to know.
    kept = Kept(lab)
    lab.warden.send_signal(signal.SIGSTOP)
    for job in (first, second):
        assert lab.carve(ALICE, "job", "cancel", job).returncode == 0
    lab.kill_daemon()
    lab.warden.kill()
    lab.warden.wait()
    wait_until(lab.can_lock)
    assert rights_untold(lab) == 2
    (lab.runtime / "warden.sock").unlink()
    lab.warden = lab.start_warden()
    lab.start()
    wait_until(lambda: rights_untold(lab) == 0)
    with worker_instead(lab) as worker:
        assert kept.replay(worker, 0, int(first)) == errno.EKEYEXPIRED
        assert kept.replay(worker, 2, int(second)) == errno.EKEYEXPIRED
    lab.start()
    assert lab.carve(ALICE, "job", "release", kept_one).returncode == 0
    assert jobs.ended(ALICE, kept_one)["state"] == "done" and runs.read_text() == "ran\n"


@pytest.mark.attack("3", "one right in two shims that wait, and in one of a launcher before")
def test_two_shims_of_one_right_run_it_once(worker):
    """Both were started before either has asked. Without a daemon, the first waits for one after it has begun."""
    lab = worker.lab
    text = text_of("true")
    warrant = worker.vouch(ROOT, text, attempts=2)
    goes = []
    for job in (1, 2):
        assert worker.start(head_of(warrant, text, run_of(job=job)), job) == 0
        goes.append(os.dup(worker.got))
    # As if it had run: what is left of the right is given up.
    number = struct.unpack("<Q", warrant[1176:1184])[0]
    assert worker.ask(OVER, number, 1)[0] == 0
    for job in (3, 4):
        assert worker.start(head_of(warrant, text, run_of(job=job, attempt=2)), job, 2) == errno.EKEYEXPIRED
    for go in goes:
        os.close(go)
    wait_until(lambda: not shims(lab.runtime / "state-jobs" / "0"))
    assert not list((lab.runtime / "state-jobs" / "0").glob("*.record"))


@pytest.mark.attack("3", "the register of what was run, removed while no launcher is there")
def test_without_the_register_no_warrant_of_before_is_believed(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    id = jobs.enqueue(ROOT, "true")
    jobs.ended(ROOT, id)
    kept = Kept(lab)
    lab.kill_daemon()
    wait_until(lab.can_lock)
    (lab.runtime / "state-jobs" / "rights").unlink()
    launcher_anew(lab)
    with contextlib.closing(Worker(lab)) as worker:
        assert kept.replay(worker, 0, int(id)) == errno.EKEYREJECTED


HELD_US = 60000000  # a write to the disk that the test cuts


def slow_disk(lab, us):
    """The words before a warden whose register takes so long to be on the disk."""
    return ["strace", "-f", "-o", "/dev/null", "-P", lab.runtime / "state-jobs" / "rights", "-e", "trace=fdatasync", "-e",
            f"inject=fdatasync:delay_enter={us}"]


@contextlib.contextmanager
def warden_that_asks_the_disk(lab):
    """A warden that is killed while it waits for the disk to have what it lets run."""
    lab.warden.kill()
    lab.warden.wait()
    anew(lab, before=slow_disk(lab, HELD_US))
    yield
    wait_until(lambda: attempts_asked(lab))
    os.kill(int(pathlib.Path(f"/proc/{lab.warden.pid}/task/{lab.warden.pid}/children").read_text().split()[0]), signal.SIGKILL)
    lab.warden.kill()
    lab.warden.wait()


def attempts_asked(lab):
    """The attempts in the register that are to be let run (src/guard/rights.c)."""
    with open(lab.runtime / "state-jobs" / "rights", "rb") as register:
        try:
            register.seek(os.lseek(register.fileno(), 1 << 30, os.SEEK_DATA))
        except OSError:
            return []
        rights = struct.unpack("<2048H", register.read(4096).ljust(4096, b"\0"))
    return [right & 0x7FFF for right in rights if right != 0xFFFF and right & 0x8000]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_job_keeps_its_attempt_if_the_warden_is_killed_before_it_lets_it_run(service, attempt):  # noqa: F811
    lab, jobs = service, Jobs(service)
    runs, gate = lab.home(ALICE) / "runs", lab.home(ALICE) / "gate"
    fails = f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 1"
    id = jobs.enqueue(ALICE, "sh", "-c", f"echo ran >> {runs}; [ $(wc -l < {runs}) = {attempt} ] && exit; {fails}",
                      options=("--hold", "--retries", "1"))
    if attempt == 2:
        assert lab.carve(ALICE, "job", "release", id).returncode == 0
        wait_until(lambda: runs.exists() and runs.read_text() == "ran\n")
    with warden_that_asks_the_disk(lab):
        gate.touch()
        assert lab.carve(ALICE, "job", "release", id).returncode == 0 or attempt == 2
    anew(lab)
    ended = jobs.ended(ALICE, id)
    assert (ended["state"], ended["attempt"]) == ("done", attempt), ended
    assert runs.read_text() == "ran\n" * attempt and not attempts_asked(lab)


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.attack("3", "a job that may have run before the machine went down")
def test_an_attempt_that_the_machines_end_cut_is_not_run_again(service):  # noqa: F811
    lab, jobs = service, Jobs(service)
    runs = lab.home(ALICE) / "runs"
    id = jobs.enqueue(ALICE, "sh", "-c", f"echo ran >> {runs}", options=("--hold",))
    with warden_that_asks_the_disk(lab):
        assert lab.carve(ALICE, "job", "release", id).returncode == 0
    with open(lab.runtime / "state-jobs" / "rights", "r+b") as register:
        register.seek(16)
        register.write(b"another boot")
    anew(lab)
    ended = jobs.ended(ALICE, id)
    assert ended["state"] == "failed" and "let this attempt, or a later one, run before" in ended["reason"], ended
    assert not runs.exists()


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.attack("2", "a disk that takes its time while a job is to be let run")
def test_a_slow_disk_holds_the_jobs_that_wait_for_it_alone(service):  # noqa: F811
    """Requests of others are answered meanwhile: enqueueing, and signals."""
    lab, jobs = service, Jobs(service)
    runs = lab.home(ALICE) / "runs"
    session = lab.carve_json(BOB, "session", "request", "--vram", "1")["id"]
    lab.warden.kill()
    lab.warden.wait()
    anew(lab, before=slow_disk(lab, 8000000))
    id = jobs.enqueue(ALICE, "sh", "-c", f"echo ran >> {runs}")
    wait_until(lambda: attempts_asked(lab))
    inside = lab.popen(BOB, CARVE, "run", "--session", session, "--", "sh", "-c", "echo begun; exec sleep 1000")
    assert inside.stdout.readline() == "begun\n", inside.communicate()
    assert lab.carve(BOB, "session", "release", session, "--force").returncode == 0
    held = jobs.enqueue(BOB, "true", options=("--hold",))
    assert attempts_asked(lab) and not runs.exists()
    assert jobs.ended(ALICE, id)["state"] == "done" and runs.read_text() == "ran\n"
    assert lab.carve(BOB, "job", "release", held).returncode == 0
    assert jobs.ended(BOB, held)["state"] == "done"


def test_each_retry_has_a_right_of_its_own(service):  # noqa: F811
    """They are given when the job is enqueued, and used up over a restart of daemon and launcher."""
    lab, jobs = service, Jobs(service)
    runs, gate = lab.home(ALICE) / "runs", lab.home(ALICE) / "gate"
    id = jobs.enqueue(ALICE, "sh", "-c", f"echo $CARVE_JOB_ATTEMPT >> {runs}; while [ ! -e {gate} ]; do sleep 0.02; done; exit 3",
                      options=("--retries", "2"))
    wait_until(lambda: runs.exists() and runs.read_text() == "1\n")
    lab.kill_daemon()
    wait_until(lab.can_lock)
    launcher_anew(lab)
    lab.start()
    gate.touch()
    job = jobs.ended(ALICE, id)
    assert job["state"] == "failed" and job["exit_code"] == 3 and job["attempt"] == 3, job
    assert runs.read_text() == "1\n2\n3\n"
