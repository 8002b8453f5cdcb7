"""Cost per call: runs build/bench/calls in every configuration, round by round, and adds up what it says."""
import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
import time

from bench import host, peers, stats, syscalls

OURS = ("direct", "carve")
ALLOC = "alloc_free"
ALLOC_SMALL = "alloc_free_small"
GATED = ["launch", "graph_launch"]
GATE_STATES = ["open", "contended"]
RUN_TIMEOUT_S = 180  # of one process; carve's takes two seconds, and more where others use the core
GATE_PAUSE_MS = 200  # until the process has registered for the closer's barrier
ALLOCATING = [ALLOC, ALLOC_SMALL]
LOOPS = ["forwarded", "jump", "looked_up", *GATED, "memcpy", "get_proc_address", *ALLOCATING, "locked_add"]
LIVE = [0, 1000, 10000, 50000]
IDLE = 128
NEVER_CUDA = shutil.which("true") or "/bin/true"
TITLES = {
    "forwarded": "a call that is only forwarded",
    "forwarded_now": "the same, bound when the program starts",
    "jump": "yardstick: the same with one more jump",
    "looked_up": "a forwarded call, looked up by cuGetProcAddress",
    "launch": "kernel launch, time-slicing off",
    "launch_open": "kernel launch, gate open, all armed",
    "launch_contended": "kernel launch, others want the GPU",
    "graph_launch": "graph launch, time-slicing off",
    "graph_launch_open": "graph launch, gate open, all armed",
    "graph_launch_contended": "graph launch, others want the GPU",
    "memcpy": "memory copy",
    "get_proc_address": "cuGetProcAddress",
    ALLOC: "cuMemAlloc + cuMemFree, 2 MiB",
    ALLOC_SMALL: "cuMemAlloc + cuMemFree, 1 KiB",
    "init": "cuInit (once a process)",
    "context": "first context (once a process)",
    "process_start": "process that never uses CUDA",
    "locked_add": "yardstick: one locked add",
}
# Most nanoseconds above direct.
GOALS = {"forwarded": 0.5, "looked_up": 0.5, "launch": 0.5, "launch_open": 2.0, "launch_contended": 50.0, "graph_launch_open": 2.0,
         "graph_launch_contended": 50.0, ALLOC: 100.0, ALLOC_SMALL: 100.0, "init": 1e6, "process_start": 150e3}


class Samples:
    """By configuration and row: one number a round; of a peer that does not manage a row, why not."""

    def __init__(self, names):
        self.by_row = {}
        self.names = names
        self.errors = {}  # {(row, name): why}

    def add(self, row, name, value):
        self.by_row.setdefault(row, {n: [] for n in self.names})[name].append(value)

    def attempt(self, configuration, rows, action):
        """Runs action(rows), without those that failed before. A peer's failure is a cell of the table, ours is the end of
        the run. Where of several rows one fails, they are measured one by one from then on."""
        name = configuration.name
        if name in OURS and not (configuration.real and name == "carve"):
            action(rows)
            return
        if configuration.broken:
            self.errors.update({(row, name): configuration.broken for row in rows})
        left = [row for row in rows if (row, name) not in self.errors]
        for part in [left] if len(left) == len(rows) else [[row] for row in left]:
            try:
                action(part)
            except host.BenchError as error:
                if len(part) == 1:
                    self.errors[part[0], name] = why(error)
                for row in part if len(part) > 1 else ():
                    self.attempt(configuration, [row], action)


def why(error):
    """A failed command's last words, in a line."""
    first, *rest = str(error).splitlines()
    how = first.rpartition(": ")[2]
    last = next((line.strip() for line in reversed(rest) if line.strip()), "")
    return f"{how}: {last[-100:]}" if last else how


def row_of(series, idle=0):
    return series["loop"], series["live"], idle


def run_calls(build, configuration, loops, live=(0,), batches=12, calls=0, prefix=(), pause_ms=0, instructions=False):
    argv = [build / "bench" / "calls", "--batches", batches, "--calls", calls, "--pause", pause_ms]
    argv += ["--real"] if configuration.real else []
    argv += ["--instructions"] if instructions else []
    for count in live:
        argv += ["--live", count]
    command = [*prefix, *peers.by_name(configuration.by_name, [*argv, *loops])]
    return json.loads(host.checked(command, configuration.env, timeout=RUN_TIMEOUT_S))


