"""Workloads on the simulated host that the bench runs in, and the driver's own figures of what each had of a GPU."""
import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile
import time

from bench import peers
from bench.host import BenchError

WAIT_S = 90  # for what takes a fraction of a second on a machine that is not overloaded


def written(file):
    """What has been written into it. Never by reading on: the position is one with that of the processes that write, and
    who writes while it is back at the beginning writes over what is there."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def doing(pid):
    """Each thread's state, and what it waits for in the kernel."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            found.append(f"{(task / 'comm').read_text().strip()}: {state} {(task / 'wchan').read_text()}")
    return ", ".join(found)


class Workload:
    """`share_client ARGS` in a slice of that size, made by one of bench/sharers.py; `processes`: so many clients in the
    one slice; `folder`: for what belongs to this workload alone, with the times of its kernels if `stored`."""

    def __init__(self, build, by, size, args, processes, folder, stored):
        self.count, self.times = processes, folder / "times" if stored else None
        self.words, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        client = shlex.join(peers.by_name(by.library, [build / "tests/programs/share_client", *args]))
        if stored:
            client += f" --times {shlex.quote(str(self.times))}.$i"

        def line(before):
            """The shell's command line that runs all clients, each behind those words. One that fails ends them all: the
            others would go on for ever."""
            return f"for i in $(seq {processes}); do {before} {client} || kill 0 & done; wait"

        self.process = subprocess.Popen(by.command(build, size, line, folder / "scratch"), stdin=subprocess.DEVNULL,
                                        stdout=self.words, stderr=self.errors, start_new_session=True)
        self.own = []

    def lines(self):
        return written(self.words).splitlines()

    def failed(self, what):
        """With what its processes said and are at: whoever reads it cannot ask them any more."""
        at = [f"{pid} {doing(pid)}" for pid in self.descendants()]
        said = ", ".join(line for line in self.lines() if not line.startswith("{")) or "nothing"
        return BenchError("\n".join([f"{what}: {shlex.join(map(str, self.process.args))}", *at,
                                     f"{what}: its {self.count} clients said {said}", written(self.errors)[-500:]]).strip())

    def wait_up(self):
        """Until all clients are at work; from then on pids() is known."""
        end = time.monotonic() + WAIT_S
        while self.lines().count("up") < self.count:
            if self.process.poll() is not None or time.monotonic() > end:
                raise self.failed("a workload does not start")
            time.sleep(0.02)
        self.own = self.pids()

    def descendants(self):
        """{pid: name} of all that it has started and that is still there."""
        found, left = {}, [self.process.pid]
        while left:
            proc = pathlib.Path(f"/proc/{left.pop()}")
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for task in proc.glob("task/*/children"):
                    left += map(int, task.read_text().split())
                found[int(proc.name)] = (proc / "comm").read_text().strip()
        return found

    def pids(self):
        return [pid for pid, name in self.descendants().items() if name == "share_client"]

    def end(self):
        """Has the clients finish; returns what each said of itself."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise self.failed("a workload does not end") from None
        if self.process.returncode:
            raise self.failed(f"a workload ended with status {self.process.returncode}")
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def stored(self):
        """(start, end) of the last kernels of each client, as they stored them, in ns of the GPU's clock."""
        found = []
        for i in range(1, self.count + 1):
            text = pathlib.Path(f"{self.times}.{i}").read_text()
            found.append([tuple(map(int, line.split())) for line in text.splitlines()])
        return found

    def close(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.words.close()
        self.errors.close()


def carve(build, *args):
    done = subprocess.run([str(build / "carve"), *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=WAIT_S, check=False)
    if done.returncode:
        raise BenchError(f"carve {' '.join(map(str, args))}: {done.stderr.strip()}")
    return done.stdout


def books(build):
    """(the GPU's clock in ns as kernels read it, how far that is behind the machine's, {pid: ns of compute}) of the
    first GPU, by `carve sim stat`."""
    gpu = json.loads(carve(build, "sim", "stat", "--json"))["gpus"][0]
    return gpu["globaltimer_ns"], gpu["lag_ns"], {p["pid"]: p["busy_ns"] for p in gpu["processes"]}


def turns(build):
    """[(start, end, pid)] of who had the first GPU's compute engine, in ns of its clock, by `carve sim trace`."""
    with tempfile.NamedTemporaryFile("r") as file:
        carve(build, "sim", "trace", file.name)
        events = json.load(file)["traceEvents"]
    found = [(e["args"]["clock_ns"], e["args"]["clock_ns"] + e["args"]["ns"], e["pid"])
             for e in events if e.get("name") == "compute" and e["ph"] == "X"]
    return sorted(found)


def set_mode(build, mode, lease_ms, granularity):
    carve(build, "timeslicing", "--mode", mode, "--lease", f"{lease_ms}ms", "--granularity", f"{granularity}%")


def wait_no_sessions(build):
    end = time.monotonic() + WAIT_S
    while json.loads(carve(build, "session", "list", "--json")):
        if time.monotonic() > end:
            raise BenchError("sessions of a scenario that is over do not end")
        time.sleep(0.05)
