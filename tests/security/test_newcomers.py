"""Point 12: an honest newcomer costs a neighbour no part of its share, however long its kernels and its queue are: by the
simulator's own books, within 2 points over the first 20 s. timed: a machine that is busy otherwise is no judge."""
import time

import pytest

from .lab import BOB
from .time_lab import LAG_MAX, SECONDS, Victim, books, due, slice_time

pytestmark = [pytest.mark.timed, pytest.mark.long, pytest.mark.alone]

POINTS = 0.02
# Together all of the GPU: no idle time makes up for what the newcomer takes.
VICTIM, NEWCOMER = 0.9, 0.1


def share_beside(lab, victim, start):
    """The part of the GPU's time that the victim has in SECONDS from when start() is called."""
    pids = set(victim.pids())
    began, before, behind = books(lab, pids)
    start()
    while (now := books(lab, pids))[0] < began + SECONDS * 1_000_000_000:
        time.sleep(0.05)
    passed = now[0] - began
    lag = (now[2] - behind) / (passed + now[2] - behind)
    if lag > LAG_MAX:
        pytest.skip(f"this machine was too busy: the simulated GPU stood still for {lag:.0%} of the time")
    return (now[1] - before) / passed


@pytest.mark.parametrize("mode", ["strict", "fair"])
@pytest.mark.parametrize("queue", [1, 64, 1000])
@pytest.mark.parametrize("kernel_ms", [10, 100, 400, 1000])
@pytest.mark.attack("12", "a newcomer with long kernels")
def test_a_newcomer_with_long_kernels_costs_a_neighbour_nothing(lab, kernel_ms, queue, mode):
    slice_time(lab, mode)
    victim = Victim(lab, ["--gpu", VICTIM])
    wanted = due(lab, victim, VICTIM)
    had = share_beside(lab, victim, lambda: Victim(lab, ["--gpu", NEWCOMER], "--sync-every", queue, uid=BOB, kernel_us=kernel_ms * 1000))
    print(f"{kernel_ms} ms, queue of {queue}, {mode}: {had:.3f} of {wanted:.3f}")
    assert had >= wanted - POINTS
