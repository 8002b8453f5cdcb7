"""Shares of GPU time, on the simulated host: what the driver's own books say that each session had. The machine may be
busy, so ratios are judged, with wide margins; `scripts/bench shares` has the exact goals."""
import os
import signal
import time

import pytest

from conftest import BUILD, ON_GPU, PATIENCE
from sharing import LEASE, Workload, shares, slice_time, wait_busy
from build_options import sanitized

pytestmark = [pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books"),
              pytest.mark.timed]
# With sanitizers those run in which more happens than that time is shared.
SHARES_ONLY = pytest.mark.once("nothing but shares")


def fraction(f):
    return ["--gpu", str(f)]


MEMORY = ["--vram", "2"]


@pytest.fixture
def run(host):
    """run(size, *args) -> Workload; ended after the test."""
    workloads = []

    def start(size, *args, on=host, **kw):
        workloads.append(Workload(on, size, *args, **kw))
        return workloads[-1]

    yield start
    for w in workloads:
        w.kill()


def close_to(value, wanted, factor=1.5):
    return wanted / factor < value < wanted * factor


@pytest.mark.parametrize("mode, fractions", [("strict", (0.25, 0.75)), ("fair", (0.2, 0.3, 0.5)),
                                             pytest.param("fair", (0.1, 0.9), marks=SHARES_ONLY)])
def test_time_is_shared_as_asked(host, run, mode, fractions):
    slice_time(host, mode)
    had = shares(host, [run(fraction(f)) for f in fractions])
    assert all(close_to(s / sum(had), f, 1.7) for s, f in zip(had, fractions)), had


@SHARES_ONLY
def test_off_is_the_drivers_own_sharing(host, run):
    had = shares(host, [run(fraction(0.25)), run(fraction(0.75))], seconds=2)
    assert close_to(had[0] / sum(had), 0.5, 1.3), had


@SHARES_ONLY
def test_strict_alone_gets_its_fraction_only(host, run):
    slice_time(host, "strict")
    one, = shares(host, [run(fraction(0.25))])
    assert 0.1 < one < 0.33


@pytest.mark.skipif(sanitized(), reason="bursts of an instrumented build are long")
@SHARES_ONLY
def test_fair_gives_what_an_idle_one_leaves_to_the_others(host, run):
    slice_time(host, "fair")
    idle = run(fraction(0.5), "--duty", "1", "--period-ms", "1000")
    had = shares(host, [run(fraction(0.2)), run(fraction(0.3)), idle])
    assert had[2] < 0.1 and had[0] + had[1] > 0.6, had
    assert close_to(had[0] / (had[0] + had[1]), 0.45), had


@SHARES_ONLY
def test_memory_sized_ones_get_what_is_not_promised(host, run):
    """Alone all of it, even in strict mode; beside a fraction the rest; beside fractions of 1 not nothing."""
    slice_time(host, "strict", "--lease", "50ms")
    memory = run(MEMORY)
    alone, = shares(host, [memory], seconds=2)
    assert alone > 0.5
    first = run(fraction(0.25))
    had = shares(host, [memory, first])
    assert close_to(had[0] / sum(had), 0.75), had
    second = run(fraction(0.75))
    had = shares(host, [memory, first, second])
    assert had[0] / sum(had) < 0.12 and close_to(had[1] / sum(had), 0.25), had
    wait_busy(host, memory, timeout=60)  # 1%: a turn every 5 s


def test_modes_change_under_running_workloads(host, run):
    a, b = run(fraction(0.2)), run(fraction(0.8))
    for mode, part in [("strict", 0.2), ("off", 0.5), ("fair", 0.2)]:
        slice_time(host, mode)
        time.sleep(1.5)  # the first turns pay for the start of tracking
        had = shares(host, [a, b], seconds=2)
        assert close_to(had[0] / sum(had), part, 1.6), (mode, had)


def test_fair_begins_anew_after_strict(host, run):
    """Time that a session sized by memory had in strict mode is not held against it."""
    slice_time(host, "strict", "--lease", "50ms")
    sized, memory = run(fraction(0.3)), run(MEMORY)
    had = shares(host, [sized, memory], seconds=2)
    assert close_to(had[1], 0.7), had
    slice_time(host, "fair", "--lease", "50ms")
    had = shares(host, [sized, memory], seconds=1.2)
    assert close_to(had[1], 0.35, 1.7), had


