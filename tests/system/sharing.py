"""Workloads that share a simulated host's GPUs, judged by the driver's own busy times (`carve sim stat`)."""
import os
import pathlib
import signal
import time

import pytest

from conftest import BUILD, PATIENCE, wait_until

CLIENT = BUILD / "tests/programs/share_client"
# Plans of 1 s, so that a measurement has some; leases long against what a busy machine takes to wake somebody.
LEASE = ("--lease", "100ms", "--granularity", "10%")
# Kernels long enough that a busy machine can keep the GPU supplied.
KERNELS = ("--kernel-us", "2000")


def clients_of(pid):
    """The clients among a process's descendants."""
    found, left = [], [pid]
    while left:
        proc = pathlib.Path(f"/proc/{left.pop()}")
        try:
            for task in proc.glob("task/*/children"):
                left += map(int, task.read_text().split())
            if (proc / "comm").read_text() == "share_client\n":
                found.append(int(proc.name))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
    return found


class Workload:
    """`carve run SIZE share_client ARGS`; `processes`: so many clients in the one session."""

    def __init__(self, host, size, *args, processes=1, wait=True, env=None):
        self.host = host
        command = [CLIENT, *KERNELS, *args]
        if processes > 1:
            line = " ".join(map(str, command))
            command = ["sh", "-c", f"for i in $(seq {processes}); do {line} & done; wait"]
        self.count = processes
        self.process = host.popen([BUILD / "carve", "run", "--ephemeral", *size, "--", *command],
                                  start_new_session=True, env=env or {})
        if wait:
            self.wait_up()

    def wait_up(self):
        for _ in range(self.count):
            assert self.process.stdout.readline() == "up\n", self.process.stderr.read()

    def pids(self):
        return clients_of(self.process.pid)

    def kill(self):
        """All of it, without a chance to tidy up: its process group is its own."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def busy(host, workload, gpu=None):
    """GPU time that a workload's living processes had so far, on all GPUs or on one."""
    pids = set(workload.pids())
    return sum(p["busy_ns"] for g in host.stat()["gpus"] if gpu in (None, g["index"])
               for p in g["processes"] if p["pid"] in pids)


def host_ticks():
    """All processors' time so far, and what of it the host of this virtual machine took (proc(5): "steal")."""
    ticks = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks), ticks[7]


def shares(host, workloads, seconds=4.0, gpu=None):
    """The part of one GPU's time that each workload had, while this measured, by the GPU's own clock, as leases go by it. Not
    judged where that stood still for more than 30% of the time, because the machine played too slowly, or where the
    machine's own host took as much of its time."""
    pids = [set(w.pids()) for w in workloads]

    def books():
        stat = host.stat()
        return stat["now_ns"], [
            sum(p["busy_ns"] for g in stat["gpus"] if gpu in (None, g["index"])
                for p in g["processes"] if p["pid"] in own) for own in pids], max(g["lag_ns"] for g in stat["gpus"])

    (began, before, behind), (ticks, stolen) = books(), host_ticks()
    time.sleep(seconds)
    (ended, after, behind_now), (ticks_now, stolen_now) = books(), host_ticks()
    passed, lag = ended - began, (behind_now - behind) / (ended - began)
    taken = (stolen_now - stolen) / max(ticks_now - ticks, 1)
    if lag > 0.3:
        pytest.skip(f"this machine was too busy: the simulated GPU stood still for {lag:.0%} of the time")
    if taken > 0.3:
        pytest.skip(f"this machine's host took {taken:.0%} of its time")
    return [(y - x) / (passed - (behind_now - behind)) for x, y in zip(before, after)]


def slice_time(host, mode, *options):
    host.carve_json("timeslicing", "--mode", mode, *(options or LEASE))


def wait_busy(host, workload, timeout=PATIENCE):
    """Until it gets GPU time again."""
    at = busy(host, workload)
    wait_until(lambda: busy(host, workload) > at + 5_000_000, timeout)


__all__ = ["CLIENT", "LEASE", "Workload", "busy", "shares", "slice_time", "wait_busy"]
