"""The shares of a GPU's time that sessions get, by the simulated driver's figures: docs/dev/benchmarks.md, "Shares"."""
import contextlib
import dataclasses
import itertools
import pathlib
import tempfile
import threading
import time

from bench import scenarios, stored, workload
from bench.host import BenchError

# The GPU's clock stands still while the machine has not played yet what the GPU does next. A span of so and so long by it is not
# judged where that is more than this part of the time. Leases go by the same clock, so shares bear more.
LAG_MAX, SHARES_LAG_MAX = 0.01, 0.1
# A launch takes the GPU 1.5 us before the kernel reads its clock, and few instructions after it has.
LAUNCH_NS = 2000
BOOKS = "figures against stored times"


@dataclasses.dataclass
class Run:
    """One measurement: what happened between two looks, and what was seen each plan in between."""
    names: list
    began: int
    ended: int
    busy: list     # ns of each client's
    plans: list    # [(ns passed, [ns of each])]
    answers: list  # by client: what each process said at its end
    stored: list   # by client: (ns by the times that kernels stored, how many); None: not asked for
    turns: list
    pids: list
    lag: int = 0   # ns by which the GPU's clock fell behind the machine's meanwhile

    @property
    def passed(self):
        return self.ended - self.began

    @property
    def lagged(self):
        """The part of the time that the GPU's clock stood still for."""
        return self.lag / max(self.passed + self.lag, 1)

    def parts(self, of):
        whole = sum(self.busy) if of == "used" else self.passed
        return [b / max(whole, 1) for b in self.busy]


class Visitors:
    """Slices that come, work for a second and go, one after the other, until the end."""

    def __init__(self, build, by, folder):
        self.build, self.by, self.folder = build, by, folder
        self.stopped, self.count, self.error = threading.Event(), 0, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.stopped.is_set():
                own = self.folder / f"visitor-{self.count}"
                own.mkdir()
                one = workload.Workload(self.build, self.by, ("--gpu", 0.25), scenarios.KERNELS, 1, own, False)
                with contextlib.closing(one):
                    one.wait_up()
                    self.stopped.wait(1)
                    one.end()
                self.count += 1
        except BenchError as error:
            self.error = error

    def end(self):
        self.stopped.set()
        self.thread.join()
        if self.error:
            raise self.error


def look(build, running):
    clock, lag, by_pid = workload.books(build)
    return clock, [sum(by_pid.get(pid, 0) for pid in w.own) for w in running], lag


def watch(build, running, seconds, plan_s):
    """Looks at the figures for that long, at each plan's end."""
    looks = [look(build, running)]
    end = time.monotonic() + seconds
    while time.monotonic() < end - plan_s / 2:
        time.sleep(max(0.0, min(plan_s, end - time.monotonic())))
        looks.append(look(build, running))
    return looks


def differences(first, last):
    return last[0] - first[0], [b - a for a, b in zip(first[1], last[1])]


def covered(pairs, began, ended):
    """(ns between these two in which any of them ran, how many did). Kernels of one session's processes overlap: the
    driver takes them in turn."""
    ns, count, reached = 0, 0, began
    for start, end in sorted(pairs):
        if end > began and start < ended:
            count += 1
            ns += max(0, min(end, ended) - max(start, reached))
            reached = max(reached, min(end, ended))
    return ns, count


def measure(build, scenario, seconds, by, trace=False):
    """Runs it, shared out by one of bench/sharers.py, for that long after a warm-up; everything that it started has ended
    then."""
    if scenario.on_gpu:
        return stored.measure(build, scenario, seconds, by)
    by.prepare(build, scenario)
    plan_s = scenario.lease_ms * 0.1 / scenario.granularity
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as folder, contextlib.ExitStack() as stack:
        running = []
        for i, client in enumerate(scenario.clients):
            own = pathlib.Path(folder, str(i))
            own.mkdir()
            one = workload.Workload(build, by, client.size, client.args, client.processes, own, scenario.checked)
            running.append(stack.enter_context(contextlib.closing(one)))
        for one in running:
            one.wait_up()
        visitors = Visitors(build, by, pathlib.Path(folder)) if scenario.visitors else None
        try:
            time.sleep(min(2.0, seconds))  # the first turns pay for the start of tracking
            looks = watch(build, running, seconds, plan_s)
        finally:
            if visitors:
                visitors.end()
        pids = [w.own for w in running]
        seen = workload.turns(build) if trace else []
        answers = [w.end() for w in running]
        passed, busy = differences(looks[0], looks[-1])
        by_kernels = None
        if scenario.checked:
            by_kernels = [covered(itertools.chain(*w.stored()), looks[0][0], looks[-1][0]) for w in running]
    by.settle(build)
    if passed <= 0:
        raise BenchError("the simulated GPU's clock stood still all the time: this machine is too busy")
    plans = [differences(a, b) for a, b in zip(looks, looks[1:])]
    return Run([c.size for c in scenario.clients], looks[0][0], looks[-1][0], busy, plans, answers, by_kernels,
               [t for t in seen if t[1] > looks[0][0] and t[0] < looks[-1][0]], pids, looks[-1][2] - looks[0][2])


