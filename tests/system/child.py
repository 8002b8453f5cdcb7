"""Processes that are attached to a daemon, for its tests."""
import pathlib
import subprocess

import pytest

from conftest import clean_env
from daemon_client import *

HERE = str(pathlib.Path(__file__).parent)
F_GET_SEALS = 1034


class Child:
    """A process that attaches and then does as it is told: `say("charge 4096")` and so on."""

    SCRIPT = """
import sys, os, signal, time
sys.path.insert(0, %r)
from attach_client import *
class D: runtime = __import__('pathlib').Path(%r)
if %r: signal.signal(signal.SIGTERM, signal.SIG_IGN)
a = Attached(D)
status, slot, message = a.ask(WORKLOAD, %r)
print(status, slot, os.getpid(), flush=True)
ledger = Ledger(a.fds[1]) if status == OK else None
for line in sys.stdin:
    word, *args = line.split()
    if word == 'charge': ledger.charge(slot, int(args[0])); print('ok', flush=True)
    if word == 'settle': print(a.ask(SETTLE)[0], flush=True)
    if word == 'leave': print(*a.leave(int(args[0]), int(args[1])), flush=True)
    if word == 'fork':
        child = os.fork()
        if child == 0:
            os.close(0); os.close(1); time.sleep(1000)
        print(child, flush=True)
    if word == 'close': a.close(); print('ok', flush=True)
    if word == 'exec': print('ok', flush=True); os.execv('/bin/sleep', ['sleep', '1000'])
    if word == 'resume':
        b = Attached(D); print(b.ask(RESUME, %r, slot)[0], flush=True); a = b
"""

    def __init__(self, daemon, session, stubborn=False):
        script = self.SCRIPT % (HERE, str(daemon.runtime), stubborn, session, session)
        self.process = subprocess.Popen(["/usr/bin/python3", "-S", "-c", script], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=clean_env())
        self.status, self.slot, self.pid = map(int, self.process.stdout.readline().split())

    def begin(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self):
        return self.process.stdout.readline().strip()

    def say(self, text):
        self.begin(text)
        return self.end()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def make_child():
    children = []

    def make(*args, **kw):
        children.append(Child(*args, **kw))
        return children[-1]

    yield make
    for c in children:
        c.kill()


def attached(daemon, make_child):
    """A session of 4 GiB, a process in it, and its ledger as this process sees it."""
    session = daemon.grant(vram="4")["id"]
    return session, make_child(daemon, session), observe(daemon, session)


def observe(daemon, session):
    a = Attached(daemon)
    assert a.ask(OBSERVE, session)[:2] == (OK, 0)
    return Ledger(a.fds[1])
