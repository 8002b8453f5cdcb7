"""Point 13: accounts of leases outlive the daemon. While it is killed (kill -9) and started again and again, sessions have
their shares by the simulator's own books. timed: a machine that is busy otherwise is no judge."""
import pytest

from conftest import wait_until

from .lab import BOB, ROOT
from .time_lab import Victim, books, share, slice_time

POINTS = 0.02
SECONDS = 20
UNWRITTEN = 11  # a turn that is prolonged again and again, 100 ms at a time, is written each second


def turns(lab):
    """How many turns each session has had, as the daemon counts them."""
    return {s["id"]: s["timeslicing"]["leases"] for s in lab.carve_json(ROOT, "session", "list")}


@pytest.mark.parametrize("mode", ["strict", "fair"])
@pytest.mark.attack("13", "the accounts of a daemon that is killed")
def test_accounts_outlive_a_killed_daemon(lab, mode):
    slice_time(lab, mode)
    workloads = [Victim(lab, ["--gpu", "0.7"]), Victim(lab, ["--gpu", "0.3"], uid=BOB)]
    wait_until(lambda: min(turns(lab).values()) > 3 * UNWRITTEN)
    for _ in range(2):
        before = turns(lab)
        lab.restart()
        after = turns(lab)
        assert all(after[session] >= count - UNWRITTEN for session, count in before.items()), (before, after)
    assert all(w.working() for w in workloads)


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("mode", ["strict", "fair"])
@pytest.mark.attack("13", "a daemon that is killed while turns go on")
def test_shares_hold_over_a_killed_daemon(lab, mode):
    slice_time(lab, mode)
    workloads = [Victim(lab, ["--gpu", "0.7"]), Victim(lab, ["--gpu", "0.3"], uid=BOB)]
    began, had = books(lab, workloads[0].pids())[0], [books(lab, w.pids())[1] for w in workloads]
    share(lab, workloads[0], 8)
    lab.restart()
    share(lab, workloads[0], SECONDS - 8)
    passed = books(lab, workloads[0].pids())[0] - began
    got = [(books(lab, w.pids())[1] - h) / passed for w, h in zip(workloads, had)]
    print(mode, [round(g, 3) for g in got])
    for part, wanted in zip(got, (0.7, 0.3)):
        assert abs(part - wanted * sum(got)) <= POINTS
