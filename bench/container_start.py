#!/usr/bin/python3
"""The time and memory that a slice adds to the start of a container: `podman run --rm IMAGE true`, alone and in each of carve's ways.

usage: bench/container_start.py [ROUNDS]     as root, with podman, runc and busybox; CARVE_BUILD names the build (build/)

All ways take turns in one run; printed are least and
median times, and what each is above the runtime's own. On a busy machine go by the least."""
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from conftest import BUILD, Host  # noqa: E402
from podman_host import podman_storage  # noqa: E402

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


def measure(podman, argv):
    start = time.monotonic()
    done = podman(*argv)
    took = time.monotonic() - start
    assert done.returncode == 0, done.stderr
    return took


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
            own = took["podman run"][1:]
            for name, (_, *times) in took.items():
                print(f"{name:28}", *(f"{of.__name__} {1000 * of(times):6.1f} ms ({1000 * (of(times) - of(own)):+.1f})"
                                      for of in (min, statistics.median)))
    finally:
        host.close()


def podman_settled(podman):
    """The watcher of a container that has ended asks podman about it for a while."""
    while subprocess.run(["pgrep", "-f", f"podman .*{podman.directory}"], capture_output=True).returncode == 0:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
