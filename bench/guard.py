"""The regression guard: ratios of what is cheap to measure against bounds that are checked in (bounds.json).

Least times only: whatever else runs on the machine adds to a batch and never takes away, and of many short batches
one is undisturbed. A time divided by one of the same process and machine says the same on a slow and on a fast one."""
import json
import pathlib

from bench import calls, report

BOUNDS = pathlib.Path(__file__).with_name("bounds.json")
ROUNDS = 15
ATTEMPTS = 4
LOOPS = ["forwarded", "launch", "graph_launch", "memcpy", "get_proc_address", calls.ALLOC, calls.ALLOC_SMALL, "locked_add"]


def least(samples, loop, live, name):
    return min(samples.by_row[loop, live, 0][name])


def ratio(samples, bound):
    """What the bound is about: carve's least time over that of the direct call, or of another row of carve's."""
    loop, live = bound["loop"], bound.get("live", 0)
    own = least(samples, loop, live, "carve")
    if bound["over"] == "direct":
        return own / least(samples, loop, live, "direct")
    return own / least(samples, bound["over"], bound.get("over_live", 0), "carve")


def judge(samples, bounds):
    """[(bound, its ratio)]"""
    return [(bound, ratio(samples, bound)) for bound in bounds]


def passed(found):
    return all(value <= bound["at_most"] for bound, value in found)


def measure(build, configurations, bounds):
    """What is above its bound is measured again, some times: a busy machine spoils rounds, and more of them can only lower
    the least time; what became slower stays above."""
    live = sorted({b.get("live", 0) for b in bounds} | {0})
    samples = calls.Samples([c.name for c in configurations])
    for _ in range(ATTEMPTS):
        calls.measure_loops(samples, build, configurations, LOOPS, live, ROUNDS)
        found = judge(samples, bounds)
        if passed(found):
            break
    return found


def check(build, configurations, path):
    """Measures, prints, and returns an exit status."""
    found = measure(build, configurations, json.loads(path.read_text())["ratios"])
    lines = [["ratio", "is", "at most", ""]]
    lines += [[b["title"], f"{value:.2f}", f"{b['at_most']:g}", "" if value <= b["at_most"] else "ABOVE"]
              for b, value in found]
    print("\n".join(report.align(lines)))
    return 0 if passed(found) else 1
