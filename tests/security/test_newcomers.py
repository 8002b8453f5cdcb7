"""Point 12: an honest newcomer costs its neighbours no part of their shares, however long its kernels and its queue are: by the
simulator's own books, within 2 points over the first 20 s, or one kernel of the newcomer's where that is more. timed: a machine that is busy otherwise is no judge."""
import time

import pytest

from .lab import ALICE, BOB, MALLORY
from .time_lab import ALONE_SECONDS, LAG_MAX, SECONDS, Victim, books, slice_time

pytestmark = [pytest.mark.timed, pytest.mark.long, pytest.mark.alone]

POINTS = 0.02
# Together all of the GPU: no idle time makes up for what the newcomer takes. Two neighbours: while one waits for its work, the
# other has some.
NEIGHBOUR, NEWCOMER = 0.45, 0.1


def measured(lab, pids, seconds):
    """The part of the GPU's time that the processes have in so many seconds by the GPU's clock."""
    began, before, behind = books(lab, pids)
    while (now := books(lab, pids))[0] < began + seconds * 1_000_000_000:
        time.sleep(0.05)
    passed = now[0] - began
    lag = (now[2] - behind) / (passed + now[2] - behind)
    if lag > LAG_MAX:
        pytest.skip(f"this machine was too busy: the simulated GPU stood still for {lag:.0%} of the time")
    return (now[1] - before) / passed


MIXES = [(ms, queue, mode) for mode in ("strict", "fair") for ms in (10, 100, 400, 1000) for queue in (1, 64, 1000)]


@pytest.mark.parametrize(("kernel_ms", "queue", "mode"), MIXES)
@pytest.mark.attack("12", "a newcomer with long kernels")
def test_a_newcomer_with_long_kernels_costs_its_neighbours_nothing(lab, kernel_ms, queue, mode):
    slice_time(lab, mode)
    neighbours = [Victim(lab, ["--gpu", NEIGHBOUR], uid=uid) for uid in (ALICE, MALLORY)]
    pids = {pid for neighbour in neighbours for pid in neighbour.pids()}
    wanted = min(1 - NEWCOMER, measured(lab, pids, ALONE_SECONDS))
    Victim(lab, ["--gpu", NEWCOMER], "--sync-every", queue, uid=BOB, kernel_us=kernel_ms * 1000)
    had = measured(lab, pids, SECONDS)
    print(f"{kernel_ms} ms, queue of {queue}, {mode}: {had:.3f} of {wanted:.3f}")
    # The last of its kernels may have ended just now: it pays for that later.
    assert had >= wanted - max(POINTS, kernel_ms / 1000 / SECONDS + POINTS / 4)
