"""Work that waits for work which is handed in later, while turns end in between: a closed gate may not hold up what is waited
for, and whoever works beside has his share all the same."""
import os
import signal
import subprocess
import time

import pytest

from conftest import BUILD, ON_GPU, PATIENCE, rest_long, wait_until
from programs import python
from sharing import Workload, slice_time, wait_busy

pytestmark = [pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books"),
              pytest.mark.once("nothing but turns, shares and times")]

PROGRAM = BUILD / "tests/programs/wait_later"
LEASE = ("--lease", "50ms", "--granularity", "10%")


@pytest.fixture
def waits(host):
    """waits(fraction, *args) -> a running wait_later in a session of its own; ended after the test."""
    started = []

    def start(fraction, *args):
        started.append(host.popen([BUILD / "carve", "run", "--ephemeral", "--gpu", str(fraction), "--", PROGRAM, *args],
                                  start_new_session=True))
        assert started[-1].stdout.readline() == "up\n", started[-1].stderr.read()
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def beside(host):
    workloads = []

    def start(fraction):
        workloads.append(Workload(host, ["--gpu", str(fraction)], "--sync-every", "32"))
        return workloads[-1]

    yield start
    for w in workloads:
        w.kill()


def ended(process, rounds, timeout=2 * PATIENCE):
    """Seconds that each of its rounds took."""
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    took = list(map(float, out.split()))
    assert len(took) == rounds
    return took


def used(host, pids=None):
    """(the GPU's time so far, what these processes had of it, what all others had)"""
    stat = host.stat()
    gpu, = stat["gpus"]
    busy = {p["pid"]: p["busy_ns"] for p in gpu["ended"] + gpu["processes"]}
    own = sum(ns for pid, ns in busy.items() if pid in (pids or ()))
    return stat["now_ns"] - gpu["lag_ns"], own, sum(busy.values()) - own


# Without a turn that ends in between 8 rounds take half a second to a second. Where what is waited for was let in a few
# launches a drain, the third of them took minutes.
@pytest.mark.parametrize("mode", rest_long(["fair", "strict"]))
@pytest.mark.parametrize("how", rest_long(["spin", "thread", "value", "callback", "lock"], 3))
def test_work_that_other_work_waits_for_passes_a_closed_gate(host, waits, beside, how, mode):
    slice_time(host, mode, *LEASE)
    other = beside(0.3)
    ended(waits(0.7, how, "8", "40", "1000"), 8)
    assert other.process.poll() is None


@pytest.mark.parametrize("how, count", [("value", "200"), ("callback", "150")])
@pytest.mark.timed
def test_much_that_waits_alone_in_strict_mode(host, waits, how, count):
    """More than what may be in flight stands behind what waits; what fits doubles."""
    slice_time(host, "strict", *LEASE)
    took, = ended(waits(0.5, how, "1", count, "1000"), 1)
    assert took < 8


@pytest.mark.parametrize("mode, lease", [("fair", "250ms"), ("strict", "250ms"), ("strict", "5ms")])
@pytest.mark.timed
def test_a_lock_that_launches_and_host_functions_take(host, waits, beside, mode, lease):
    """Whoever waits for room, or at the gate, holds it: of a thousand host functions two a second had it then."""
    slice_time(host, mode, "--lease", lease, "--granularity", "10%")
    other = beside(0.25)
    pids = set(other.pids())
    began, own, rest = used(host, pids)
    ended(waits(0.25, "lock", "5", "200", "1000"), 5)
    now, own_now, rest_now = used(host, pids)
    had, all_had = own_now - own, own_now - own + rest_now - rest
    assert rest_now - rest > 900_000_000  # of a second's kernels
    assert had > 0.2 * all_had, (had / all_had, all_had / (now - began))


@pytest.mark.parametrize("how", ["plain", "joined"])
def test_a_host_function_of_a_graph_is_called_each_time(host, how):
    slice_time(host, "fair", *LEASE)
    done = host.carve("run", "--ephemeral", "--gpu", "0.25", "--", *python("graph_functions", how))
    assert (done.returncode, done.stdout) == (0, "[1, 2, 30, 1, 2, 31, 1, 2, 32]\n"), done.stderr


@pytest.mark.timed
def test_with_leases_of_5_ms(host, waits, beside):
    slice_time(host, "fair", "--lease", "5ms", "--granularity", "10%")
    beside(0.3)
    assert sum(ended(waits(0.7, "callback", "4", "40", "1000"), 4)) < 12


