"""The shares of a real GPU's time that sessions get, where there are no figures of it: by the start and end that kernels store
themselves, by the GPU's own clock, and by how long each takes alone."""
import bisect
import contextlib
import json
import math
import pathlib
import subprocess
import tempfile
import time

from bench import real, shares, workload
from bench.host import BenchError

WARM_UP_NS = 2_000_000_000
TUNING_US = 1_000_000


def loops_per_us(build):
    """How many steps of the fixed work the GPU makes in 1 us of its own time; 0: kernels sleep instead, as a simulated GPU
    would need this machine's processors for the steps."""
    if real.simulated():
        return 0
    client = [str(build / "tests/programs/share_client"), "--work", "1", "--kernel-us", str(TUNING_US), "--sync-every", "1",
              "--seconds", "2"]
    done = subprocess.run(client, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False)
    if done.returncode:
        raise BenchError(f"the kernel of fixed work does not run: {done.stderr.strip()[-200:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return max(1, round(said["kernels"] * TUNING_US / (said["stored_ns"] / 1000)))


def kernel_ns(args):
    """What each kernel takes alone, on average, of share_client's options."""
    options = dict(zip(args[::2], args[1::2]))
    lengths = [float(us) for us in str(options.get("--kernel-us", 1000)).split(",")]
    return 1000 * sum(lengths) / len(lengths)


def read(times, processes):
    """[(start, end)] of the last kernels of a workload's processes, in order, that all of them were seen in."""
    files = [[tuple(map(int, line.split())) for line in open(f"{times}.{i + 1}")] for i in range(processes)]
    if not all(files):
        raise BenchError("a workload ran no kernel")
    return sorted(pair for pairs in files for pair in pairs), max(min(pairs)[0] for pairs in files)


class Times:
    """Of all workloads of a scenario: when each had the GPU, in the time in which all were at work."""

    def __init__(self, found, alone_ns):
        self.pairs, self.alone_ns = [pairs for pairs, _ in found], alone_ns
        self.began = max(first for _, first in found)
        self.ended = min(max(end for _, end in pairs) for pairs in self.pairs)
        if self.ended - self.began > 2 * WARM_UP_NS:
            self.began += WARM_UP_NS
        self.ends = [sorted(end for _, end in pairs) for pairs in self.pairs]

    def busy(self, began, ended):
        """ns that each had between two times: kernels that ended then, by what one takes alone. What the driver gives to
        others in the midst of a kernel makes that longer, and is not its own."""
        return [(bisect.bisect_left(ends, ended) - bisect.bisect_left(ends, began)) * ns
                for ends, ns in zip(self.ends, self.alone_ns)]

    def looks(self, plan_s):
        """[(time, ns of each since the first look)], a plan apart."""
        count = max(1, math.floor((self.ended - self.began) / (plan_s * 1e9)))
        step = (self.ended - self.began) / count
        times = [round(self.began + i * step) for i in range(count + 1)]
        return [(t, self.busy(self.began, t)) for t in times]

    def turns(self):
        """[(start, end, number of the workload)]"""
        return sorted((a, b, i) for i, pairs in enumerate(self.pairs) for a, b in pairs)


def measure(build, scenario, seconds, by):
    """As shares.measure() does, of workloads on a real GPU."""
    by.prepare(build, scenario)
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as folder, contextlib.ExitStack() as stack:
        running = []
        for i, client in enumerate(scenario.clients):
            own = pathlib.Path(folder, str(i))
            own.mkdir()
            one = workload.Workload(build, by, client.size, client.args, client.processes, own, True)
            running.append(stack.enter_context(contextlib.closing(one)))
        for one in running:
            one.wait_up()
        visitors = shares.Visitors(build, by, pathlib.Path(folder)) if scenario.visitors else None
        try:
            time.sleep(seconds + WARM_UP_NS / 1e9)
        finally:
            if visitors:
                visitors.end()
        answers = [w.end() for w in running]
        times = Times([read(w.times, w.count) for w in running], [kernel_ns(c.args) for c in scenario.clients])
    by.settle(build)
    looks = times.looks(scenario.lease_ms * 0.1 / scenario.granularity)
    plans = [shares.differences(a, b) for a, b in zip(looks, looks[1:])]
    turns = [t for t in times.turns() if t[1] > times.began and t[0] < times.ended]
    return shares.Run([c.size for c in scenario.clients], times.began, times.ended, looks[-1][1], plans, answers, None, turns,
                      [[i] for i in range(len(running))])
