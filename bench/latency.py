"""Figures of time-slicing that are no shares: what switching costs, how long a hand-over takes, and how long an
interactive job waits for its GPU beside a batch job. Each function measures one of bench/sharers.py; `bare` has what
all are compared with, the driver by itself."""
import dataclasses

from bench import shares, stats
from bench.host import BenchError
from bench.scenarios import Client, Scenario, fraction, fractions

MS = 1e6
BATCH = fraction(0.5, "--kernel-us", 1000, "--sync-every", 0)
# 5 ms of work each 50 ms.
INTERACTIVE = ("--kernel-us", 5000, "--sync-every", 1, "--duty", 10, "--period-ms", 50)
# 10 ms of work each 40 ms, so that most of its turns end because it idles.
BURSTS = ("--kernel-us", 1000, "--duty", 25, "--period-ms", 40)
LOSS_GOALS = {1: 0.2, 2: 1, 4: 1.5, 8: 2}


def scenario(name, title, mode, clients):
    return Scenario(name, title, mode, clients, checked=False)


def equal(count):
    return fractions(*[1 / count] * count)


def gaps(run, ends_of=None):
    """ns from one client's last work to the next one's first, on the GPU's clock; only those after `ends_of`."""
    owner = {pid: i for i, pids in enumerate(run.pids) for pid in pids}
    known = [(a, b, owner[pid]) for a, b, pid in run.turns if pid in owner]
    # Where the driver lets several work at once, the next one does not wait.
    return sorted(max(0, later[0] - earlier[1]) for earlier, later in zip(known, known[1:])
                  if earlier[2] != later[2] and ends_of in (None, earlier[2]))


def percentile_rows(s, what, values, goals, **more):
    if not values:
        return [shares.row(s, f"{what}: there was none", None, None, unit="ms")]
    return [shares.row(s, f"{what} p{q}", stats.quantile(values, q / 100) / MS, goal, unit="ms", count=len(values), **more)
            for q, goal in goals]


class Bare:
    """What the driver by itself, one of bench/sharers.py, came to: measured once."""

    def __init__(self, driver):
        self.driver, self.found = driver, {}

    def once(self, key, measure):
        if key not in self.found:
            self.found[key] = measure(self.driver)
        return self.found[key]


def used(build, s, seconds, by):
    """(the part of the time that was used, the part that the GPU's clock stood still for)"""
    run = shares.measure(build, s, seconds, by)
    if not sum(run.busy):
        raise BenchError("nobody had anything of the GPU")
    return sum(run.busy) / run.passed, run.lagged


def losses(build, seconds, form, by, bare):
    """GPU time that nobody had, beside what nobody had by the driver's own sharing."""
    rows = []
    for count, goal in LOSS_GOALS.items():
        s = form(scenario(f"loss-{count}", f"{count} equal, 250 ms", "fair", equal(count)))
        s = dataclasses.replace(s, lease_ms=250)
        free = bare.once(count, lambda driver: used(build, s, seconds, driver))
        own = free if by is bare.driver else used(build, s, seconds, by)
        rows.append(shares.row(s, "throughput lost", 100 * (1 - own[0] / free[0]), goal, unit="%",
                               lagged=max(own[1], free[1]), used={"off": free[0], "fair": own[0]}))
    return rows


def switches(build, seconds, form, by, bare):
    s = form(scenario("switch", "two busy ones, kernels of 1 ms", "fair", equal(2)))
    run = shares.measure(build, s, seconds, by, trace=True)
    return percentile_rows(s, "switch", gaps(run), [(50, 0.3), (99, 3)], lagged=run.lagged)


def handovers(build, seconds, form, by, bare):
    s = form(scenario("hand-over", "bursts of 10 ms beside a batch", "fair", (fraction(0.5, *BURSTS), BATCH)))
    run = shares.measure(build, s, seconds, by, trace=True)
    return percentile_rows(s, "from idle to the batch", gaps(run, ends_of=0), [(50, 1), (99, 5)], lagged=run.lagged)


def bursts(run):
    answer, = run.answers[0]
    return {**{q: answer[f"burst_p{q}_ns"] / MS for q in (50, 99)}, "lagged": run.lagged}


def interactive(build, seconds, form, by, bare):
    """Its response time alone on the bare driver, and beside a batch that never idles."""
    job = Client(("--gpu", 0.5), INTERACTIVE)
    alone = form(scenario("interactive", "5 ms each 50 ms", "fair", (job,)))
    both = form(scenario("interactive", "5 ms each 50 ms beside a batch", "fair", (job, BATCH)))
    solo = bare.once("alone", lambda driver: bursts(shares.measure(build, alone, seconds, driver)))
    off = bare.once("beside", lambda driver: bursts(shares.measure(build, both, seconds, driver)))
    found = off if by is bare.driver else bursts(shares.measure(build, both, seconds, by))
    return [shares.row(both, f"response p{q} above alone", found[q] - solo[q], goal, unit="ms",
                       lagged=max(found["lagged"], solo["lagged"]), alone=solo[q], off=off[q], fair=found[q], response=found[q])
            for q, goal in ((50, None), (99, 25))]


MEASURES = {"loss": losses, "switch": switches, "hand-over": handovers, "interactive": interactive}
