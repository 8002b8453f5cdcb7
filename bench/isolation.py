#!/usr/bin/python3
"""What `carve run true` takes, in milliseconds, isolated by preloading and by mounting, beside `true` alone.

    bench/isolation.py [ROUNDS]

As root, whose default mounting is. On a simulated host of its own, within one session; in each round every way runs
once, another one first each time."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench import host, stats  # noqa: E402: found by the line above

BUILD = pathlib.Path(os.environ.get("CARVE_BUILD", host.ROOT / "build")).resolve()


def main():
    host.enter(BUILD)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    carve = [str(BUILD / "carve")]
    ways = [("true", ["true"]), ("preload", [*carve, "run", "--isolation", "preload", "true"]),
            ("mount", [*carve, "run", "true"])]  # root's default: nothing is tried first
    host.checked([*carve, "session", "request", "--vram", "2"], os.environ)
    samples = {name: [] for name, _ in ways}
    for i in range(rounds):
        for name, argv in ways[i % len(ways):] + ways[:i % len(ways)]:
            start = time.perf_counter()
            host.checked(argv, os.environ)
            samples[name].append((time.perf_counter() - start) * 1000)
    for name, _ in ways:
        found = stats.summary(samples[name])
        print(f"{name:8} {found['median']:7.2f} ms (middle half {found['q1']:.2f} .. {found['q3']:.2f}, "
              f"least {found['least']:.2f})")
    more = stats.compare(samples["mount"], samples["preload"])["difference"]
    print(f"mount above preload: {more['median']:.2f} ms (95% {more['low']:.2f} .. {more['high']:.2f})")


main()