@pytest.mark.parametrize("mode", ["fair", "strict"])
@pytest.mark.timed
def test_a_session_beside_a_waiting_one_gets_its_share(host, waits, beside, mode):
    """A kernel that looks at a word works, as the GPU has it: where drains are given up it takes half of the other's turns,
    who had 14% of his 30% then."""
    slice_time(host, mode, *LEASE)
    other = beside(0.3)
    pids = set(other.pids())
    process = waits(0.7, "spin", "1000", "40", "1000")
    time.sleep(1)
    began, own, rest = used(host, pids)
    time.sleep(6)
    now, own_now, rest_now = used(host, pids)
    had, all_had = own_now - own, own_now - own + rest_now - rest
    if all_had < (now - began) / 2:
        pytest.skip("this machine was too busy")
    assert had > 0.2 * all_had, (had / all_had, all_had / (now - began))
    if mode == "strict":
        assert had < 0.4 * all_had, (had / all_had, all_had / (now - began))
    assert process.poll() is None


@pytest.mark.timed
def test_long_kernels_alone_do_not_reopen_the_gate(host, waits, beside):
    """Kernels of 100 ms, while another thread of theirs waits at the gate: how long they take is known after a few."""
    slice_time(host, "fair", *LEASE)
    beside(0.3)
    process = waits(0.7, "long", "60", "100", "1000", "5000")
    reopened, = wait_until(lambda: process.poll() is None and
                           [s["reopened"] for s in host.carve_json("timeslicing")[0]["sessions"]
                            if s["request"] == 0.7 and s["leases"] > 10])
    time.sleep(3)
    more = [s["reopened"] for s in host.carve_json("timeslicing")[0]["sessions"] if s["request"] == 0.7]
    assert process.poll() is None and more[0] - reopened < 8


# ---- threads' own default streams ----

OWN = BUILD / "tests/programs/own_stream"


@pytest.mark.parametrize("how, rounds", [("ended", 1000), ("asleep", 1000), ("left", 1000), ("burst", 100)])
@pytest.mark.timed
def test_unmarked_work_in_a_threads_own_stream_does_not_delay_each_turn(host, beside, how, rounds):
    """No other thread can put a marker there. It was 9 of 10 turns that ended 0.1 s late, for as long as the program ran."""
    slice_time(host, "fair", *LEASE)
    process = host.popen([BUILD / "carve", "run", "--ephemeral", "--gpu", "0.4", "--", OWN, how, str(rounds)],
                         stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n", process.communicate()[1]
    other = beside(0.5)
    wait_busy(host, other)
    process.stdin.write("\n")
    process.stdin.flush()
    seen, until = [], time.monotonic() + 30
    while process.poll() is None:
        if time.monotonic() > until:
            process.kill()
        sessions = [s for s in host.carve_json("timeslicing")[0]["sessions"] if s["request"] == 0.4]
        seen = sessions or seen
        time.sleep(0.05)
    assert process.returncode == 0, process.communicate()[1]
    # Work left before anybody else came is waited for in the first few.
    assert seen[0]["leases"] >= 3 and seen[0]["stalls"] <= 4 + seen[0]["leases"] // 10, seen


@pytest.mark.timed
def test_no_estimate_makes_work_in_a_threads_own_stream_done(host, beside):
    """A kernel that took 1 us before takes 0.1 s, and its thread sleeps. Half of the GPU was had so for a tenth."""
    slice_time(host, "strict", *LEASE)
    process = host.popen([BUILD / "carve", "run", "--ephemeral", "--gpu", "0.1", "--", OWN, "varies", "300"],
                         stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n", process.communicate()[1]
    other = beside(0.8)
    wait_busy(host, other)
    time.sleep(2)
    mine = [p["pid"] for p in host.stat()["gpus"][0]["processes"] if p["pid"] not in other.pids()]
    before = used(host, mine)
    time.sleep(6)
    passed, own, _ = (y - x for x, y in zip(before, used(host, mine)))
    process.kill()
    process.communicate()
    assert 0 < own < 0.22 * passed, (own, passed)


@pytest.mark.parametrize("mode", ["strict", "fair"])
def test_functions_that_a_stream_calls_are_refused_and_never_held_up(host, beside, mode):
    """The driver's thread that runs them may not call it: launches in there answer at once, through a closed gate, too."""
    slice_time(host, mode, *LEASE)
    other = beside(0.5)
    wait_busy(host, other)
    for _ in range(8):
        done = host.carve("run", "--ephemeral", "--gpu", "0.3", "--", BUILD / "tests/programs/cuda_extras",
                          "forbidden-calls", timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