def add_series(samples, build, configuration, rows, **how):
    """Measures these rows in one process. A disturbance of a batch only ever adds to it: the least one of a round stands
    for it."""
    loops, idle = list(dict.fromkeys(loop for loop, _, _ in rows)), rows[0][2]
    for series in run_calls(build, configuration, loops, sorted({live for _, live, _ in rows}), **how):
        if row_of(series, idle) in rows:
            samples.add(row_of(series, idle), configuration.name, min(series["ns"]))


def add_round(samples, build, configuration, loops, live, idle=0):
    rows = [(loop, count, idle) for loop in loops for count in (live if loop in ALLOCATING else [0])]
    samples.attempt(configuration, rows, lambda left: add_series(samples, build, configuration, left))


def in_turn(configurations, index):
    """Another one begins each round, so that none always runs on what the same other one left behind."""
    at = index % len(configurations)
    return configurations[at:] + configurations[:at]


def silent(text):
    """For who wants to hear of no progress."""


def measure_loops(samples, build, configurations, loops, live, rounds, say=silent):
    for index in range(rounds):
        say(f"round {index + 1} of {rounds}")
        for configuration in in_turn(configurations, index):
            add_round(samples, build, configuration, loops, live)


def add_bound_now(samples, build, configuration):
    eager = dataclasses.replace(configuration, env={**configuration.env, "LD_BIND_NOW": "1"})
    for series in run_calls(build, eager, ["forwarded"]):
        if series["loop"] == "forwarded":
            samples.add(("forwarded_now", 0, 0), configuration.name, min(series["ns"]))


def measure_bound_now(samples, build, configurations, rounds, say=silent):
    """As a program that is linked with -z now calls."""
    for index in range(rounds):
        say(f"bound at start, round {index + 1} of {rounds}")
        for configuration in in_turn(configurations, index):
            samples.attempt(configuration, [("forwarded_now", 0, 0)],
                            lambda _, c=configuration: add_bound_now(samples, build, c))


def measure_idle(samples, build, configurations, count, rounds, say=silent):
    """With idle processes beside: those of all configurations live during all rounds, so that each has as many."""
    say(f"starting {count} idle processes in each configuration")
    with contextlib.ExitStack() as stack:
        for configuration in configurations:
            samples.attempt(configuration, [(ALLOC, 0, count)], lambda _, c=configuration: stack.enter_context(
                host.idle_processes(build, c, count)))
        for index in range(rounds):
            say(f"{count} idle processes, round {index + 1} of {rounds}")
            for configuration in in_turn(configurations, index):
                add_round(samples, build, configuration, [ALLOC], [0], count)


def through_gate(build, configuration, state):
    """carve's configuration beside a stand-in for the daemon that leaves the gate in that state: (configuration,
    prefix). The others have no gate."""
    if configuration.name != "carve":
        return configuration, ()
    real = configuration.real
    below = real["path"] if real else str(build / "bench/null_driver/libcuda.so.1")
    through = host.Configuration("carve", {**host.direct(build, real).env, "CARVE_DRIVER_CUDA": below}, real=real,
                                 by_name=configuration.by_name)
    return through, [build / "tests/programs/front_host", *(["--uuid", real["uuid"]] if real else []), "--gate", state,
                     "--preload", build / "src/front/libcuda.so.1", "--"]


def add_gated(samples, build, configuration, state, rows):
    through, prefix = through_gate(build, configuration, state)
    for series in run_calls(build, through, GATED, prefix=prefix, pause_ms=GATE_PAUSE_MS):
        row = (f"{series['loop']}_{state}", 0, 0)
        if row in rows:
            samples.add(row, configuration.name, min(series["ns"]))


def measure_gate(samples, build, configurations, rounds, say=silent):
    for index in range(rounds):
        say(f"the gate, round {index + 1} of {rounds}")
        for state in GATE_STATES:
            for configuration in in_turn(configurations, index):
                samples.attempt(configuration, [(f"{loop}_{state}", 0, 0) for loop in GATED],
                                lambda rows, c=configuration, s=state: add_gated(samples, build, c, s, rows))


