"""How times grow with sizes: docs/dev/benchmarks.md, "Scale"."""
import json
import math
import sys

from bench import calls, host

# If the whole grows as n log n, one piece grows as log n, and a pass over everything as n. Over our ranges log n adds
# up to 0.2 to an exponent, and a busy machine some.
MARGIN = 0.25
TITLES = {
    "place-1": ("placement of one GPU's slice, by GPUs", 1),
    "place-8": ("placement on 8 GPUs, by GPUs", 1),
    "place-refused": ("a refusal, by GPUs", 1),
    "sessions": ("request and release, by living sessions", 1),
    "waiting-asked": ("asking, each, by requests that wait", 1),
    "waiting-granted": ("granting, each, by requests that wait", 1),
    "strict-1-gpu": ("a lease decision, strict, by clients of a GPU", 1),
    "fair-1-gpu": ("a lease decision, fair, by clients of a GPU", 1),
    "fair-64-gpus-gangs": ("a lease decision, 64 GPUs with gangs, by clients", 1),
    "ledger": ("alloc + free, by other processes of the session", 0),
}
# (size, the most ns that one may take there)
GOALS = {"place-1": (1000, 100e3), "place-8": (1000, 100e3), "place-refused": (1000, 100e3)}


def exponent(points):
    """The slope of log ns over log size, of the upper half of the sizes: what is constant hides growth in the lower."""
    upper = points[-max(3, (len(points) + 1) // 2):]
    xs = [math.log(size) for size, _ in upper]
    ys = [math.log(ns) for _, ns in upper]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def lines(text):
    """[(curve, size, ns)] of a program's lines."""
    return [(name, int(size), float(ns)) for name, size, ns in map(str.split, text.splitlines())]


def programs(build, quick):
    sizes = [10, 100, 1000] if quick else [10, 30, 100, 300, 1000, 3000, 10000]
    clients = [8, 64, 256] if quick else [8, 32, 128, 512, 1024]
    env = host.fresh_env()
    return (lines(host.checked([build / "bench/place_growth", *sizes], env)) +
            lines(host.checked([build / "bench/lease_decide", *clients], env)))


def daemon(build, kind, sizes):
    program = host.ROOT / "bench" / "daemon_growth.py"
    done = host.on_a_host(build, "b300-269gb:8", [sys.executable, program, build / "carve", kind, *sizes], 900)
    if not done:
        raise host.BenchError(f"daemon_growth {kind}: it did not end in 900 s")
    if done.returncode:
        raise host.BenchError(f"daemon_growth {kind}: {done.stderr.strip()[-300:]}")
    return [tuple(point) for point in json.loads(done.stdout)]


LEDGER = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from bench import scale
print(json.dumps(scale.ledger_here(pathlib.Path(sys.argv[2]), sys.argv[3] == "quick")))
"""


def ledger(build, quick):
    """On a simulated host of its own, whatever this runs on."""
    done = host.on_a_host(build, host.GPU, [sys.executable, "-c", LEDGER, host.ROOT, build, "quick" if quick else "whole"], 600)
    if not done or done.returncode:
        raise host.BenchError(f"the ledger's growth: {done.stderr.strip()[-300:] if done else 'it did not end'}")
    return [tuple(point) for point in json.loads(done.stdout)]


def ledger_here(build, quick):
    """One process takes and gives beside so many others of its session, each with a context and an allocation."""
    found = []
    with host.session(build), host.pinned():
        carve = host.through_carve(build, host.direct(build))
        for count in [1, 16, 64] if quick else [1, 4, 16, 64, 128]:
            samples = calls.Samples([carve.name])
            with host.idle_processes(build, carve, count):
                for _ in range(3):
                    calls.add_round(samples, build, carve, [calls.ALLOC], [0])
            found.append(("ledger", count, min(samples.by_row[calls.ALLOC, 0, 0][carve.name])))
    return found


def goal(curve, points):
    """{size, at_most, met}; None: there is none, or that size was not measured."""
    size, most = GOALS.get(curve, (None, None))
    ns = dict(points).get(size)
    return ns and {"size": size, "at_most": most, "met": ns <= most}


def judge(points):
    """A row for each curve that there are points of, [(curve, size, ns)]."""
    rows = []
    for curve, (title, expected) in TITLES.items():
        own = [(size, ns) for name, size, ns in points if name == curve]
        if own:
            slope = exponent(own)
            rows.append({"curve": curve, "title": title, "unit": "ns", "points": own, "exponent": slope,
                         "at_most": expected + MARGIN, "pass": slope <= expected + MARGIN, "goal": goal(curve, own)})
    return rows


def measure(build, quick, say, keep):
    """`keep` is given the rows each time there are more."""
    points = []
    for what, more in (
            ("placement and leases", lambda: programs(build, quick)),
            ("sessions", lambda: daemon(build, "sessions", [1, 10, 100, 300] if quick else [1, 10, 100, 300, 1000, 2000])),
            ("waiting requests", lambda: daemon(build, "waiting", [10, 30, 100] if quick else [10, 30, 100, 300, 1000])),
            ("processes of a session", lambda: ledger(build, quick))):
        say(what)
        points += more()
        keep(judge(points))
    return judge(points)