@SHARES_ONLY
def test_a_session_counts_once_however_many_processes_it_has(host, run):
    slice_time(host, "strict")
    had = shares(host, [run(fraction(0.5), processes=4), run(fraction(0.5))])
    assert close_to(had[0] / sum(had), 0.5), had


@SHARES_ONLY
def test_short_leases_and_mixed_work(host, run):
    slice_time(host, "fair", "--lease", "10ms")
    had = shares(host, [run(fraction(0.3), "--kernel-us", "500,5000", "--streams", "3"),
                        run(fraction(0.3), "--graph", "4", "--kernel-us", "500"),
                        run(fraction(0.4), "--sync-every", "0")])
    assert all(close_to(s / sum(had), f, 1.7) for s, f in zip(had, (0.3, 0.3, 0.4))), had


def test_several_gpus_are_leased_together(make_host, run):
    host = make_host("h100-80gb:2")
    slice_time(host, "strict")
    gang = run(fraction(0.5) + ["--gpus", "2"], "--gpus", "2", on=host)
    single = [run(fraction(0.5) + ["--gpu-ids", str(i)], on=host) for i in (0, 1)]
    for gpu in (0, 1):
        had = shares(host, [gang, single[gpu]], gpu=gpu)
        assert close_to(had[0] / sum(had), 0.5, 1.7), (gpu, had)


@SHARES_ONLY
def test_a_gpu_is_not_idle_while_a_session_waits_for_its_other_one(make_host, run):
    host = make_host("h100-80gb:2")
    slice_time(host, "fair", "--lease", "50ms", "--granularity", "10%")
    long = run(fraction(0.5) + ["--gpu-ids", "1"], "--kernel-us", "100000", "--sync-every", "4", on=host)
    gang = run(fraction(0.5) + ["--gpus", "2"], "--gpus", "2", on=host)
    single = run(fraction(0.25) + ["--gpu-ids", "0"], on=host)
    wait_busy(host, long)
    time.sleep(2)  # until it is known how long its kernels are
    had = shares(host, [gang, single], seconds=5, gpu=0)
    # It was 0.6 of the gang's, and the GPU idle for the rest.
    assert had[1] > 0.78 * had[0], had


@SHARES_ONLY
def test_a_session_over_two_gpus_has_its_share_beside_long_kernels(make_host, run):
    host = make_host("h100-80gb:2")
    slice_time(host, "strict", "--lease", "50ms")
    gang = run(fraction(0.3) + ["--gpus", "2"], "--gpus", "2", "--kernel-us", "5000", "--streams", "2",
               "--sync-every", "0", on=host)
    single = run(fraction(0.6) + ["--gpu-ids", "1"], "--kernel-us", "4000", "--sync-every", "0", on=host)
    long = run(fraction(0.6) + ["--gpu-ids", "0"], "--kernel-us", "500000", "--sync-every", "2", on=host)
    wait_busy(host, long)
    time.sleep(3)  # until it is known how long its kernels are
    had = shares(host, [gang, long], seconds=8, gpu=0)
    assert had[0] > 0.36 * had[1], had  # of 0.5 it was 0.26
    had = shares(host, [gang, single], seconds=3, gpu=1)
    assert had[1] > had[0], had


@SHARES_ONLY
def test_a_process_keeps_each_of_its_gpus_as_busy_as_one(make_host, run):
    """Work in flight, while a lease is not for ever, is counted on each GPU by itself."""
    host = make_host("h100-80gb:4")
    slice_time(host, "strict")
    gang = run(fraction(0.5) + ["--gpus", "4"], "--gpus", "4", "--kernel-us", "4000", "--sync-every", "512", on=host)
    had = shares(host, [gang], seconds=3)[0] / 4
    assert 0.3 < had < 0.6, had  # it was 0.13: one kernel at a time


def test_work_on_a_gpu_that_is_not_sliced_passes(make_host, run):
    """Though its session has a sliced one, too. A program that uses both would wait for the other one itself."""
    host = make_host("h100-80gb:2")
    slice_time(host, "strict", "--gpu-ids", "0", *LEASE)
    one = run(fraction(0.25) + ["--gpus", "2"], on=host, env={"CUDA_VISIBLE_DEVICES": "1"})
    for mode, least, most in [("off", 0.6, 1.1), ("strict", 0.1, 0.4), ("off", 0.6, 1.1)]:
        slice_time(host, mode, "--gpu-ids", "1", *LEASE)
        time.sleep(0.5)
        had, = shares(host, [one], seconds=1, gpu=1)
        assert least < had < most, (mode, had)


