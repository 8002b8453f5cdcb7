"""Connections that wait to be accepted: all users have one row of them."""
import json
import os
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
    os.kill(lab.daemon.pid, signal.SIGSTOP)
    try:
        mallory = lab.python(MALLORY, ENQUEUES, ROW, method=lab.popen)
        assert mallory.stdout.readline() == "asked\n", mallory.communicate()
        alice = lab.python(ALICE, ENQUEUES, 1, method=lab.popen)
        assert alice.stdout.readline() == "asked\n", alice.communicate()
    finally:
        os.kill(lab.daemon.pid, signal.SIGCONT)
    alices, = json.loads(alice.stdout.readline())
    before = sum(id < alices for id in json.loads(mallory.stdout.readline()))
    assert before < ROW / 2, f"{before} of {ROW} connections were answered before Alice's"
