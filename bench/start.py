"""How long a command of carve takes from its start to its end: `--version`, which asks nobody, and `gpu list` beside a daemon that
runs. /bin/true is what starting any program costs this machine.

    /usr/bin/python3 -m bench.start [--build DIR] [--rounds N]

starts a simulated host with one H100 for itself."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def took_ms(command):
    silent = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    began = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(command[0], command, os.environ, file_actions=silent), 0)
    ms = (time.perf_counter() - began) * 1000
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed: wait status {status}")
    return ms


def measure(carve, rounds):
    """{name: (median, 90th percentile) in ms}; the commands take turns, so that a busy moment meets all of them."""
    commands = {"/bin/true": ["/bin/true"], "carve --version": [carve, "--version"], "carve gpu list": [carve, "gpu", "list"]}
    took_ms(commands["carve gpu list"])  # starts the daemon
    took = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            took[name].append(took_ms(command))
    return {name: (statistics.median(ms), sorted(ms)[len(ms) * 9 // 10]) for name, ms in took.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    carve = str(args.build.resolve() / "carve")
    if args.inside:
        print(json.dumps(measure(carve, args.rounds)))
        return 0
    done = subprocess.run([carve, "sim", "--gpus", "h100-80gb", "--", sys.executable, "-m", "bench.start", "--inside", "--build",
                           args.build.resolve(), "--rounds", str(args.rounds)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return 1
    print(f"load {os.getloadavg()[0]:.1f}, {args.rounds} rounds\n\n| command | p50 | p90 |\n|---|---|---|")
    for name, (median, late) in json.loads(done.stdout.splitlines()[-1]).items():
        print(f"| {name} | {median:.2f} ms | {late:.2f} ms |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