def errors(parts, clients, floor):
    """Points between what each was to get and got."""
    found = [100 * (c.wanted - p) for p, c in zip(parts, clients) if c.wanted is not None]
    return [max(0.0, e) if floor else abs(e) for e in found]


def row(scenario, what, measured, goal, unit="points", lagged=0.0, lag_max=LAG_MAX, **details):
    """`lagged`: Run.lagged. Where that is much, neither a goal met nor one missed is proven."""
    proven = lagged <= lag_max
    return {"scenario": scenario.name, "title": scenario.title, "mode": scenario.mode,
            "lease_ms": scenario.lease_ms, "what": what, "unit": unit, "measured": measured, "goal": goal,
            "pass": measured <= goal if proven and goal is not None else None, "lagged": lagged,
            "proven": proven, **details}


def plan_error(scenario, run):
    """The worst plan's difference from what was wanted."""
    worst = 0.0
    for passed, busy in run.plans:
        whole = max(sum(busy) if scenario.of == "used" else passed, 1)
        worst = max([worst, *errors([b / whole for b in busy], scenario.clients, scenario.floor)])
    return worst


def book_error(run):
    """Points of the time by which the sim's figures and the times that kernels stored differ, of the worst client: what
    is missing in the figures, or is there beyond the kernels and their launches."""
    def apart(busy, ns, count):
        return max(ns - busy, busy - ns - count * LAUNCH_NS, 0)

    return max(100 * apart(b, *s) / run.passed for b, s in zip(run.busy, run.stored))


def jain(values):
    return sum(values) ** 2 / max(len(values) * sum(v * v for v in values), 1)


def measure_alone(build, scenario, seconds, by):
    """A run of each client without the others, at the same share; none where the scenario does not ask for them."""
    return [measure(build, dataclasses.replace(scenario, clients=(c,)), seconds, by) for c in scenario.clients if scenario.as_alone]


def limited(scenario, alone):
    """The scenario in which a client that cannot use its share is to get what it uses of it alone."""
    clients = tuple(dataclasses.replace(c, wanted=min(c.wanted, run.parts(scenario.of)[0]))
                    for c, run in zip(scenario.clients, alone))
    return dataclasses.replace(scenario, clients=clients) if alone else scenario


def judge(scenario, run, load, ours=True, alone=()):
    """Rows of a run; the check of the figures by the kernels' own times only of `ours`: kernels that the driver interrupts
    for other slices' store longer times than they had. `alone`: measure_alone()'s."""
    scenario = limited(scenario, alone)
    parts = run.parts(scenario.of)
    lag = {"lagged": max(r.lagged for r in (run, *alone)), "lag_max": SHARES_LAG_MAX}
    clients = [{"size": " ".join(map(str, c.size)), "wanted": c.wanted, "share": p,
                "share_of_time": b / max(run.passed, 1), "busy_ns": b,
                "stored_ns": s and s[0]} for c, p, b, s in
               zip(scenario.clients, parts, run.busy, run.stored or [None] * len(parts))]
    for client, one in zip(clients, alone):
        client["alone"] = one.parts(scenario.of)[0]
    rows = [row(scenario, "shortfall" if scenario.floor else "share error",
                max(errors(parts, scenario.clients, scenario.floor)), scenario.goal, clients=clients,
                idle=1 - sum(run.busy) / max(run.passed, 1), passed_ns=run.passed, load=load, **lag)]
    if scenario.per_plan and scenario.mode != "off":
        # A window cuts a lease at each end.
        rows.append(row(scenario, "worst plan", plan_error(scenario, run), float(scenario.granularity),
                        plans=len(run.plans), **lag))
    if scenario.checked and ours and run.stored:
        rows.append(row(scenario, BOOKS, book_error(run), 0.5))
    if scenario.name.endswith("8-equal"):
        rows.append(row(scenario, "1 - Jain index", 1 - jain(run.busy), 0.001, unit="index", **lag))
    return rows
