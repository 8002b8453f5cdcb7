"""Cost per call: runs build/bench/calls in every configuration, round by round, and adds up what it says."""
import contextlib
import json
import os
import shutil
import tempfile
import time

from bench import host, stats, syscalls

ALLOC = "alloc_free"
ALLOC_SMALL = "alloc_free_small"
GATED = ["launch", "graph_launch"]
GATE_STATES = ["open", "contended"]
GATE_PAUSE_MS = 200  # until the process has registered for the closer's barrier
LOOPS = ["forwarded", *GATED, "memcpy", "get_proc_address", ALLOC, ALLOC_SMALL, "locked_add"]
LIVE = [0, 1000, 10000, 50000]
IDLE = 128
NEVER_CUDA = shutil.which("true") or "/bin/true"
TITLES = {
    "forwarded": "a call that is only forwarded",
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
GOALS = {"forwarded": 0.5, "launch": 0.5, "launch_open": 2.0, "launch_contended": 50.0, "graph_launch_open": 2.0,
         "graph_launch_contended": 50.0, ALLOC: 100.0, ALLOC_SMALL: 100.0, "init": 1e6, "process_start": 150e3}


class Samples:
    """By configuration and row: one number a round."""

    def __init__(self, names):
        self.by_row = {}
        self.names = names

    def add(self, row, name, value):
        self.by_row.setdefault(row, {n: [] for n in self.names})[name].append(value)


def row_of(series, idle=0):
    return series["loop"], series["live"], idle


def run_calls(build, configuration, loops, live=(0,), batches=12, calls=0, prefix=(), pause_ms=0):
    argv = [*prefix, build / "bench" / "calls", "--batches", batches, "--calls", calls, "--pause", pause_ms]
    for count in live:
        argv += ["--live", count]
    return json.loads(host.checked([*argv, *loops], configuration.env, timeout=600))


def add_round(samples, build, configuration, loops, live, idle=0):
    """What disturbs a batch only ever adds to it: the least one of a round stands for it."""
    for series in run_calls(build, configuration, loops, live):
        if series["loop"] in loops:
            samples.add(row_of(series, idle), configuration.name, min(series["ns"]))


def in_turn(configurations, index):
    """Another one begins each round, so that none always runs on what the same other one left behind."""
    at = index % len(configurations)
    return configurations[at:] + configurations[:at]


def measure_loops(samples, build, configurations, loops, live, rounds):
    for index in range(rounds):
        for configuration in in_turn(configurations, index):
            add_round(samples, build, configuration, loops, live)


def measure_idle(samples, build, configurations, count, rounds):
    """With idle processes beside: those of all configurations live during all rounds, so that each has as many."""
    with contextlib.ExitStack() as stack:
        for configuration in configurations:
            stack.enter_context(host.idle_processes(build, configuration, count))
        for index in range(rounds):
            for configuration in in_turn(configurations, index):
                add_round(samples, build, configuration, [ALLOC], [0], count)


def through_gate(build, configuration, state):
    """carve's configuration beside a stand-in for the daemon that leaves the gate in that state: (configuration,
    prefix). The others have no gate."""
    if configuration.name != "carve":
        return configuration, ()
    env = {**host.direct(build).env, "CARVE_DRIVER_CUDA": str(build / "bench/null_driver/libcuda.so.1")}
    return host.Configuration("carve", env), [build / "tests/programs/front_host", "--gate", state, "--preload",
                                              build / "src/front/libcuda.so.1", "--"]


def measure_gate(samples, build, configurations, rounds):
    for index in range(rounds):
        for state in GATE_STATES:
            for configuration in in_turn(configurations, index):
                through, prefix = through_gate(build, configuration, state)
                for series in run_calls(build, through, GATED, prefix=prefix, pause_ms=GATE_PAUSE_MS):
                    if series["loop"] in GATED:
                        samples.add((f"{series['loop']}_{state}", 0, 0), configuration.name, min(series["ns"]))


def measure_start(samples, build, configurations, rounds, each=5):
    """cuInit and the first context happen once in a process: the least of some processes."""
    for index in range(rounds):
        for configuration in in_turn(configurations, index):
            runs = [run_calls(build, configuration, []) for _ in range(each)]
            for same in zip(*runs):
                samples.add(row_of(same[0]), configuration.name, min(series["ns"][0] for series in same))


def spawn_ns(program, env):
    begin = time.perf_counter_ns()
    pid = os.posix_spawn(program, [program], env)
    os.waitpid(pid, 0)
    return time.perf_counter_ns() - begin


def measure_process_start(samples, configurations, rounds, each=20):
    for index in range(rounds):
        for configuration in in_turn(configurations, index):
            least = min(spawn_ns(NEVER_CUDA, configuration.env) for _ in range(each))
            samples.add(("process_start", 0, 0), configuration.name, least)


def count_syscalls(build, configurations, live):
    """{row: {configuration: system calls per call}}; empty where strace is not to be had."""
    counted = {}
    for configuration in configurations:
        with tempfile.NamedTemporaryFile("r") as log:
            prefix = syscalls.prefix(log.name, configuration.env)
            if not prefix:
                return {}
            traced = host.Configuration(configuration.name, syscalls.tracer_env(configuration.env))
            run_calls(build, traced, LOOPS, live, batches=2, calls=500, prefix=prefix)
            for (loop, count), rate in syscalls.rates(log).items():
                counted.setdefault((loop, count, 0), {})[configuration.name] = rate
    return counted


def goal_of(row, name, difference):
    """The difference's most likely value decides. Only carve has promised anything."""
    if row[0] not in GOALS or name != "carve":
        return None
    return {"difference_at_most": GOALS[row[0]], "met": difference["median"] <= GOALS[row[0]]}


def result_row(row, by_name, counted, base):
    loop, live, idle = row
    result = {"loop": loop, "title": TITLES[loop], "live": live, "idle_processes": idle, "unit": "ns", "results": {}}
    for name, values in by_name.items():
        entry = stats.summary(values)
        entry["syscalls_per_call"] = counted.get(row, {}).get(name)
        if name != base:
            entry.update(stats.compare(values, by_name[base]))
            entry["goal"] = goal_of(row, name, entry["difference"])
        result["results"][name] = entry
    return result


def measure(build, configurations, rounds, live=tuple(LIVE), idle=IDLE):
    """All rows of docs/benchmarks.md, "Cost per call"; the first configuration is what the others are compared with."""
    base = configurations[0].name
    samples = Samples([c.name for c in configurations])
    counted = count_syscalls(build, configurations, live)
    measure_loops(samples, build, configurations, LOOPS, live, rounds)
    measure_gate(samples, build, configurations, rounds)
    measure_idle(samples, build, configurations, idle, rounds)
    measure_start(samples, build, configurations, rounds)
    measure_process_start(samples, configurations, rounds)
    return [result_row(row, by_name, counted, base) for row, by_name in samples.by_row.items()]
