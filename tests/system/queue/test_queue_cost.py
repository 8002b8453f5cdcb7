"""A job costs a bounded number of processes and waits for the disk, whatever the host's load is."""
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
    assert 2 * JOBS <= made["execve"] <= 2 * JOBS + 2, made
    # The start's record and its name; the rest is written together.
    assert made["fdatasync"] + made["fsync"] <= 2 * JOBS + 15, made
