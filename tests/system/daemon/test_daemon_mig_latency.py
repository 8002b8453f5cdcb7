"""The daemon's own part of the time until an instance can be used: in processor time, and by what it asks of the driver."""
import pathlib
import statistics

import pytest

from conftest import wait_until
from mig_hands import call, carve, instances, look, with_role

ROUNDS = 15
OWN_NS = 5_000_000


def cpu_ns(pid):
    """Of all threads: the driver's calls are made beside the daemon's loop."""
    return sum(int(stat.read_text().split()[0]) for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def spent_on_request(host, pid):
    before = cpu_ns(pid)
    status, session = call(host, "POST", "/v1/sessions", {"kept": True, "mig_profile": "1g.10gb"})
    spent = cpu_ns(pid) - before
    assert status == 201, session
    call(host, "DELETE", "/v1/sessions/" + session["id"])
    return spent


@pytest.mark.timed
@pytest.mark.once("judges processor time")
def test_an_instance_is_made_and_reused_in_five_milliseconds_of_the_daemons(make_host):
    host = with_role(make_host)
    pid = host.daemon_pid()
    made, reused = [], []
    for _ in range(ROUNDS):
        carve(host, "mig", "gc")
        wait_until(lambda: not instances(host))
        made.append(spent_on_request(host, pid))
        wait_until(lambda: instances(host, "idle"))
        reused.append(spent_on_request(host, pid))
    print(f"processor time: made {statistics.median(made) / 1e6:.2f} ms, reused {statistics.median(reused) / 1e6:.2f} ms")
    assert statistics.median(made) < OWN_NS and statistics.median(reused) < OWN_NS


def test_reuse_changes_nothing_at_the_driver(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "5", "--", "true")
    for fault in ("mig-create", "mig-destroy"):
        carve(host, "sim", "fault", fault, "--error", "999")
    for _ in range(3):
        carve(host, "session", "request", "--vram", "5")
        assert look(host, "session", "show")["mig_profile"] == "1g.10gb"
        carve(host, "session", "release")
