"""The start of a worker while the driver hangs: the process with root's rights waits for nobody."""
import os
import pathlib
import signal
import time

import pytest

from conftest import wait_until

from .lab import ALICE
from .test_jobs import Jobs


@pytest.fixture
def gpu(lab):
    """The process that is the GPU: while it is stopped, every call of the driver hangs."""
    pid = lab.host.server()
    yield pid
    os.kill(pid, signal.SIGCONT)


def worker_killed(lab):
    killed = lab.worker()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{killed}"))


def children(lab):
    """The PIDs of the children that the process with root's rights has."""
    pid = lab.daemon.pid
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_supervisor_ends_at_once_while_the_driver_hangs(lab, gpu):
    os.kill(gpu, signal.SIGSTOP)
    worker_killed(lab)
    wait_until(lambda: children(lab))
    time.sleep(0.5)
    begin = time.monotonic()
    lab.daemon.send_signal(signal.SIGTERM)
    lab.daemon.wait(30)
    assert time.monotonic() - begin < 5
    # The next daemon does not wait for what the last one asked.
    wait_until(lab.can_lock, timeout=5)


@pytest.mark.long
def test_a_worker_starts_without_rights_while_the_driver_hangs(lab, gpu):
    """A driver that hangs says nothing of the rights of the worker's user. Jobs run once the driver is back."""
    user = os.stat(f"/proc/{lab.worker()}").st_uid
    assert user != 0
    os.kill(gpu, signal.SIGSTOP)
    worker_killed(lab)
    worker = wait_until(lambda: next((child for child in children(lab) if os.stat(f"/proc/{child}").st_uid == user), None), timeout=60)
    assert pathlib.Path(f"/proc/{worker}/comm").read_text() == "carved\n"
    os.kill(gpu, signal.SIGCONT)
    assert Jobs(lab).output(ALICE, "id", "-u").strip() == str(ALICE)
    assert lab.worker() == worker