def test_a_graph_passes_no_gate_by_way_of_a_gpu_that_is_not_sliced(make_host, run):
    """Its nodes may be on any GPU of the session, whatever stream it is launched in."""
    host = make_host("h100-80gb:2")
    slice_time(host, "strict", "--gpu-ids", "0", *LEASE)
    one = run(fraction(0.25) + ["--gpus", "2"], "--graph", 2, on=host, env={"CUDA_VISIBLE_DEVICES": "1"})
    had, = shares(host, [one], seconds=2, gpu=1)
    assert 0.1 < had < 0.4, had


# ---- what goes wrong ----

def test_a_stopped_holder_is_passed_over(host, run):
    slice_time(host, "fair")
    a, b = run(fraction(0.5)), run(fraction(0.5))
    stopped, = a.pids()
    os.kill(stopped, signal.SIGSTOP)
    try:
        time.sleep(0.5)
        had = shares(host, [a, b], seconds=2)
        # The simulated GPU cannot end a kernel of a stopped process, and shares with it as long as that is.
        assert had[1] > 0.2, had
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_busy(host, a)


def test_a_killed_holder_is_passed_over(host, run):
    slice_time(host, "fair")
    a, b = run(fraction(0.75)), run(fraction(0.25))
    a.kill()
    time.sleep(0.2)
    assert shares(host, [b], seconds=1.5)[0] > 0.6


def test_workloads_outlive_the_daemon_and_the_next_one_shares_again(host, run):
    slice_time(host, "strict")
    a, b = run(fraction(0.2)), run(fraction(0.8))
    os.kill(host.daemon_pid(), signal.SIGKILL)
    for w in (a, b):
        wait_busy(host, w)
    gpu, = host.carve_json("timeslicing")  # starts the next daemon
    assert gpu["mode"] == "strict" and gpu["lease_ns"] == 100_000_000 and len(gpu["sessions"]) == 2
    time.sleep(1)
    had = shares(host, [a, b])
    assert close_to(had[0] / sum(had), 0.2), had


def test_a_daemon_that_hangs_opens_the_gates_and_shares_again_when_it_goes_on(host, run):
    slice_time(host, "strict")
    a, b = run(fraction(0.2)), run(fraction(0.8))
    daemon = host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        # One of them at least was waiting, and no gate is closed any more.
        for w in (a, b, a, b):
            wait_busy(host, w, PATIENCE)
    finally:
        os.kill(daemon, signal.SIGCONT)
    # After a plan or two, which whoever ran meanwhile is charged.
    time.sleep(3)
    had = shares(host, [a, b])
    assert close_to(had[0] / sum(had), 0.2), had


def test_a_daemon_that_upgrades_goes_on_sharing(host, run):
    slice_time(host, "strict")
    a, b = run(fraction(0.2)), run(fraction(0.8))
    done = host.run([BUILD / "carved", "--takeover", "--runtime-dir",
                     host.env["CARVE_RUNTIME_DIR"]])
    assert done.returncode == 0, done.stderr
    time.sleep(0.5)
    had = shares(host, [a, b])
    assert close_to(had[0] / sum(had), 0.2), had


# ---- who has not begun ----

def test_the_promise_to_a_session_without_processes_is_kept(make_host, run):
    """From its grant on, on all of its GPUs; over the daemon's end, an upgrade and another size. In fair mode it takes nothing."""
    host = make_host("h100-80gb:2")
    slice_time(host, "strict", "--lease", "50ms")
    memory = run(MEMORY + ["--gpu-ids", "1"], on=host)

    def had():
        return shares(host, [memory], seconds=0.8, gpu=1)[0]

    id = host.carve_json("session", "request", "--gpu", "0.75", "--gpus", "2")["id"]
    assert close_to(had(), 0.25)
    os.kill(host.daemon_pid(), signal.SIGKILL)
    host.carve_json("timeslicing")  # starts the next daemon
    time.sleep(0.7)
    assert close_to(had(), 0.25)
    done = host.run([BUILD / "carved", "--takeover", "--runtime-dir", host.env["CARVE_RUNTIME_DIR"]])
    assert done.returncode == 0, done.stderr
    assert close_to(had(), 0.25)
    assert host.carve("session", "resize", id, "--gpu", "0.4").returncode == 0
    assert close_to(had(), 0.6)
    slice_time(host, "fair", "--lease", "50ms")
    assert had() > 0.75
    slice_time(host, "strict", "--lease", "50ms")
    assert host.carve("session", "release", id).returncode == 0
    assert had() > 0.75
