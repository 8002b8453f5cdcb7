#!/usr/bin/python3
"""The time and memory that a slice adds to the start of a container: `podman run --rm IMAGE true`, alone and in each of carve's ways.

usage: bench/container_start.py [ROUNDS]     as root, with podman, runc and busybox; CARVE_BUILD names the build (build/)

All ways take turns in one run; printed are least and median times, the median of the CPU time of the client and of all that it
waits for (carve, podman, the runtime, the hook), and what each is above the runtime's own. On a busy machine go by the CPU time: the
others are mostly waiting for a processor."""
import pathlib
import resource
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


def figures(pairs):
    """Of all rounds but the first, in ms."""
    times, cpus = zip(*pairs[1:])
    return [("least", 1000 * min(times)), ("median", 1000 * statistics.median(times)), ("CPU", 1000 * statistics.median(cpus))]


def measure(podman, argv):
    before, start = cpu(), time.monotonic()
    done = podman(*argv)
    took = time.monotonic() - start, cpu() - before
    assert done.returncode == 0, done.stderr
    return took


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
                    podman_settled(podman)
            own = figures(took["podman run"])
            for name, pairs in took.items():
                print(f"{name:28}", *(f"{what} {value:6.1f} ms ({value - base:+.1f})"
                                      for (what, value), (_, base) in zip(figures(pairs), own)))
    finally:
        host.close()


def podman_settled(podman):
    """The watcher of a container that has ended asks podman about it: the next way would pay for that."""
    while list(watchers(podman.directory)):
        time.sleep(0.01)


if __name__ == "__main__":
    main()
