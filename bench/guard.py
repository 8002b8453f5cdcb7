"""The regression guard: what carve's hot paths take against bounds that are checked in (bounds.json).

Instructions are counted (bench/step.h): the same code takes as many of them on every machine, however busy it is, so that
a bound can be near. A loss that does not show in their number shows in a time. Those are compared as ratios of least times within
one machine, and with much room: whatever else runs on the machine adds to a batch and never takes away, and code of the
same instructions takes half or twice as long by its place in memory.

Bounds of "instructions" are the most that carve may add to a call:
    {"title", "loop", "live" (default 0), "gate": "open" or "contended" (default: time-slicing is off), "instructions",
     "locked" (default 0), "syscalls" (default 0)}
Bounds of "times" are the most that a ratio of carve's least time may be:
    {"title", "loop", "live" (default 0), "over": "direct" or a row of carve's, "over_live" (default 0), "at_most"}"""
import json
import pathlib
import statistics

from bench import calls, report

BOUNDS = pathlib.Path(__file__).with_name("bounds.json")
COUNTED = ("instructions", "locked", "syscalls")
GATE_PAUSES_MS = (200, 1000, 5000)  # calls.GATE_PAUSE_MS, and more of it where the machine is busy
ROUNDS = 3
ATTEMPTS = 8


class Counts:
    """What a call executes: {"instructions": ..., "locked": ..., "syscalls": ...} by configuration (direct, carve, or a
    state of the gate), loop and number of living allocations. The median of some calls: now and then one does what is
    put off for many."""

    def __init__(self):
        self.by_row = {}

    def add(self, name, document):
        for series in document:
            if "instructions" in series:
                self.by_row[name, series["loop"], series["live"]] = {
                    what: statistics.median_low(series[what]) for what in COUNTED}

    def added(self, bound):
        """What carve adds to what the bound is about."""
        direct = self.by_row["direct", bound["loop"], 0]  # the null driver remembers nothing
        own = self.by_row[bound.get("gate", "carve"), bound["loop"], bound.get("live", 0)]
        return {what: own[what] - direct[what] for what in COUNTED}


def allowed(bound):
    """Of locked instructions and system calls there are none where a bound does not name any."""
    return {what: bound.get(what, 0) for what in COUNTED}


def holds(bound, added):
    return all(added[what] <= most for what, most in allowed(bound).items())


def count_rows(counts, build, configuration, name, bounds, **how):
    loops = dict.fromkeys(b["loop"] for b in bounds)
    live = sorted({b.get("live", 0) for b in bounds})
    counts.add(name, calls.run_calls(build, configuration, loops, live, instructions=True, **how))


def count_gated(counts, build, carve, state, bounds):
    """Through a gate in that state. The front is not at once as it stays: its helper has a process registered first."""
    through, prefix = calls.through_gate(build, carve, state)
    for pause_ms in GATE_PAUSES_MS:
        count_rows(counts, build, through, state, bounds, prefix=prefix, pause_ms=pause_ms)
        if all(holds(bound, counts.added(bound)) for bound in bounds):
            break


def count(build, direct, carve, bounds):
    counts = Counts()
    if bounds:
        count_rows(counts, build, direct, "direct", [{"loop": b["loop"]} for b in bounds])
    ungated = [b for b in bounds if "gate" not in b]
    if ungated:
        count_rows(counts, build, carve, "carve", ungated)
    for state in dict.fromkeys(b["gate"] for b in bounds if "gate" in b):
        count_gated(counts, build, carve, state, [b for b in bounds if b.get("gate") == state])
    return counts


def least(samples, loop, live, name):
    return min(samples.by_row[loop, live, 0][name])


def ratio(samples, bound):
    """What a bound on times is about: carve's least over that of the direct call, or of another row of carve's."""
    loop, live = bound["loop"], bound.get("live", 0)
    own = least(samples, loop, live, "carve")
    if bound["over"] == "direct":
        return own / least(samples, loop, live, "direct")
    return own / least(samples, bound["over"], bound.get("over_live", 0), "carve")


def measure(build, configurations, bounds):
    """[ratio of each bound]. Where one is above it is measured again, some times: a busy machine spoils rounds, and more of
    them can only lower the least time; what became slower stays above."""
    live = sorted({b.get("live", 0) for b in bounds} | {0})
    loops = list(dict.fromkeys(loop for b in bounds for loop in (b["loop"], b["over"]) if loop != "direct"))
    samples, ratios = calls.Samples([c.name for c in configurations]), []
    for _ in range(ATTEMPTS if bounds else 0):
        calls.measure_loops(samples, build, configurations, loops, live, ROUNDS)
        ratios = [ratio(samples, bound) for bound in bounds]
        if all(value <= bound["at_most"] for bound, value in zip(bounds, ratios)):
            break
    return ratios


def judged(good):
    return "" if good else "ABOVE"


def count_lines(bounds, counts):
    for bound in bounds:
        added, most = counts.added(bound), allowed(bound)
        cells = [text for what in COUNTED for text in (f"{added[what]}", f"{most[what]}")]
        yield [bound["title"], *cells, judged(holds(bound, added))]


def time_lines(bounds, ratios):
    for bound, value in zip(bounds, ratios):
        yield [bound["title"], f"{value:.2f}", f"{bound['at_most']:g}", judged(value <= bound["at_most"])]


def check(build, configurations, path):
    """Measures, prints, and returns an exit status."""
    bounds = json.loads(path.read_text())
    direct, carve = configurations
    counts = count(build, direct, carve, bounds["instructions"])
    ratios = measure(build, configurations, bounds["times"])
    counted, timed = list(count_lines(bounds["instructions"], counts)), list(time_lines(bounds["times"], ratios))
    heads = [["carve adds to a call", "instructions", "at most", "locked", "at most", "system calls", "at most", ""],
             ["time, carve / direct or as said", "is", "at most", ""]]
    print("\n\n".join("\n".join(report.align([head, *lines])) for head, lines in zip(heads, (counted, timed)) if lines))
    return int(any(line[-1] for line in counted + timed))
