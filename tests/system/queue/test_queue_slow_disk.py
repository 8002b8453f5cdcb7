"""A disk that takes long: jobs wait for it, and the daemon's loop does not."""
import concurrent.futures
import json
import os
import signal
import threading
import time

import pytest

from conftest import BUILD, wait_until
from daemon_client import UnixConnection
from queueing import queues  # noqa: F401: a fixture

SYNC_MS = 500
CARVE = BUILD / "carve"
LOOP_MS = 100
# Jobs whose changes fill the log so far that it is merged into the database.
MANY = 60000


@pytest.fixture
def slow(queues):
    """Its daemon has such a disk; the next one, which a command starts, has not."""
    env = {"LD_PRELOAD": str(BUILD / "tests/programs/libslow_disk.so"), "SLOW_DISK": str(SYNC_MS),
           "SLOW_DISK_LOOP": str(queues.dir / "loop")}
    runtime = queues.host.env["CARVE_RUNTIME_DIR"]
    queues.daemon = queues.host.popen([BUILD / "carved", "--runtime-dir", runtime, "--foreground"], env=env,
                                       stderr=open(queues.dir / "log", "w"))
    wait_until(lambda: os.path.exists(runtime + "/carved.sock"))
    queues.host.daemon_pid()
    queues.loop_syncs = lambda: (queues.dir / "loop").stat().st_size
    yield queues
    queues.daemon.kill()
    queues.daemon.wait()


class Answers:
    """How long the daemon takes to answer, again and again while the body runs: .ms, sorted."""

    def __init__(self, queues):
        self.socket, self.ms, self.ends = queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", [], False
        self.pool = concurrent.futures.ThreadPoolExecutor(1)

    def ask(self):
        while not self.ends:
            began = time.monotonic()
            connection = UnixConnection(self.socket)
            connection.request("GET", "/v1/gpus")
            assert connection.getresponse().status == 200
            connection.close()
            self.ms.append((time.monotonic() - began) * 1000)
            time.sleep(0.005)

    def __enter__(self):
        self.asking = self.pool.submit(self.ask)
        return self

    def __exit__(self, *what):
        self.ends = True
        self.asking.result()
        self.ms.sort()


def jobs_on(slow):
    """Single jobs, and changes of a long array. Returns the answers that somebody else got meanwhile."""
    slow.agent("half=0.1")
    array = slow.enqueue("true", options=["--hold", "--array", f"0-{MANY - 1}"])
    before = slow.loop_syncs()
    with Answers(slow) as answers:
        began = time.monotonic()
        ids = [slow.witnessed() for _ in range(3)]
        assert time.monotonic() - began > 3 * SYNC_MS / 1000  # each was on the disk before its ID was said
        assert {slow.ended(id)["state"] for id in ids} == {"done"}
        for verb in ("release", "cancel"):
            assert slow.host.carve("job", verb, array).returncode == 0
        assert slow.ended(slow.witnessed())["state"] == "done"
    assert slow.loop_syncs() == before
    # The log was merged into the database meanwhile.
    assert os.path.getsize(slow.host.env["CARVE_RUNTIME_DIR"] + "/queue.db") > 1 << 20
    return answers.ms


def test_a_slow_disk_does_not_hold_up_the_loop(slow):
    assert jobs_on(slow)


@pytest.mark.timed
def test_answers_beside_a_slow_disk_do_not_wait_for_it(slow):
    ms = jobs_on(slow)
    print(f"{len(ms)} answers: p50 {ms[len(ms) // 2]:.1f} ms, longest {ms[-1]:.1f} ms")
    assert ms[len(ms) // 2] < LOOP_MS


@pytest.mark.timed
def test_a_change_of_an_agent_waits_for_a_merge_and_nobody_else_does(slow):
    agent = slow.agent("half=0.1")
    array = slow.enqueue("true", options=["--hold", "--array", f"0-{MANY - 1}"])
    took, ends = [], threading.Event()

    def change():
        while not ends.is_set():
            began = time.monotonic()
            assert slow.host.carve("agent", "--drain", "half").returncode == 0
            took.append(time.monotonic() - began)

    with Answers(slow) as answers, concurrent.futures.ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        for verb in ("release", "cancel"):
            assert slow.host.carve("job", verb, array).returncode == 0
        ends.set()
        changing.result()
    assert max(took) > 3 * SYNC_MS / 1000  # it met a merge, which waits for the disk several times
    assert answers.ms[-1] < max(took) * 1000 / 2
    assert slow.host.carve("agent", "--stop", agent["id"]).returncode == 0


@pytest.mark.long
def test_clients_that_come_together_wait_for_the_disk_together(slow):
    slow.agent("half=0.1")
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: slow.enqueue("true"), range(32)))
    assert len(set(ids)) == 32
    assert time.monotonic() - began < 32 * SYNC_MS / 1000
    assert {slow.ended(id)["state"] for id in ids} == {"done"}


def test_a_request_that_is_repeated_while_it_is_written_is_one_job(slow):
    slow.agent("half=0.1")
    body = json.dumps({"argv": ["true"], "queue": "half", "id": "k-1", "cwd": "/", "hold": True})

    def ask(_):
        connection = UnixConnection(slow.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock")
        connection.request("POST", "/v1/jobs", body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert sorted(status for status, _ in answers) == [201, 409, 409, 409]
    assert len(slow.host.carve_json("job", "list")) == 1
    status, again = ask(None)
    assert status == 201 and [again["id"]] == [answer["id"] for status, answer in answers if status == 201]


def test_an_end_is_told_once_it_is_on_the_disk(slow):
    """A power cut would give its number to another end, which a reader that had heard of this one would not ask for."""
    slow.agent("half=0.1")

    def told():
        connection = UnixConnection(slow.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock")
        connection.request("GET", "/v1/jobs/ends?from=1")
        return [end["id"] for end in json.loads(connection.getresponse().read())["ends"]]

    early = []
    while not early and len(told()) < 10:
        id = slow.enqueue("true")
        slow.ended(id)
        early = [id] if id not in told() else []
        wait_until(lambda: id in told())  # noqa: B023
    assert early


def test_a_daemon_that_is_killed_while_it_waits_for_the_disk_loses_no_job(slow):
    slow.agent("half=0.1")
    process = slow.host.popen([CARVE, "enqueue", "--queue", "half", "--", "true"])
    time.sleep(SYNC_MS / 2000)
    os.kill(slow.host.daemon_pid(), signal.SIGKILL)
    id = process.stdout.read().strip()
    assert process.wait(60) == 0 and slow.ended(id)["state"] == "done"
    assert len(slow.host.carve_json("job", "list")) == 1
