#!/usr/bin/python3
"""The time and memory that a slice adds to the start of a container: `podman run --rm IMAGE true`, alone and in each of carve's ways.

usage: bench/container_start.py [ROUNDS]     as root, with podman, runc, busybox and perf; CARVE_BUILD names the build (build/)

All ways take turns in one run; printed are least and median times, the least CPU time and the median of the pages that are touched
first (perf's page-faults) of all processes of the start, the least of the peaks of their memory, and what each is above the runtime's
own. On a busy machine go by the pages, as no load changes them: the times are mostly waiting for a processor.

The memory is that of a cgroup in which the client starts: of all its processes, of the kernel for them, and of the files that they
read first. podman puts the container's own processes elsewhere. At the end comes what stays while a container runs."""
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from conftest import BUILD, Host  # noqa: E402
from podman_host import podman_storage, watchers  # noqa: E402

ROUNDS = 20


def command(podman, session, hooks):
    own = ["podman", "run", "--rm", "--network=none"]
    simulated = ["--env", "SIMGPU_HOST=" + podman.host.env["SIMGPU_HOST"]]
    hooked = ["podman", "--hooks-dir", str(hooks), "run", "--rm", "--network=none", *simulated]
    end = [podman.IMAGE, "true"]
    return {
        "podman run": [*own, *end],
        "hook, no label": [*hooked, *end],
        "hook, carve.session": [*hooked, "--annotation", f"carve.session={session}", *end],
        "hook, carve.vram": [*hooked, "--annotation", "carve.vram=2GiB", *end],
        "carve podman run --session": [str(BUILD / "carve"), "podman", "run", "--rm", "--network=none", "--session", session,
                                       *end],
        "carve podman run --vram": [str(BUILD / "carve"), "podman", "run", "--rm", "--network=none", "--ephemeral", "--vram",
                                    "2", *end],
    }


def figures(rounds):
    """Of all rounds but the first: (what, value, unit)."""
    times, cpus, pages, peaks = zip(*rounds[1:])
    return [("least", 1000 * min(times), "ms"), ("median", 1000 * statistics.median(times), "ms"), ("CPU", min(cpus), "ms"),
            ("touched", statistics.median(pages), "pages"), ("memory", min(peaks) / 1e6, "MB")]


def measure(podman, argv):
    with Memory() as memory:
        counts = podman.directory / "counts"
        start = time.monotonic()
        done = podman("perf", "stat", "-x,", "-e", "task-clock,page-faults", "-o", counts, *memory.enter, *argv)
        took = time.monotonic() - start
        assert done.returncode == 0, done.stderr
        podman_settled(podman)
        return took, *(float(line.split(",")[0]) for line in counts.read_text().splitlines() if "," in line), memory.peak()


class Memory:
    """A cgroup that counts the memory of what starts in it."""

    def __enter__(self):
        old = pathlib.Path("/sys/fs/cgroup/memory")
        self.directory = (old if old.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"carve-bench-{os.getpid()}"
        self.file = "memory.max_usage_in_bytes" if old.is_dir() else "memory.peak"
        self.directory.mkdir()
        self.enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.directory / "cgroup.procs"]
        return self

    def peak(self):
        return int((self.directory / self.file).read_text())

    def __exit__(self, *_):
        while (self.directory / "cgroup.procs").read_text():
            time.sleep(0.01)
        self.directory.rmdir()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    host = Host("h100-80gb")
    try:
        with podman_storage() as podman:
            podman.host = host
            hooks = podman.directory / "hooks"
            assert host.carve("hook", "install", "--hooks-dir", hooks).returncode == 0
            session = host.carve_json("session", "request", "--vram", "4")["id"]
            ways = command(podman, session, hooks)
            took = {name: [] for name in ways}
            for _ in range(rounds + 1):
                for name, argv in ways.items():
                    took[name].append(measure(podman, argv))
            own = figures(took["podman run"])
            for name, pairs in took.items():
                print(f"{name:28}", *(f"{what} {value:6.1f} {unit} ({value - base:+.1f})"
                                      for (what, value, unit), (_, base, _) in zip(figures(pairs), own)))
            for name in "hook, carve.vram", "carve podman run --vram":
                print(f"{name:28} {staying(podman, ways[name]) / 1e6:.2f} MB while the container runs")
    finally:
        host.close()


def staying(podman, argv):
    """Memory that carve's processes hold while a container runs, shared pages taken apart: those that look after it, and what the daemon has more."""
    daemon = pathlib.Path("/proc", pathlib.Path(podman.host.env["CARVE_RUNTIME_DIR"], "lock").read_text().split()[0])
    before = own_bytes(daemon)
    detached = [word for word in argv if word != "--rm"]
    at = detached.index("run") + 1
    assert podman(*detached[:at], "--detach", *detached[at:-1], "sleep", "600").returncode == 0
    held = sum(own_bytes(status.parent) for status in watchers(podman.directory)) + own_bytes(daemon) - before
    podman.clean()
    podman_settled(podman)
    return held


def own_bytes(process):
    lines = (process / "smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def podman_settled(podman):
    """The watcher of a container that has ended asks podman about it: the next way would pay for that."""
    while list(watchers(podman.directory)):
        time.sleep(0.01)


if __name__ == "__main__":
    main()
