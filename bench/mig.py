#!/usr/bin/python3
"""Compares the MIG placement policy with others by simulation: docs/dev/benchmarks.md's figures.

    /usr/bin/python3 -m bench.mig [--quick] [--build DIR] [--results FILE] [--svg FILE]

Runs build/bench/mig_sim for every case that FILE does not have yet, so that it can be broken off and go on, then prints
the tables. --quick: a few small cases, as the tests do."""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[1]
MIXES = ("uniform", "mostly small", "bimodal", "mostly large", "memory only", "inference", "openb")
LOADS = (0.7, 1.0, 1.3)
TAILS = ("exponential", "heavy")
MODES = ("lossy", "waiting")
JOBS = {1: 10000, 8: 20000, 100: 30000, 1000: 50000}
SEEDS = 5
FULL = list(itertools.product(JOBS, MIXES, LOADS, TAILS, MODES))
QUICK = list(itertools.product((8,), ("uniform", "mostly small"), (1.0,), ("exponential",), MODES))
OURS, PLACEMENT, FIRST, BOUND = "carve", "carve, eager", "first-fit", "repacking"
RIVALS = ("first-fit", "first-fit, driver", "best-fit", "worst-fit", "round-robin", "MFI", "FGD")
# Student's t for five seeds: 95% lie within this many standard errors.
T_95 = 2.776
# A difference below that is none to anybody: points of accepted work; hundredths of a mean wait.
NEGLIGIBLE = 0.1
# The part of the gap between first-fit and the bound that is to be closed, where it exceeds 1 point.
GOALS = {8: 35, 100: 55}


def key_of(case):
    return "/".join(map(str, case))


def simulate(build, case, jobs_part):
    gpus, mix, load, tail, mode = case
    argv = [build / "bench" / "mig_sim", gpus, load, mix, tail, mode, int(JOBS[gpus] * jobs_part), SEEDS]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=True)
    values = {}
    for line in done.stdout.splitlines():
        policy, _, accepted, wait, *_ = line.split("\t")
        values.setdefault(policy, []).append(float(accepted) if mode == "lossy" else float(wait))
    return values


def run_missing(build, cases, results, path, jobs_part):
    missing = [c for c in cases if key_of(c) not in results]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {pool.submit(simulate, build, c, jobs_part): c for c in missing}
        for future in concurrent.futures.as_completed(futures):
            results[key_of(futures[future])] = future.result()
            if path:
                path.write_text(json.dumps(results))


def gain(values, mode, policy, over):
    """By how much `policy` is better than `over`: points of accepted work as a part of first-fit's, or per cent of the mean
    wait. Mean over the seeds, and half of the interval that has 95% of it."""
    pairs = list(zip(values[policy], values[over], values[FIRST]))
    if mode == "lossy":
        diffs = [100 * (a - b) / f for a, b, f in pairs]
    else:
        # A part of the longer of the two waits, as first-fit's may be next to nothing.
        diffs = [100 * (b - a) / max(a, b, 1e-3) for a, b, _ in pairs]
    return statistics.mean(diffs), T_95 * statistics.stdev(diffs) / len(diffs) ** 0.5


def below(results, cases, policy):
    """[(case, rival, gain, half interval)] where a rival is better beyond noise."""
    found = []
    for case in cases:
        values, mode = results[key_of(case)], case[4]
        for rival in RIVALS:
            mean, half = gain(values, mode, policy, rival)
            if mean + half < 0 and mean < -NEGLIGIBLE * (1 if mode == "lossy" else 10):
                found.append((case, rival, mean, half))
    return found


def closed(values, policy):
    """The gap between first-fit and the bound in points, and the part of it that the policy closes, per cent."""
    gap, _ = gain(values, "lossy", BOUND, FIRST)
    mean, _ = gain(values, "lossy", policy, FIRST)
    return gap, 100 * mean / gap if gap > 1 else None


def table(results, tail="exponential", load=1.0):
    """Rows of Markdown: accepted work over first-fit's, lossy."""
    columns = ("first-fit, driver", "best-fit", "MFI", "FGD", PLACEMENT, OURS, BOUND)
    yield "| mix | GPUs | first-fit accepts | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 3) + "|"
    for mix in MIXES:
        for gpus in JOBS:
            key = key_of((gpus, mix, load, tail, "lossy"))
            if key not in results:
                continue
            values = results[key]
            cells = []
            for policy in columns:
                mean, half = gain(values, "lossy", policy, FIRST)
                cells.append(f"{mean:+.2f} ± {half:.2f}")
            yield f"| {mix} | {gpus} | {100 * statistics.mean(values[FIRST]):.1f}% | " + " | ".join(cells) + " |"


