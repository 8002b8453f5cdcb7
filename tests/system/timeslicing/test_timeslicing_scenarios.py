"""The scenarios of `scripts/bench shares` in short: who works beside whom, judged by the driver's own busy times with wide
margins. Time that the machine was too busy to play, or to hand work in, widens them further."""
import json
import os
import signal
import time

import pytest

from conftest import ON_GPU, wait_until
from sharing import Workload, busy, shares, slice_time, wait_busy

pytestmark = [pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books"),
              pytest.mark.timed, pytest.mark.once("nothing but shares")]

MS = 1_000_000


def fraction(f):
    return ["--gpu", str(f)]


@pytest.fixture
def run(host):
    """run(size, *args) -> Workload; ended after the test."""
    workloads = []

    def start(size, *args, **kw):
        workloads.append(Workload(host, size, *args, **kw))
        return workloads[-1]

    yield start
    for w in workloads:
        w.kill()


def answer(workload):
    """Has its one client finish; what that says of itself."""
    for pid in workload.pids():
        os.kill(pid, signal.SIGTERM)
    words, errors = workload.process.communicate(timeout=60)
    assert workload.process.returncode == 0, errors
    return json.loads(words.splitlines()[-1])


def close_to(had, wanted):
    """Shares of the time that anybody had, to 8 points, and half a point more for each that nobody had."""
    if sum(had) < 0.25:
        pytest.skip(f"this machine was too busy: work was handed in for {sum(had):.0%} of the time")
    part = [s / sum(had) for s in had]
    room = min(0.2, 0.08 + 0.5 * max(0, 1 - sum(had)))
    assert all(abs(p - w) <= room for p, w in zip(part, wanted)), (had, wanted)


@pytest.mark.parametrize("ms", [10, 5])
def test_leases_may_be_short(host, run, ms):
    slice_time(host, "strict", "--lease", f"{ms}ms", "--granularity", "5%")
    close_to(shares(host, [run(fraction(f), "--kernel-us", "500", "--sync-every", "64") for f in (0.25, 0.75)]),
             (0.25, 0.75))


def test_eight_equals_get_the_same(host, run):
    slice_time(host, "fair", "--lease", "50ms", "--granularity", "5%")
    had = shares(host, [run(fraction(0.125), "--sync-every", "32") for _ in range(8)])
    close_to(had, [0.125] * 8)
    assert sum(had) ** 2 / (8 * sum(h * h for h in had)) > 0.9, had


@pytest.mark.parametrize("other", [["--graph", "20", "--kernel-us", "500"], ["--sync-every", "0"]], ids=["graphs", "never"])
def test_all_ways_to_submit_work_have_equal_shares(host, run, other):
    slice_time(host, "strict")
    close_to(shares(host, [run(fraction(0.5), *other), run(fraction(0.5), "--sync-every", "32")]), (0.5, 0.5))


def test_long_and_short_kernels_get_the_same(host, run):
    slice_time(host, "strict")
    close_to(shares(host, [run(fraction(0.33), "--kernel-us", us, "--sync-every", n)
                           for us, n in (("500", "128"), ("5000", "32"), ("50000", "8"))], seconds=6), [1 / 3] * 3)


def test_kernels_of_a_microsecond_take_nothing_from_others(host, run):
    """They are handed in more slowly than the GPU runs them; what that leaves idle is not the other's loss."""
    slice_time(host, "fair")
    one, _ = shares(host, [run(fraction(0.5), "--sync-every", "32"), run(fraction(0.5), "--kernel-us", "1", "--sync-every", "0")])
    assert one > 0.3


def test_sessions_come_and_go(host, run):
    """Those that stay have theirs, of all the time."""
    slice_time(host, "strict", "--lease", "50ms", "--granularity", "5%")
    stay = [run(fraction(f), "--sync-every", "32") for f in (0.25, 0.5)]
    pids = [busy(host, w) for w in stay]
    began = host.stat()["now_ns"]
    for _ in range(4):
        guest = Workload(host, fraction(0.25), "--seconds", "1")
        out, errors = guest.process.communicate(timeout=60)
        assert guest.process.returncode == 0, errors
    passed = host.stat()["now_ns"] - began
    had = [(busy(host, w) - b) / passed for w, b in zip(stay, pids)]
    assert 0.12 < had[0] < 0.32 and 0.3 < had[1] < 0.57, had


def test_an_interactive_job_beside_a_batch_job(host, run):
    """5 ms of work each 50 ms: without a turn of its own in between it would wait for leases of 250 ms."""
    slice_time(host, "fair", "--lease", "250ms", "--granularity", "5%")
    run(fraction(0.5), "--sync-every", "0")
    job = run(fraction(0.5), "--kernel-us", "5000", "--sync-every", "1", "--duty", "10", "--period-ms", "50")
    time.sleep(4)
    had = answer(job)
    assert had["bursts"] > 20 and had["burst_p50_ns"] < 80 * MS, had


def test_every_plan_has_its_shares(host, run):
    """Half of each plan of 2 s, to two leases of 100 ms, and what the machine could not play."""
    slice_time(host, "strict", "--lease", "100ms", "--granularity", "5%")
    both = [run(fraction(0.5), "--sync-every", "32") for _ in range(2)]
    time.sleep(1)
    for _ in range(3):
        close_to(shares(host, both, seconds=2), (0.5, 0.5))


def test_the_books_agree_with_what_kernels_stored(host, run):
    slice_time(host, "strict", "--lease", "50ms", "--granularity", "5%")
    both = [run(fraction(f), "--sync-every", "32") for f in (0.25, 0.75)]
    pids = [w.pids()[0] for w in both]
    time.sleep(2)
    had = [answer(w) for w in both]
    ended = wait_until(lambda: {e["pid"]: e for e in host.stat()["gpus"][0]["ended"]}.keys() >= set(pids) and
                       {e["pid"]: e for e in host.stat()["gpus"][0]["ended"]})
    for pid, said in zip(pids, had):
        ns = ended[pid]["busy_ns"]
        # Where a drain was given up, kernels saw the other's turns pass.
        assert said["kernels"] > 50 and 0.98 * said["stored_ns"] < ns * 1.05, (ns, said)
        assert ns < said["stored_ns"] * 1.02 + said["kernels"] * 2000 + 5 * MS, (ns, said)


# ---- what goes wrong ----

def test_a_session_that_is_stopped_while_it_waits_costs_nobody_time(host, run):
    slice_time(host, "fair", "--lease", "500ms", "--granularity", "50%")
    a, b = run(fraction(0.5), "--sync-every", "32"), run(fraction(0.5), "--sync-every", "32")
    stopped, = b.pids()

    def b_waits():
        before = busy(host, b), busy(host, a)
        time.sleep(0.1)
        return busy(host, b) == before[0] and busy(host, a) > before[1]

    wait_until(b_waits)
    os.kill(stopped, signal.SIGSTOP)
    try:
        time.sleep(0.6)
        had, _ = shares(host, [a, b], seconds=3)
        assert had > 0.7
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_busy(host, b)


def test_a_driver_without_writes_of_streams(host, run):
    """Then it is asked how far its streams are."""
    for call in ("cuStreamWriteValue32_v2", "cuStreamWriteValue32"):
        done = host.carve("sim", "fault", "hang", "--call", call, "--error", "801")
        assert done.returncode == 0, done.stderr
    slice_time(host, "strict")
    close_to(shares(host, [run(fraction(f), "--sync-every", "32") for f in (0.25, 0.75)]), (0.25, 0.75))
