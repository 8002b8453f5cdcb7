"""Daemons over a fake driver as fixtures, and what several of their tests ask of them."""
import json
import pathlib
import subprocess
import threading
import time

import pytest

from conftest import administrator, clean_env
from daemon_client import Daemon

HERE = str(pathlib.Path(__file__).parent)


@pytest.fixture
def make_daemon():
    daemons = []

    def make(*args, **kw):
        daemons.append(Daemon(*args, **kw))
        return daemons[-1]

    yield make
    for d in daemons:
        d.close()


@pytest.fixture
def daemon(make_daemon):
    return make_daemon()


@pytest.fixture(scope="module")
def module_daemon():
    """One for those tests of a module that leave nothing in it."""
    one = Daemon()
    yield one
    one.close()


class Asker(threading.Thread):
    """Asks for a slice and waits: .answer, and .at, when it came."""

    def __init__(self, daemon, **body):
        super().__init__()
        self.daemon_, self.body, self.answer, self.at = daemon, body, None, None
        self.start()

    def run(self):
        self.answer = self.daemon_.request(**self.body)
        self.at = time.monotonic()


def waiting(daemon):
    return [s for s in daemon.call("GET", "/v1/sessions").json if s["state"] == "waiting"]


def ask_in_child(daemon, body, then):
    """A process that asks for a slice itself, prints the answer, and goes on with `then`."""
    script = ("import sys, json, time, os; sys.path.insert(0, %r)\n"
              "from attach_client import *\nfrom unix_http import UnixConnection\n"
              "class D: runtime = __import__('pathlib').Path(%r)\n"
              "c = UnixConnection(D.runtime / 'carved.sock')\n"
              "c.request('POST', '/v1/sessions', %r); s = json.loads(c.getresponse().read())\n"
              "%s\nprint(json.dumps(s), flush=True)\ntime.sleep(1000)\n")
    script %= (HERE, str(daemon.runtime), json.dumps(body), then)
    child = subprocess.Popen(["/usr/bin/python3", "-S", "-c", script], stdout=subprocess.PIPE, text=True,
                             env=clean_env())
    return child, json.loads(child.stdout.readline())


def set_quota(daemon, name="root", kind="user", **limits):
    if not administrator():
        pytest.skip("needs root or a member of group carve")
    answer = daemon.call("PUT", f"/v1/quotas/{kind}/{name}", limits)
    assert answer.status == 200, answer.json
    return answer.json