def goals(results, cases):
    """Lines that say whether the goals are met."""
    for policy in (PLACEMENT, OURS):
        worse = below(results, cases, policy)
        counted = sum(key_of(c) in results for c in cases) * len(RIVALS)
        yield f"{policy}: {len(worse)} of {counted} comparisons are below a rival beyond noise"
        for case, rival, mean, half in worse:
            yield f"    {key_of(case)}: {mean:+.2f} ± {half:.2f} against {rival}"
        for gpus, goal in GOALS.items():
            parts = []
            for case in cases:
                if case[0] == gpus and case[4] == "lossy":
                    gap, part = closed(results[key_of(case)], policy)
                    if part is not None:
                        parts.append((part, key_of(case), gap))
            if parts:
                least = min(parts)
                yield (f"{policy}: {gpus} GPUs: of {len(parts)} gaps above 1 point, {sum(p[0] >= goal for p in parts)} are closed by "
                       f"{goal}% or more; median {statistics.median(p[0] for p in parts):.0f}%, least {least[0]:.0f}% ({least[1]})")


# ---- the plot: accepted work over first-fit's, a panel a mix, a bar a policy ----

COLOURS = {"first-fit, driver": "#b9b9b9", "best-fit": "#8f8f8f", "MFI": "#c58a12", "FGD": "#c8553d",
           PLACEMENT: "#5b9bd5", OURS: "#0b5fa5", BOUND: "#dddddd"}
PANEL, BAR, HEIGHT, TOP, LEFT = 150, 15, 220, 70, 50


def svg(results, gpus_shown=(8, 100), tail="exponential", load=1.0):
    values = {}
    for gpus in gpus_shown:
        for mix in MIXES:
            case = results[key_of((gpus, mix, load, tail, "lossy"))]
            values[gpus, mix] = {p: gain(case, "lossy", p, FIRST)[0] for p in COLOURS}
    low = min(0, min(v for row in values.values() for v in row.values()))
    high = max(1, max(v for row in values.values() for v in row.values()))
    width, height = LEFT + PANEL * len(MIXES) + 10, TOP + (HEIGHT + 50) * len(gpus_shown) + 20
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'font-family="sans-serif" font-size="12">')
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield (f'<text x="{LEFT}" y="22" font-size="15">Accepted work over first-fit\'s, per cent: H100 80GB, load {load}, '
           f'{escape(tail)} run times, lost where nothing fits</text>')
    for i, (policy, colour) in enumerate(COLOURS.items()):
        yield f'<rect x="{LEFT + 150 * i}" y="36" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{LEFT + 150 * i + 17}" y="47">{escape(policy)}</text>'
    for row, gpus in enumerate(gpus_shown):
        yield from panel_row(values, gpus, TOP + row * (HEIGHT + 50), low, high)
    yield "</svg>"


def panel_row(values, gpus, top, low, high):
    scale = HEIGHT / (high - low)
    zero = top + high * scale
    for tick in range(int(low) - 1, int(high) + 1):
        if low <= tick <= high:
            y = zero - tick * scale
            yield f'<line x1="{LEFT}" x2="{LEFT + PANEL * len(MIXES)}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:+d}</text>'
    yield f'<text x="12" y="{top + HEIGHT / 2}" transform="rotate(-90 12 {top + HEIGHT / 2})" text-anchor="middle">{gpus} GPUs</text>'
    for column, mix in enumerate(MIXES):
        x = LEFT + column * PANEL + 12
        for i, (policy, colour) in enumerate(COLOURS.items()):
            value = values[gpus, mix][policy]
            y, size = (zero - value * scale, value * scale) if value > 0 else (zero, -value * scale)
            yield (f'<rect x="{x + i * (BAR + 2)}" y="{y:.1f}" width="{BAR}" height="{max(size, 0.5):.1f}" fill="{colour}">'
                   f'<title>{escape(policy)}: {value:+.2f}%</title></rect>')
        yield f'<text x="{x + 4 * BAR}" y="{top + HEIGHT + 18}" text-anchor="middle">{escape(mix)}</text>'
    yield f'<line x1="{LEFT}" x2="{LEFT + PANEL * len(MIXES)}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="#444"/>'


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few small cases")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--results", type=pathlib.Path, help="kept between calls")
    parser.add_argument("--svg", type=pathlib.Path, help="draw 8 and 100 GPUs there")
    args = parser.parse_args(argv)
    cases = QUICK if args.quick else FULL
    results = json.loads(args.results.read_text()) if args.results and args.results.exists() else {}
    run_missing(args.build, cases, results, args.results, 0.25 if args.quick else 1)
    print("\n".join(table(results)))
    print("\n".join(goals(results, cases)))
    if args.svg:
        args.svg.write_text("\n".join(svg(results)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
