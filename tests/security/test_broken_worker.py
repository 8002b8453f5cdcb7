"""A worker that was broken into has what root enqueued, and wants to be root by it. It owns the state directory."""
import errno
import os
import pathlib
import struct

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, ROOT, as_user
from .test_jobs import Jobs
from .test_launcher import service  # noqa: F401
from .worker import END, HOOK, PODS, REMOVE, TASK_HOOK, TASK_POD, Worker, head_of, run_of, text_of

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
    # The worker writes to the standard input of a hook: a shell that root enqueued would run what it says.
    hook = run_of(job=0, grace_ns=0, queue=b"")
    assert worker.start(head_of(warrant, text, hook, TASK_HOOK), job=0) == errno.EKEYREJECTED
    hooks = worker.vouch(ROOT, text, HOOK)
    assert worker.start(head_of(hooks, text)) == errno.EKEYREJECTED
    # Not as another job than the launcher was told of, whose cgroup it would share.
    assert worker.start(head_of(warrant, text, run_of(job=2)), job=1) == errno.EINVAL


@pytest.mark.attack("3", "a session that is an option or a path")
def test_a_session_is_an_id_or_nothing_runs(worker):
    lab, text = worker.lab, text_of("true")
    files = pathlib.Path(f"{lab.runtime}/state-jobs/0")
    for attempt, session in enumerate((b"--x", b"../../x", b"s-", b"s-abc\0x", b"S-ABCDEF"), 1):
        assert worker.start(head_of(worker.vouch(ROOT, text), text, run_of(attempt=attempt)), attempt=attempt) == 0
        os.write(worker.got, struct.pack("<II32s", 0x4D494853, 0, session))
        wait_until(lambda: not shims(files))  # noqa: B023
        assert not list(files.glob("*.record")), session
    # The shim of a session that could be begins at once.
    assert worker.start(head_of(worker.vouch(ROOT, text), text, run_of(attempt=9)), attempt=9) == 0
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
