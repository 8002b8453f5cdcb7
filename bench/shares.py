"""What sessions get of a GPU's time, by the simulated driver's books: docs/benchmarks.md, "Shares"."""
import contextlib
import dataclasses
import pathlib
import tempfile
import threading
import time

from bench import scenarios, workload
from bench.host import BenchError


@dataclasses.dataclass
class Run:
    """One measurement: what happened between two looks, and what was seen each plan in between."""
    names: list
    began: int
    ended: int
    busy: list     # ns of each client's
    plans: list    # [(ns passed, [ns of each])]
    answers: list  # by client: what each process said at its end
    stored: list   # by client: ns by the times that kernels stored; None: not asked for
    turns: list
    pids: list

    @property
    def passed(self):
        return self.ended - self.began

    def parts(self, of):
        whole = sum(self.busy) if of == "used" else self.passed
        return [b / max(whole, 1) for b in self.busy]


class Visitors:
    """Sessions that come, work for a second and go, one after the other, until the end."""

    def __init__(self, build):
        self.build, self.stopped, self.count, self.error = build, threading.Event(), 0, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.stopped.is_set():
                one = workload.Workload(self.build, ("--gpu", 0.25), scenarios.KERNELS)
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
    clock, by_pid = workload.books(build)
    return clock, [sum(by_pid.get(pid, 0) for pid in w.own) for w in running]


def watch(build, running, seconds, plan_s):
    """Looks at the books for that long, at each plan's end."""
    looks = [look(build, running)]
    end = time.monotonic() + seconds
    while time.monotonic() < end - plan_s / 2:
        time.sleep(max(0.0, min(plan_s, end - time.monotonic())))
        looks.append(look(build, running))
    return looks


def differences(first, last):
    return last[0] - first[0], [b - a for a, b in zip(first[1], last[1])]


def inside(pairs, began, ended):
    return sum(max(0, min(b, ended) - max(a, began)) for a, b in pairs)


def measure(build, scenario, seconds, trace=False):
    """Runs it for that long after a warm-up; everything that it started has ended then."""
    workload.set_mode(build, scenario.mode, scenario.lease_ms, scenario.granularity)
    plan_s = scenario.lease_ms * 0.1 / scenario.granularity
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as folder, contextlib.ExitStack() as stack:
        running = []
        for i, client in enumerate(scenario.clients):
            times = pathlib.Path(folder, str(i)) if scenario.checked else None
            one = workload.Workload(build, client.size, client.args, client.processes, times)
            running.append(stack.enter_context(contextlib.closing(one)))
        for one in running:
            one.wait_up()
        visitors = Visitors(build) if scenario.visitors else None
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
        stored = None
        if scenario.checked:
            stored = [sum(inside(p, looks[0][0], looks[-1][0]) for p in w.stored()) for w in running]
    workload.wait_no_sessions(build)
    plans = [differences(a, b) for a, b in zip(looks, looks[1:])]
    return Run([c.size for c in scenario.clients], looks[0][0], looks[-1][0], busy, plans, answers, stored,
               [t for t in seen if t[1] > looks[0][0] and t[0] < looks[-1][0]], pids)


def errors(parts, clients, floor):
    """Points between what each was to get and got."""
    found = [100 * (c.wanted - p) for p, c in zip(parts, clients) if c.wanted is not None]
    return [max(0.0, e) if floor else abs(e) for e in found]


def row(scenario, what, measured, goal, unit="points", **details):
    return {"scenario": scenario.name, "title": scenario.title, "mode": scenario.mode,
            "lease_ms": scenario.lease_ms, "what": what, "unit": unit, "measured": measured, "goal": goal,
            "pass": None if goal is None else measured <= goal, **details}


def plan_error(scenario, run):
    """The worst plan's difference from what was wanted."""
    worst = 0.0
    for passed, busy in run.plans:
        whole = max(sum(busy) if scenario.of == "used" else passed, 1)
        worst = max([worst, *errors([b / whole for b in busy], scenario.clients, scenario.floor)])
    return worst


def book_error(run):
    """Points of the time by which the sim's books and the times that kernels stored differ, of the worst client."""
    return max(100 * abs(b - s) / run.passed for b, s in zip(run.busy, run.stored))


def jain(values):
    return sum(values) ** 2 / max(len(values) * sum(v * v for v in values), 1)


def judge(scenario, run, load):
    parts = run.parts(scenario.of)
    clients = [{"size": " ".join(map(str, c.size)), "wanted": c.wanted, "share": p,
                "share_of_time": b / max(run.passed, 1), "busy_ns": b,
                "stored_ns": s} for c, p, b, s in
               zip(scenario.clients, parts, run.busy, run.stored or [None] * len(parts))]
    rows = [row(scenario, "shortfall" if scenario.floor else "share error",
                max(errors(parts, scenario.clients, scenario.floor)), scenario.goal, clients=clients,
                idle=1 - sum(run.busy) / max(run.passed, 1), passed_ns=run.passed, load=load)]
    if scenario.per_plan and scenario.mode != "off":
        # A window cuts a lease at each end.
        rows.append(row(scenario, "worst plan", plan_error(scenario, run), float(scenario.granularity),
                        plans=len(run.plans)))
    if scenario.checked:
        rows.append(row(scenario, "books against stored times", book_error(run), 0.5))
    if scenario.name.endswith("8-equal"):
        rows.append(row(scenario, "1 - Jain index", 1 - jain(run.busy), 0.001, unit="index"))
    return rows
