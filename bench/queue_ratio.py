#!/usr/bin/python3
"""Queues of two builds beside each other: what enqueueing costs in one of them, in parts of what it costs in the other.

usage: bench/queue_ratio.py BASE [BUILD] [--rounds N] [--system]      some two minutes
example: bench/queue_ratio.py ../before/build build --system

Both daemons run at the same time, each on a simulated host of its own. They take turns within each round, so that other work on
the machine meets both. A round's ratio is the time in BUILD divided by that in BASE: above 1 BUILD is slower. It is given for the
time until the answer, and for the processor time of all of the daemon's processes, which other work changes less. With --system the
daemons are those of a machine, which root starts, and another user enqueues; else they are a user's own."""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SINGLE, ARRAY = 100, 1000
USER = 60101  # a user ID that nobody has


def daemon_of_a_machine(host, build):
    """Its socket. It ends with this process's host."""
    runtime = pathlib.Path(host.dir) / "run"
    runtime.mkdir(mode=0o755)
    pathlib.Path(host.dir).chmod(0o755)
    env = {k: v for k, v in host.env.items() if k != "CARVE_RUNTIME_DIR"}
    read, write = os.pipe()
    process = subprocess.Popen([build / "carved", "--system", "--runtime-dir", runtime, "--foreground", "--ready-fd", str(write)],
                               env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"R", "the daemon did not start"
    host.env["CARVE_HOST"] = str(runtime / "carved.sock")
    return process, runtime / "carved.sock"


def processor_seconds(runtime):
    """Of all processes of the daemon: those have its directory among their words."""
    ns = 0
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(runtime).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                ns += sum(int((task / "schedstat").read_text().split()[0]) for task in (entry / "task").iterdir())
        except OSError:
            pass
    return ns / 1e9


def measure(client, runtime):
    job = {"argv": ["/bin/true"], "cwd": "/", "env": [], "queue": "nobodys", "vram": "1"}
    client.call("POST", "/v1/jobs", job)
    print("ready", flush=True)
    for line in sys.stdin:
        begin, cpu = time.monotonic(), processor_seconds(runtime)
        if line.strip() == "single":
            for _ in range(SINGLE):
                client.call("POST", "/v1/jobs", job)
        else:
            client.call("POST", "/v1/jobs", {**job, "array": f"0-{ARRAY - 1}"})
        took = time.monotonic() - begin
        print(took, processor_seconds(runtime) - cpu, flush=True)


def serve(build, system):
    """A child, for one build: answers each line of its input by the seconds that it took, and those of the processor."""
    os.environ["CARVE_BUILD"] = str(build)
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "system")]
    from conftest import Host, open_to_others
    from queues import Connection
    host, process = Host("h100-80gb:1"), None
    try:
        if system:
            open_to_others(host)
            process, path = daemon_of_a_machine(host, build)
        else:
            host.carve_json("session", "list")
            path = host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
        child = os.fork() if system else 0
        if child:
            os.waitpid(child, 0)
            return
        try:
            if system:
                os.setgroups([])
                os.setresgid(USER, USER, USER)
                os.setresuid(USER, USER, USER)
            measure(Connection(str(path)), pathlib.Path(path).parent)
        finally:
            if system:
                os._exit(0)
    finally:
        if process:
            process.send_signal(signal.SIGTERM)
            process.wait()
        host.close()


class Side:
    def __init__(self, build, system):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", build, *(["--system"] if system else [])],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", f"{build} does not serve"

    def ask(self, what):
        print(what, file=self.process.stdin, flush=True)
        return tuple(map(float, self.process.stdout.readline().split()))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--system", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.base.resolve(), options.system)
        return
    sides = [Side(build.resolve(), options.system) for build in (options.base, options.build)]
    took = {what: ([], []) for what in ("single", "array")}
    for turn in range(options.rounds):
        for what, times in took.items():
            for side in ((0, 1), (1, 0))[turn % 2]:
                times[side].append(sides[side].ask(what))
    for side in sides:
        side.close()
    for what, (base, new) in took.items():
        count = SINGLE if what == "single" else ARRAY
        for place, name in enumerate(("until the answer", "of the processor")):
            ratios = sorted(b[place] / a[place] for a, b in zip(base, new))
            quarter, each = len(ratios) // 4, 1000 / (count if what == "single" else 1)
            print(json.dumps({"what": f"{count} jobs, {'one by one' if what == 'single' else 'an array'}", "time": name,
                              "base_ms": round(each * statistics.median(a[place] for a in base), 3),
                              "ms": round(each * statistics.median(b[place] for b in new), 3),
                              "ratio": round(statistics.median(ratios), 2), "quartiles": [round(ratios[i], 2) for i in (quarter, -quarter - 1)]}))


if __name__ == "__main__":
    main()
