"""Connections that wait to be accepted: all users have one row of them."""
import json
import os
import pathlib
import signal

import pytest

from .lab import ALICE, MALLORY
from .test_budgets import COMMON

# Connects and enqueues a job, so many times; then, the daemon being let go, says which numbers the jobs got.
ENQUEUES = COMMON + r"""
kept = [http() for _ in range(int(sys.argv[1]))]
for s in kept: call(s, 'POST', '/v1/jobs', b'{"queue": "none", "argv": ["true"], "cwd": "/", "hold": true}')
print('asked', flush=True)
print(json.dumps([int(json.loads(answer(s)[1])['id']) for s in kept]), flush=True)
"""
ROW = 500  # of 512 connections


@pytest.mark.attack("8", "hundreds of connections that wait to be accepted before another user's")
def test_connections_are_opened_in_turns(lab):
    os.kill(lab.worker(), signal.SIGSTOP)
    try:
        mallory = lab.python(MALLORY, ENQUEUES, ROW, method=lab.popen)
        assert mallory.stdout.readline() == "asked\n", mallory.communicate()
        alice = lab.python(ALICE, ENQUEUES, 1, method=lab.popen)
        assert alice.stdout.readline() == "asked\n", alice.communicate()
    finally:
        os.kill(lab.worker(), signal.SIGCONT)
    alices, = json.loads(alice.stdout.readline())
    before = sum(id < alices for id in json.loads(mallory.stdout.readline()))
    assert before < ROW / 2, f"{before} of {ROW} connections were answered before Alice's"


# Says of each request, over a connection of its own, whether it was refused.
ASKS = COMMON + r"""
count, method, path, body = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4].encode()
kept = [http() for _ in range(count)]
for s in kept: call(s, method, path, body)
print('asked', flush=True)
answers = [answer(s) for s in kept]
print(json.dumps([body.decode() for head, body in answers if not head.startswith(b'HTTP/1.1 2')]), flush=True)
"""
VOUCHED_AT_ONCE = 16  # of one user
JOB = {"queue": "none", "argv": ["true"], "cwd": "/", "hold": True}
MANY = {
    "jobs": ("POST", "/v1/jobs", JOB),
    "arrays": ("POST", "/v1/jobs", JOB | {"array": "0-9"}),
    "changes of what a job runs": ("PATCH", "/v1/jobs/{job}", {"argv": ["false"]}),
}


def texts_held(pid):
    """The texts of jobs that the daemon holds open for its launcher."""
    held = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            held += os.readlink(fd).startswith("/memfd:carve-text")
        except OSError:
            pass  # it was closed meanwhile
    return held


@pytest.mark.parametrize("kind", MANY)
@pytest.mark.attack("8", "as many requests at once as a user may have connections, each of which needs the launcher")
def test_requests_that_need_the_launcher_wait_without_descriptors(lab, kind):
    method, path, body = MANY[kind]
    if "{job}" in path:
        job = lab.carve(MALLORY, "enqueue", "--queue", "none", "--hold", "--", "true", cwd=lab.home(MALLORY)).stdout.strip()
        path = path.format(job=job)
    worker = lab.worker()
    os.kill(worker, signal.SIGSTOP)
    try:
        mallory = lab.python(MALLORY, ASKS, ROW, method, path, json.dumps(body), method=lab.popen)
        assert mallory.stdout.readline() == "asked\n", mallory.communicate()
    finally:
        os.kill(worker, signal.SIGCONT)
    most = 0
    while mallory.poll() is None:
        most = max(most, texts_held(worker))
    assert json.loads(mallory.stdout.read()) == [], "requests were refused"
    # The text that is being written is open twice. One that was sent is closed at once.
    assert most <= VOUCHED_AT_ONCE + 1, f"{most} texts were held open"