def add_starts(samples, build, configuration, each):
    """cuInit and the first context happen once in a process: the least of some processes."""
    runs = [run_calls(build, configuration, []) for _ in range(each)]
    for same in zip(*runs):
        samples.add(row_of(same[0]), configuration.name, min(series["ns"][0] for series in same))


def measure_start(samples, build, configurations, rounds, say=silent, each=5):
    for index in range(rounds):
        say(f"starts, round {index + 1} of {rounds}")
        for configuration in in_turn(configurations, index):
            samples.attempt(configuration, [("init", 0, 0), ("context", 0, 0)],
                            lambda _, c=configuration: add_starts(samples, build, c, each))


def spawn_ns(program, env):
    begin = time.perf_counter_ns()
    pid = os.posix_spawn(program, [program], env)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter_ns() - begin
    if status:
        raise host.BenchError(f"{program}: {peers.ended(os.waitstatus_to_exitcode(status))}")
    return took


def measure_process_start(samples, configurations, rounds, say=silent, each=20):
    row = ("process_start", 0, 0)
    for index in range(rounds):
        say(f"process starts, round {index + 1} of {rounds}")
        for configuration in in_turn(configurations, index):
            samples.attempt(configuration, [row], lambda _, c=configuration: samples.add(
                row, c.name, min(spawn_ns(NEVER_CUDA, c.env) for _ in range(each))))


def count_syscalls(build, configurations, live):
    """{row: {configuration: system calls per call}}; empty where strace is not to be had."""
    counted = {}
    for configuration in configurations:
        with tempfile.NamedTemporaryFile("r") as log:
            prefix = syscalls.prefix(log.name, configuration.env)
            if not prefix:
                return {}
            traced = dataclasses.replace(configuration, env=syscalls.tracer_env(configuration.env))
            try:
                run_calls(build, traced, LOOPS, live, batches=2, calls=500, prefix=prefix)
            except host.BenchError:
                if configuration.name in OURS:
                    raise
                continue  # the rows themselves tell why
            for (loop, count), rate in syscalls.rates(log).items():
                counted.setdefault((loop, count, 0), {})[configuration.name] = rate
    return counted


def goal_of(row, name, difference, real):
    """The difference's most likely value decides. Only carve has promised anything, and that over a driver that takes no
    time: differences of calls that take microseconds are lost in what these vary by."""
    if row[0] not in GOALS or name != "carve" or real:
        return None
    return {"difference_at_most": GOALS[row[0]], "met": difference["median"] <= GOALS[row[0]]}


def result_row(row, by_name, errors, counted, base, real=None):
    loop, live, idle = row
    result = {"loop": loop, "title": TITLES[loop], "live": live, "idle_processes": idle, "unit": "ns", "results": {}}
    for name, values in by_name.items():
        if (row, name) in errors:
            result["results"][name] = {"error": errors[row, name]}
            continue
        entry = stats.summary(values)
        entry["syscalls_per_call"] = counted.get(row, {}).get(name)
        if name != base:
            entry.update(stats.compare(values, by_name[base]))
            entry["goal"] = goal_of(row, name, entry["difference"], real)
        result["results"][name] = entry
    return result


def measure(build, configurations, rounds, say=silent, live=tuple(LIVE), idle=IDLE):
    """All rows of docs/dev/benchmarks.md, "Cost per call"; the first configuration is what the others are compared with."""
    base = configurations[0].name
    samples = Samples([c.name for c in configurations])
    say("counting system calls")
    counted = count_syscalls(build, [c for c in configurations if not c.broken], live)
    measure_loops(samples, build, configurations, LOOPS, live, rounds, say)
    measure_bound_now(samples, build, configurations, rounds, say)
    measure_gate(samples, build, configurations, rounds, say)
    measure_idle(samples, build, configurations, idle, rounds, say)
    measure_start(samples, build, configurations, rounds, say)
    measure_process_start(samples, configurations, rounds, say)
    return [result_row(row, by_name, samples.errors, counted, base, configurations[0].real)
            for row, by_name in samples.by_row.items()]
