#!/usr/bin/python3
"""Compares the waits of jobs under carve's queues with those under other rules, by simulation: docs/dev/benchmarks.md's figures.

    /usr/bin/python3 -m bench.waits [--quick] [--build DIR] [--svg FILE]

Runs build/bench/queue_sim for each load, and prints the tables; one minute on two CPUs. --quick: two loads of one day, as
the test does."""
import argparse
import concurrent.futures
import itertools
import math
import os
import pathlib
import statistics
import subprocess
import sys

from bench import plot

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPUS = 8
LOADS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
MIXES = ("queues", "memory")
# Names of bench/queue_sim.c, and those that a reader sees.
NAMES = {"first_come": "first come", "clearml": "ClearML", "carve": "carve", "carve_limits": "carve, with limits"}
COLOURS = dict(zip(NAMES.values(), ("#8f8f8f", "#c8553d", "#5b9bd5", "#0b5fa5")))
GOAL, GOAL_LOAD = 5, 0.85
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 320, 64, 60, 52


def simulate(build, mix, load, days, seeds):
    """{policy: (mean, 99th of 100, longest)}: in mean run times, the mean of the seeds each."""
    argv = [build / "bench" / "queue_sim", GPUS, load, days, seeds, mix]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=True)
    rows = {}
    for line in done.stdout.splitlines():
        policy, _, _, mean, p99, longest, _ = line.split("\t")
        rows.setdefault(NAMES[policy], []).append((float(mean), float(p99), float(longest)))
    return {policy: tuple(statistics.mean(column) for column in zip(*values)) for policy, values in rows.items()}


def simulate_all(build, loads, days, seeds):
    cases = list(itertools.product(MIXES, loads))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cases, pool.map(lambda case: simulate(build, *case, days, seeds), cases)))


def table(results):
    """Rows of Markdown."""
    yield "| jobs, load | | " + " | ".join(NAMES.values()) + " |"
    yield "|---" * (len(NAMES) + 2) + "|"
    for (mix, load), policies in results.items():
        for place, what in enumerate(("mean", "99 of 100", "longest")):
            cells = [f"{policies[name][place]:.2g}" if name in policies else "-" for name in NAMES.values()]
            yield f"| {mix}, {100 * load:.0f}% | {what} | " + " | ".join(cells) + " |"


def goals(results):
    """Lines that say by how much the mean wait is shorter at the goal's load."""
    for (mix, load), policies in results.items():
        if load != GOAL_LOAD:
            continue
        for ours, other in itertools.product(("carve", "carve, with limits"), ("first come", "ClearML")):
            if other in policies:
                times = policies[other][0] / policies[ours][0]
                yield (f"{mix}, {100 * load:.0f}%: mean wait of {ours} {times:.1f} times shorter than of {other} "
                       f"(goal {GOAL}): {'met' if times >= GOAL else 'missed'}")


# ---- the plot: mean wait by load, a panel a mix ----

def panel(results, mix, left, loads, decades):
    low, high = decades
    right, bottom = left + WIDTH - LEFT - 20, HEIGHT - BOTTOM

    def x(load):
        return left + (load - loads[0]) / (loads[-1] - loads[0]) * (right - left)

    def y(wait):
        return bottom - (math.log10(wait) - low) / (high - low) * (bottom - TOP)

    yield plot.text((left + right) / 2, TOP - 12, f"jobs: {mix}", size=14)
    yield plot.text((left + right) / 2, HEIGHT - 14, "load, per cent of the GPUs", size=12)
    for decade in range(low, high + 1):
        yield f'<line x1="{left}" x2="{right}" y1="{y(10 ** decade):.1f}" y2="{y(10 ** decade):.1f}" stroke="#ddd"/>'
        yield plot.text(left - 8, y(10 ** decade) + 4, f"{10 ** decade:g}", "end", 12)
    for load in loads:
        yield plot.text(x(load), bottom + 18, f"{100 * load:.0f}", size=12)
    for name, colour in COLOURS.items():
        points = [(x(load), y(results[mix, load][name][0])) for load in loads if name in results[mix, load]]
        if points:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            yield from (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points)


def svg(results):
    loads = sorted({load for _, load in results})
    means = [values[0] for policies in results.values() for values in policies.values()]
    # A wait of nothing has no place on a logarithmic axis; queue_sim prints four digits.
    decades = plot.log_range([max(mean, 1e-4) for mean in means])
    results = {case: {name: (max(values[0], 1e-4), *values[1:]) for name, values in policies.items()}
               for case, policies in results.items()}
    wide = WIDTH * len(MIXES)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {HEIGHT + 30}" font-family="sans-serif">'
           f'<rect width="{wide}" height="{HEIGHT + 30}" fill="white"/>')
    yield plot.text(wide / 2, 24, f"Mean wait of a job on {GPUS} GPUs, in mean run times", size=16)
    for i, mix in enumerate(MIXES):
        yield from panel(results, mix, LEFT + WIDTH * i, loads, decades)
    for i, (name, colour) in enumerate(COLOURS.items()):
        at = LEFT + 180 * i
        yield f'<rect x="{at}" y="{HEIGHT + 6}" width="12" height="12" fill="{colour}"/>'
        yield plot.text(at + 18, HEIGHT + 17, name, "start", 12)
    yield "</svg>"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two loads of one day")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--svg", type=pathlib.Path, help="draw the mean waits there")
    args = parser.parse_args(argv)
    loads, days, seeds = ((0.7, GOAL_LOAD), 1, 2) if args.quick else (LOADS, 10, 10)
    results = simulate_all(args.build, loads, days, seeds)
    print("\n".join(table(results)))
    print("\n".join(goals(results)))
    if args.svg:
        args.svg.write_text("\n".join(svg(results)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
