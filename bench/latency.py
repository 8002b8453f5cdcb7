"""Figures of time-slicing that are no shares: what switching costs, how long a hand-over takes, and how long an
interactive job waits for its GPU beside a batch job; each beside the driver's default sharing (mode off)."""
import dataclasses

from bench import shares, stats
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
    return sorted(later[0] - earlier[1] for earlier, later in zip(known, known[1:])
                  if earlier[2] != later[2] and ends_of in (None, earlier[2]))


def percentile_rows(s, what, values, goals, **more):
    if not values:
        return [shares.row(s, f"{what}: there was none", None, None, unit="ms")]
    return [shares.row(s, f"{what} p{q}", stats.quantile(values, q / 100) / MS, goal, unit="ms", count=len(values), **more)
            for q, goal in goals]


def losses(build, seconds, form):
    """GPU time that nobody had, beside what nobody had by the driver's own sharing."""
    rows = []
    for count, goal in LOSS_GOALS.items():
        used = {}
        for mode in ("off", "fair"):
            s = form(scenario(f"loss-{count}", f"{count} equal, 250 ms", mode, equal(count)))
            s = dataclasses.replace(s, lease_ms=250)
            run = shares.measure(build, s, seconds)
            used[mode] = sum(run.busy) / run.passed
        rows.append(shares.row(s, "throughput lost", 100 * (1 - used["fair"] / used["off"]), goal, unit="%", used=used))
    return rows


def switches(build, seconds, form):
    s = form(scenario("switch", "two busy ones, kernels of 1 ms", "fair", equal(2)))
    run = shares.measure(build, s, seconds, trace=True)
    return percentile_rows(s, "switch", gaps(run), [(50, 0.3), (99, 3)])


def handovers(build, seconds, form):
    s = form(scenario("hand-over", "bursts of 10 ms beside a batch", "fair", (fraction(0.5, *BURSTS), BATCH)))
    run = shares.measure(build, s, seconds, trace=True)
    return percentile_rows(s, "from idle to the batch", gaps(run, ends_of=0), [(50, 1), (99, 5)])


def bursts(run):
    answer, = run.answers[0]
    return {q: answer[f"burst_p{q}_ns"] / MS for q in (50, 99)}


def interactive(build, seconds, form):
    """Its response time alone, by the driver's own sharing and in fair mode, beside a batch that never idles."""
    alone = Client(("--gpu", 0.5), INTERACTIVE)
    s = form(scenario("interactive", "5 ms each 50 ms beside a batch", "off", (alone,)))
    solo = bursts(shares.measure(build, s, seconds))
    found = {}
    for mode in ("off", "fair"):
        both = dataclasses.replace(s, mode=mode, clients=(alone, BATCH))
        found[mode] = bursts(shares.measure(build, both, seconds))
    rows = [shares.row(both, f"response p{q} above alone", found["fair"][q] - solo[q], goal, unit="ms",
                       alone=solo[q], off=found["off"][q], fair=found["fair"][q])
            for q, goal in ((50, None), (99, 25))]
    return rows


MEASURES = {"loss": losses, "switch": switches, "hand-over": handovers, "interactive": interactive}
