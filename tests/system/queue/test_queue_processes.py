"""All processes of a job end with it, also those that hide from its shim: it has a cgroup of its own where one can be made."""
import os
import pathlib
import signal
import time

import pytest

from cgroups import cgroup_of, cgroups_can_be_made
from conftest import process_ended, wait_until
from queueing import queues  # noqa: F401: fixtures

pytestmark = pytest.mark.skipif(not cgroups_can_be_made(), reason="no cgroup can be made here")

# Leaves its parent behind so fast that a look at the children finds it gone: each process lives for a moment. Ends after a minute.
HOPPER = """
import os, sys, time
end = time.monotonic() + 60
open(sys.argv[1], "w").close()
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


def pid_in(path):
    return int(wait_until(lambda: path.exists() and path.read_text().strip()))


def test_a_jobs_cgroup_is_its_own_and_goes_with_it(queues, tmp_path):
    queues.agent("half=0.5")
    pid = tmp_path / "pid"
    job = queues.enqueue("sh", "-c", f"setsid sleep 1000 & echo $$ > {pid}; {queues.gate()}")
    path = cgroup_of(pid_in(pid))
    assert path.name.startswith(f"carve-job-{job}.1-")
    inside = [int(p) for p in (path / "cgroup.procs").read_text().split()]
    assert len(inside) >= 2 and os.getpid() not in inside
    queues.open_gate()
    assert queues.ended(job)["state"] == "done"
    assert not path.exists() and all(process_ended(p) for p in inside)


@pytest.mark.parametrize("end", ["cancel", "exit", "timeout"])
def test_processes_that_hop_from_fork_to_fork_end_with_their_job(queues, tmp_path, end):
    queues.agent("half=0.5")
    ready, pid = tmp_path / "ready", tmp_path / "pid"
    (tmp_path / "hopper.py").write_text(HOPPER)
    wait = queues.gate() if end == "exit" else "sleep 1000"
    job = queues.enqueue("sh", "-c", f"echo $$ > {pid}; /usr/bin/python3 {tmp_path}/hopper.py {ready} & {wait}",
                         options=("--grace", "0.2", *(("--time", "2s") if end == "timeout" else ())))
    path = cgroup_of(pid_in(pid))
    wait_until(ready.exists)
    if end == "exit":
        queues.open_gate()
    elif end == "cancel":
        assert queues.host.carve("job", "cancel", job).returncode == 0
    assert queues.ended(job)["state"] == {"cancel": "cancelled", "exit": "done", "timeout": "timeout"}[end]
    assert not path.exists()


def shim_killed(pid):
    """The shim that started this process of a job."""
    shim = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: process_ended(shim))


def test_processes_left_by_a_job_end_though_its_shim_was_killed(queues, tmp_path):
    queues.agent("half=0.5")
    pid, left = tmp_path / "pid", tmp_path / "left"
    job = queues.enqueue("sh", "-c", f"setsid sleep 1000 & echo $! > {left}; echo $$ > {pid}; {queues.gate()}")
    path, behind = cgroup_of(pid_in(pid)), pid_in(left)
    shim_killed(pid_in(pid))
    assert not process_ended(behind)
    queues.open_gate()
    assert queues.ended(job)["state"] == "lost"
    wait_until(lambda: process_ended(behind) and not path.exists())


def test_a_time_limit_holds_though_the_shim_was_killed(queues, tmp_path):
    """The daemon ends the job in the place of its shim, and does not wait for the shim's grace before that."""
    queues.agent("half=0.5")
    pid = tmp_path / "pid"
    begin = time.monotonic()
    job = queues.enqueue("sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000", options=["--time", "3s", "--grace", "60"])
    shim_killed(pid_in(pid))
    assert queues.ended(job)["state"] == "timeout"
    assert 3 <= time.monotonic() - begin < 20


def test_a_job_whose_shim_was_killed_ends_with_its_simulated_host(queues, tmp_path):
    queues.agent("half=0.5")
    pid = tmp_path / "pid"
    queues.enqueue("sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000")
    command = pid_in(pid)
    shim_killed(command)
    queues.host.close()
    wait_until(lambda: process_ended(command))
