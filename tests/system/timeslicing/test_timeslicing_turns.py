"""Sessions take turns on a GPU, and a turn that cannot end goes to the next one all the same. Events are judged here, never
times: how large shares are is judged in virtual time (tests/unit/test_core_lease*.c) and, on a clock, in test_timeslicing.py."""
import os
import signal

import pytest

from conftest import BUILD, ON_GPU, PATIENCE, wait_until
from sharing import LEASE, Workload, busy, slice_time, wait_busy

pytestmark = pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books")


@pytest.fixture
def pair(host):
    """pair(mode) -> two sessions that share the GPU; ended after the test."""
    started = []

    def start(mode, fractions=(0.5, 0.5)):
        slice_time(host, mode, *LEASE)
        started.extend(Workload(host, ["--gpu", str(f)]) for f in fractions)
        return started

    yield start
    for workload in started:
        workload.kill()


def leases(host):
    """How many leases each session had, in the order of their IDs."""
    return [s["leases"] for s in sorted(host.carve_json("timeslicing")[0]["sessions"], key=lambda s: s["id"])]


def take_turns(host, workloads):
    """Each of them gets more leases, and GPU time."""
    had, before = leases(host), [busy(host, w) for w in workloads]
    assert len(had) == len(workloads)
    wait_until(lambda: all(now > then + 2 for now, then in zip(leases(host), had)))
    wait_until(lambda: all(busy(host, w) > then for w, then in zip(workloads, before)))


@pytest.mark.parametrize("mode", ["fair", "strict"])
def test_each_of_two_sessions_gets_its_turns(host, pair, mode):
    take_turns(host, pair(mode, (0.2, 0.8)))


def test_a_session_alone_goes_on_whatever_the_mode_becomes(host, pair):
    one, = pair("strict", (0.25,))
    for mode in ("off", "fair", "strict"):
        slice_time(host, mode, *LEASE)
        wait_busy(host, one)


@pytest.mark.long
def test_a_session_that_is_killed_or_stopped_holds_nobody_up(host, pair):
    one, other = pair("fair")
    stopped, = one.pids()
    os.kill(stopped, signal.SIGSTOP)
    try:
        for _ in range(3):
            wait_busy(host, other)
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_busy(host, one)
    one.kill()
    for _ in range(3):
        wait_busy(host, other)


def test_gates_open_without_a_daemon_and_the_next_one_gives_turns_again(host, pair):
    workloads = pair("strict", (0.2, 0.8))
    os.kill(host.daemon_pid(), signal.SIGKILL)
    for workload in workloads * 2:
        wait_busy(host, workload)
    # The next command starts the next daemon.
    wait_until(lambda: len(host.carve_json("timeslicing")[0]["sessions"]) == 2)
    assert host.carve_json("timeslicing")[0]["mode"] == "strict"
    take_turns(host, workloads)


def test_gates_open_while_a_daemon_hangs(host, pair):
    workloads = pair("strict", (0.2, 0.8))
    daemon = host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        for workload in workloads * 2:
            wait_busy(host, workload)
    finally:
        os.kill(daemon, signal.SIGCONT)
    take_turns(host, workloads)


def test_turns_go_on_over_an_upgrade(host, pair):
    workloads = pair("strict", (0.2, 0.8))
    done = host.run([BUILD / "carved", "--takeover", "--runtime-dir", host.env["CARVE_RUNTIME_DIR"]])
    assert done.returncode == 0, done.stderr
    take_turns(host, workloads)


def test_sessions_over_two_gpus_take_turns_with_those_of_one(make_host):
    host, started = make_host("h100-80gb:2"), []
    slice_time(host, "strict", *LEASE)
    try:
        started.append(Workload(host, ["--gpu", "0.5", "--gpus", "2"], "--gpus", "2"))
        started += [Workload(host, ["--gpu", "0.5", "--gpu-ids", gpu]) for gpu in "01"]
        for gpu, single in enumerate(started[1:]):
            before = [busy(host, w, gpu) for w in (started[0], single)]
            wait_until(lambda: all(busy(host, w, gpu) > then + 5_000_000
                                   for w, then in zip((started[0], single), before)))
    finally:
        for workload in started:
            workload.kill()


def test_a_session_ends_while_it_waits_for_its_turn(host):
    """Its turn would come 5 s later."""
    slice_time(host, "fair", "--lease", "5s", "--granularity", "50%")
    started = [Workload(host, ["--gpu", "0.5"], wait=False) for _ in range(2)]
    try:
        wait_until(lambda: len([s for s in host.carve_json("session", "list") if s["pids"]]) == 2)
        for session in host.carve_json("session", "list"):
            assert host.carve("session", "release", session["id"], "--force").returncode == 0
        for workload in started:
            workload.process.wait(PATIENCE)
    finally:
        for workload in started:
            workload.kill()
