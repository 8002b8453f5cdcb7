"""A job costs a bounded number of processes and waits for the disk, whatever the host's load is."""
import re
import shutil

import pytest

from queueing import queues  # noqa: F401: fixtures
from tracing import Trace

JOBS = 20
CALLS = "clone,clone3,fork,vfork,execve,fdatasync,fsync"


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_job_costs_two_processes_and_two_waits_for_the_disk(queues, tmp_path):
    queues.agent("tenth=0.1")
    queues.ended(queues.enqueue("true", queue="tenth"))  # has the driver looked for
    trace = Trace(queues.host.daemon_pid(), tmp_path / "calls", CALLS)
    try:
        queues.ended(queues.enqueue("/bin/true", queue="tenth", options=("--array", f"0-{JOBS - 1}")))
    finally:
        made = trace.counts()
    # A shim and its command for each job, and a few of the daemon's own.
    assert 2 * JOBS <= made["clone"] + made["clone3"] + made["fork"] + made["vfork"] <= 2 * JOBS + 5, made
    assert made["execve"] <= 2 * JOBS + 2, made  # on a busy machine strace misses some
    # The start's record and its name; the rest is written together.
    assert made["fdatasync"] + made["fsync"] <= 2 * JOBS + 15, made


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_the_daemon_identifies_few_processes_for_a_job(queues, tmp_path):
    """A shim when it is started and when it is watched, its command when that attaches: each look reads a file of /proc."""
    queues.agent("tenth=0.1")
    queues.ended(queues.enqueue("true", queue="tenth"))
    trace = Trace(queues.host.daemon_pid(), tmp_path / "calls", "openat,pidfd_open,accept4,getdents64", alone=True)
    try:
        queues.ended(queues.enqueue("/bin/true", queue="tenth", options=("--array", f"0-{JOBS - 1}")))
    finally:
        made = trace.counts()
    looks = len(re.findall(r'"/proc/\d+/stat"', (tmp_path / "calls").read_text()))
    # Commands of this test ask, too, and each is identified.
    asked = made["accept4"] - JOBS
    assert looks <= 5 * JOBS + 2 * asked + 5 and made["pidfd_open"] <= 4 * JOBS + asked + 5, (looks, made)
