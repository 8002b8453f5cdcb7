"""Time on a simulated GPU: what kernels store of %globaltimer, what their events say, what the host
books, and what its trace shows are one truth, however slowly this machine plays them."""
import ctypes
import json
import os
import signal
import statistics
import subprocess
import time

import pytest

from conftest import BUILD, ON_GPU, rest_long, wait_until
from programs import python
from test_simhost import sim  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books"),
              pytest.mark.once("the engine's arithmetic, which the unit tests have with sanitizers")]

US, MS = 1000, 1000000
LAUNCH = 1500  # what a launch costs the GPU besides the kernel's instructions
SPIN = 21 * US # how closely a kernel that polls the clock meets its end


def few(count):
    """The time that the instructions beside so many naps may take."""
    return 200 + 15 * count


class Process:
    def __init__(self, host, program, kernel, *numbers, **env):
        self.popen = subprocess.Popen(
            python(program, kernel, *numbers), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**host.env, **env})
        self.pid = self.popen.pid

    def up(self):
        assert self.popen.stdout.readline() == "up\n"

    def go(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def answer(self):
        return json.loads(self.popen.stdout.readline())

    def end(self):
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def start(sim):  # noqa: F811
    host, processes = sim(), []

    def begin(program, *arguments, **env):
        processes.append(Process(host, program, *arguments, **env))
        return processes[-1]

    begin.host = host
    yield begin
    for process in processes:
        process.end()


def busy(stat, process):
    return next(p["busy_ns"] for p in stat["gpus"][0]["processes"] if p["pid"] == process.pid)


@pytest.mark.parametrize("kernel", ["sleeper", "quiet", "spinner"])
@pytest.mark.parametrize("count,ns,kernels", [(1, 50 * US, 200), (20, 50 * US, 30), (1, 5 * MS, 40),
                                              (1, 100 * MS, 3), (50, 2 * MS, 2)])
@pytest.mark.parametrize("ahead", rest_long([True, False]))
def test_a_kernel_takes_what_it_says(start, kernel, count, ns, kernels, ahead):
    before_naps = 200 * MS // ns if ahead else 0
    process = start("sim_some", kernel, count, ns, before_naps, kernels)
    process.up()
    before = busy(start.host.stat(), process)
    process.go()
    answer = process.answer()
    took = busy(start.host.stat(), process) - before
    each, more = count * ns, SPIN if kernel == "spinner" else few(count)
    some = kernels * (each + LAUNCH)
    first = before_naps * ns + LAUNCH * ahead
    first_more = ahead * (SPIN if kernel == "spinner" else few(before_naps))
    assert first + some <= took <= first + first_more + some + kernels * more
    if kernel != "quiet":
        assert all(each <= b - a <= each + more for a, b in answer["stored"])
        inside = sum(b - a for a, b in answer["stored"] + [answer["first"]] * ahead)
        inside += (kernels + ahead) * LAUNCH
        assert inside <= took <= inside + (kernels + ahead) * few(0)
    if ahead:  # nothing but kernels between the events
        assert some * (1 - 1e-6) <= answer["ms"] * MS <= (some + kernels * more) * (1 + 1e-6)


def covered(turns, start, end):
    """How much of this time a process had the GPU."""
    return sum(max(0, min(b, end) - max(a, start)) for a, b in turns)


def test_kernels_see_whose_turn_it_was(start, tmp_path):
    """Of the time between a kernel's start and end, what was its process's is what it was told to take."""
    shapes = [("sleeper", 30, 100 * US), ("sleeper", 1, 5 * MS), ("spinner", 1, 3 * MS), ("sleeper", 3, 700 * US)]
    processes = [start("sim_some", kernel, count, ns, count, 40) for kernel, count, ns in shapes]
    for process in processes:
        process.up()
    before = start.host.stat()
    for process in processes:
        process.go()
    answers = [process.answer() for process in processes]
    after = start.host.stat()
    turns = {}
    for e in start.host.trace(tmp_path / "trace"):
        if e.get("name") == "compute" and e["ph"] == "X":
            at = e["args"]["clock_ns"]
            turns.setdefault(e["pid"], []).append((at, at + e["args"]["ns"]))
    whole = sorted(t for ts in turns.values() for t in ts)
    assert all(a[1] <= b[0] for a, b in zip(whole, whole[1:]))
    for process, answer, (kernel, count, ns) in zip(processes, answers, shapes):
        stored = answer["stored"] + [answer["first"]]
        own = [covered(turns[process.pid], *both) for both in stored]
        if kernel == "sleeper":
            assert all(count * ns <= o <= count * ns + few(count) for o in own), own
        else:  # it waits for the clock, whoever has the GPU
            assert all(count * ns <= b - a for a, b in stored)
        took = busy(after, process) - busy(before, process)
        assert sum(own) + 41 * LAUNCH <= took <= sum(own) + 41 * (LAUNCH + few(0))


@pytest.mark.parametrize("shapes", [
    [("sleeper", 1, 5 * MS), ("sleeper", 50, 50 * US), ("spinner", 1, 1 * MS), ("quiet", 7, 300 * US)] * 2,
    [("quiet", 1, 200 * US)] * 8])
@pytest.mark.timed
def test_eight_busy_processes_share_equally(start, shapes):
    """An eighth of the GPU's time each, right to one in a hundred. One that the machine puts aside for a while has less in
    that second; so each is judged by the middle one of its seconds."""
    processes = [start("sim_always", kernel, count, ns, 8 + 20 * MS // (count * ns)) for kernel, count, ns in shapes]
    for process in processes:
        process.up()
    wait_until(lambda: all(p["busy_ns"] > 0 for p in start.host.stat()["gpus"][0]["processes"]))
    stats = []
    for _ in range(4):
        stats.append(start.host.stat())
        time.sleep(1)
    off, parts = [], []
    for before, after in zip(stats, stats[1:]):
        clock = after["gpus"][0]["clock_ns"] - before["gpus"][0]["clock_ns"]
        took = [busy(after, p) - busy(before, p) for p in processes]
        assert sum(took) <= clock
        share = statistics.median(took)
        # One who looks does so within somebody's turn of 2 ms, twice.
        off.append([max(0, abs(t - share) - 4 * MS) / share for t in took])
        parts.append(sum(took) / clock)
    assert statistics.median(parts) > 0.95, parts
    assert all(statistics.median(seconds) <= 0.01 for seconds in zip(*off)), off


@pytest.mark.timed
def test_slow_players_get_their_share(start):
    """A kernel that this machine needs far longer for than the GPU would, beside one that only sleeps."""
    slow = start("sim_always", "quiet", 4000, 0, 400, SLOW="1")
    fast = start("sim_always", "quiet", 1, 500 * US, 48)
    for process in (slow, fast):
        process.up()
    time.sleep(0.3)
    before = start.host.stat()
    time.sleep(1.5)
    after = start.host.stat()
    took = [busy(after, p) - busy(before, p) for p in (slow, fast)]
    # The time that the GPU waited for this machine is told.
    lag, clock = (after["gpus"][0][k] - before["gpus"][0][k] for k in ("lag_ns", "clock_ns"))
    assert lag > 100 * MS and lag + clock >= 1400 * MS, (lag, clock)
    if clock < 0.1 * lag:
        pytest.skip("this machine was too busy: a turn that takes 0.2 s to play is passed on")
    assert abs(took[0] - took[1]) <= 0.02 * sum(took) + 4 * MS, took


def test_leases_can_go_by_the_gpus_own_clock(start, monkeypatch):
    """The figure that the daemon asks libnvidia-ml for: how far the GPU's clock is behind the machine's. It stands still for a kernel
    that is being played."""
    slow = start("sim_always", "quiet", 4000, 0, 400, SLOW="1")
    slow.up()
    monkeypatch.setenv("SIMGPU_HOST", start.host.env["SIMGPU_HOST"])
    nvml = ctypes.CDLL(BUILD / "sim/libnvidia-ml.so.1")
    nvml.simgpuClockLag.restype, nvml.simgpuClockLag.argtypes = ctypes.c_ulonglong, [ctypes.c_uint, ctypes.c_ulonglong]

    def clock():
        now = time.monotonic_ns()
        return now - nvml.simgpuClockLag(0, now)

    assert nvml.simgpuClockLag(0, time.monotonic_ns()) == 0  # not initialised
    assert nvml.nvmlInit_v2() == 0
    try:
        assert nvml.simgpuClockLag(64, time.monotonic_ns()) == 0  # no such GPU
        # Where it stands still it is told to have gone on until the host has looked, which a busy machine does late.
        def agree():
            first, stat, last = clock(), start.host.stat()["gpus"][0], clock()
            return stat["lag_ns"] > 10 * MS and first - 5 * MS <= stat["clock_ns"] <= last + 5 * MS

        wait_until(lambda: agree() and agree() and agree())
        os.kill(slow.pid, signal.SIGSTOP)
        time.sleep(0.5)
        before = clock()
        time.sleep(0.5)
        assert clock() - before < 300 * MS
        os.kill(slow.pid, signal.SIGCONT)
    finally:
        nvml.nvmlShutdown()
