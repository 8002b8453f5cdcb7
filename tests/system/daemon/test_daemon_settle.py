"""The amounts that the daemon posts, lets go and reports by the driver's figures of processes, over a fake driver."""
import signal
import time

import pytest

from child import attached, make_child, observe  # noqa: F401: fixtures
from conftest import wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures


def test_settling_posts_what_the_driver_says(daemon, make_child):
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {100 * MIB}")
    daemon.processes = [(0, child.pid, 340 * MIB)]
    daemon.write_state()
    assert child.say("settle") == str(OK)
    assert ledger.books(child.slot) == (100 * MIB, 240 * MIB)
    assert ledger.committed() == 340 * MIB
    # Memory that grows later is posted without being asked for, and taken back likewise.
    for figure in (500, 400, 100):
        daemon.processes = [(0, child.pid, figure * MIB)]
        daemon.write_state()
        wait_until(lambda: ledger.committed() == figure * MIB)


def test_memory_charged_but_not_on_the_gpu_yet_stays_charged(daemon, make_child):
    """Managed memory, that is: the driver's figure is below what was charged."""
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {1000 * MIB}")
    daemon.processes = [(0, child.pid, 10 * MIB)]
    daemon.write_state()
    time.sleep(2.2)
    assert ledger.committed() == 1000 * MIB


def test_a_process_that_is_always_in_the_middle_of_a_call_is_settled_upwards(daemon, make_child):
    _, child, ledger = attached(daemon, make_child)
    ledger.set_calls(child.slot, 5, 3)
    daemon.processes = [(0, child.pid, 340 * MIB)]
    daemon.write_state()
    ledger.charge(child.slot, 400 * MIB)
    assert child.say("settle") == str(OK)  # bounded; it may be about to have what it charged
    assert ledger.committed() == 400 * MIB
    ledger.charge(child.slot, -400 * MIB)
    assert child.say("settle") == str(OK)  # it holds this beyond all that it charged
    assert ledger.committed() == 340 * MIB
    ledger.set_calls(child.slot, 5, 4)
    assert child.say("settle") == str(OK)
    assert ledger.committed() == 340 * MIB


def test_a_sample_of_before_a_process_asks_says_nothing_of_it(daemon, make_child):
    """One that never stands still gives something back while the daemon samples for another one."""
    session = daemon.grant(vram="4")["id"]
    child, other = make_child(daemon, session), make_child(daemon, session)
    ledger = observe(daemon, session)
    ledger.set_calls(child.slot, 5, 3)
    daemon.processes, daemon.delay = [(0, child.pid, 340 * MIB)], 100
    daemon.write_state()
    ledger.charge(child.slot, 400 * MIB)
    time.sleep(1.2)  # the driver is slow from now on
    other.begin("settle")
    time.sleep(0.05)
    ledger.charge(child.slot, -400 * MIB)
    assert child.say("settle") == str(OK) == other.end()
    assert ledger.committed() == 340 * MIB


@pytest.fixture
def sharing(daemon, make_child):
    """The first has given back what the second has open: by the driver's figures it is the second's."""
    session = daemon.grant(vram="4")["id"]
    first, second = make_child(daemon, session), make_child(daemon, session)
    ledger = observe(daemon, session)
    ledger.set_exported(first.slot)
    first.say(f"charge {100 * MIB}")
    daemon.processes = [(0, second.pid, 100 * MIB)]
    daemon.write_state()
    return daemon, ledger, first, second


def test_memory_that_others_have_is_posted_before_it_is_uncharged(sharing):
    daemon, ledger, first, second = sharing
    assert first.say(f"leave {100 * MIB} 0") == f"{OK} 1"
    assert ledger.books(second.slot) == (0, 100 * MIB) and ledger.books(0) == (0, 0)
    assert ledger.books(first.slot) == (100 * MIB, 0), "it is the process that uncharges it"
    first.say(f"charge -{100 * MIB}")
    assert ledger.committed() == 100 * MIB
    daemon.processes = []
    daemon.write_state()
    wait_until(lambda: ledger.committed() == 0)


def test_memory_that_nobody_has_is_uncharged_at_once(sharing):
    daemon, ledger, first, second = sharing
    daemon.processes = []
    daemon.write_state()
    assert first.say(f"leave {100 * MIB} 0") == f"{OK} 1"
    assert ledger.committed() == 100 * MIB == ledger.books(first.slot)[0]


@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
def test_memory_that_somebody_may_have_stays_charged_until_it_is_known(sharing, crash):
    """He is inside a call all the time, so his figure says nothing."""
    daemon, ledger, first, second = sharing
    ledger.set_calls(second.slot, 5, 3)
    assert first.say(f"leave {100 * MIB} 0") == f"{OK} 1"
    first.say(f"charge -{100 * MIB}")
    # In two places maybe, as the second seems to have something.
    assert ledger.books(0) == (100 * MIB, 0) and ledger.committed() >= 100 * MIB
    if crash:
        daemon.restart()
    time.sleep(1.5)
    assert ledger.committed() >= 100 * MIB
    ledger.set_calls(second.slot, 5, 5)
    wait_until(lambda: ledger.books(0) == (0, 0))
    assert ledger.books(second.slot) == (0, 100 * MIB) and ledger.committed() == 100 * MIB


def test_a_slow_driver_is_not_asked_all_the_time_while_that_cannot_be_told(sharing):
    daemon, ledger, first, second = sharing
    ledger.set_calls(second.slot, 5, 3)
    daemon.delay, calls = 10, daemon.dir / "state.calls"
    daemon.write_state()
    first.kill()
    wait_until(calls.exists)
    began, before = time.monotonic(), len(calls.read_text())
    time.sleep(2)
    told = calls.read_text()[before:]
    assert 0 < len(told) * 0.01 < 0.4 * (time.monotonic() - began)
    assert told.count("g") < told.count("m") / 3, "nobody draws, so that is looked at less"


def test_memory_shared_by_a_dead_process_stays_charged(sharing):
    daemon, ledger, first, second = sharing
    ledger.set_calls(second.slot, 5, 3)
    first.kill()
    wait_until(lambda: ledger.state(first.slot) == "free")
    assert ledger.books(0) == (100 * MIB, 0) and ledger.committed() >= 100 * MIB
    ledger.set_calls(second.slot, 5, 5)
    wait_until(lambda: ledger.books(0) == (0, 0))
    assert ledger.books(second.slot) == (0, 100 * MIB) and ledger.committed() == 100 * MIB


def test_memory_shared_by_a_program_stays_charged_when_it_execs(sharing):
    """Whether the second stood still is a matter of the sample that finds the program gone, not of the one before."""
    daemon, ledger, first, second = sharing
    has_exported_it = daemon.processes
    daemon.processes = [(0, first.pid, 100 * MIB)]
    daemon.write_state()
    assert first.say("settle") == str(OK)
    ledger.set_calls(second.slot, 5, 3)
    first.say("exec")
    daemon.processes = has_exported_it
    daemon.write_state()
    wait_until(lambda: ledger.books(first.slot)[0] == 0)
    assert ledger.books(0) == (100 * MIB, 0) and ledger.committed() >= 100 * MIB
    ledger.set_calls(second.slot, 5, 5)
    wait_until(lambda: ledger.books(0) == (0, 0))
    assert ledger.books(second.slot) == (0, 100 * MIB) and ledger.committed() == 100 * MIB


def test_nothing_leaves_a_gpu_that_is_not_of_the_session(sharing):
    _, ledger, first, _ = sharing
    assert first.say(f"leave {100 * MIB} 1") == f"{MALFORMED} 0"
    # More than it ever charged is not believed.
    assert first.say(f"leave {GIB} 0") == f"{OK} 1" and ledger.books(0)[0] <= 100 * MIB


def test_a_process_that_closed_its_connection_is_charged_for_what_the_driver_lists(daemon, make_child):
    """Its connection ends by exec, too; then the driver has the memory back."""
    session, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    daemon.processes = [(0, child.pid, GIB)]
    daemon.write_state()
    assert child.say("settle") == str(OK)
    child.say("close")
    time.sleep(2.2)
    assert ledger.committed() == GIB and ledger.books(child.slot)[0] == GIB
    child.say("exec")
    daemon.processes = []
    daemon.write_state()
    wait_until(lambda: ledger.committed() == 0 and ledger.books(child.slot) == (0, 0))
    assert daemon.show(session)["pids"] == [child.pid]


def test_a_call_under_way_keeps_what_a_process_without_connection_charged(daemon, make_child):
    """The driver may list it a moment later. A program that is gone is in the middle of its last call for ever."""
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    daemon.processes = [(0, child.pid, GIB)]
    daemon.write_state()
    assert child.say("settle") == str(OK)
    ledger.set_calls(child.slot, 8, 7)
    child.say("exec")
    daemon.processes = []
    daemon.write_state()
    time.sleep(2.2)
    assert ledger.committed() == GIB
    wait_until(lambda: ledger.committed() == 0)


@pytest.mark.parametrize("how", ["close", "exec"])
def test_a_process_never_listed_is_charged_until_it_ends(daemon, make_child, how):
    """There are drivers that list no process: then nothing tells a program that closed descriptors from one that is gone."""
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    child.say(how)
    time.sleep(2.2)
    assert ledger.committed() == GIB and ledger.books(child.slot)[0] == GIB
    child.kill()
    wait_until(lambda: ledger.committed() == 0 and ledger.state(child.slot) == "free")


def test_memory_of_the_slice_is_not_counted_as_outside(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    daemon.processes = [(0, child.pid, 3 * GIB), (0, 1, 5 * GIB)]
    daemon.write_state()
    gpu = daemon.gpu()
    assert gpu["outside_bytes"] == 5 * GIB and gpu["available_bytes"] == (80 - 4 - 5) * GIB
    # Memory beyond the slice is not promised to anybody else.
    daemon.processes[0] = (0, child.pid, 6 * GIB)
    daemon.write_state()
    assert daemon.gpu()["outside_bytes"] == 7 * GIB


def test_posted_memory_stays_while_there_is_managed_memory(daemon, make_child):
    """No figure has that, so less than what was charged says nothing of what was posted."""
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {100 * MIB}")
    daemon.processes = [(0, child.pid, 340 * MIB)]
    daemon.write_state()
    wait_until(lambda: ledger.books(child.slot) == (100 * MIB, 240 * MIB))
    ledger.set_managed(child.slot)
    child.say(f"charge {1000 * MIB}")
    daemon.gpus = [(80 * GIB, 0, 1000 * MIB, "Fake H100")]
    daemon.write_state()
    assert child.say("settle") == str(OK)
    assert ledger.books(child.slot) == (1100 * MIB, 240 * MIB)
    # When it is gone, what is there tells again.
    ledger.set_managed(child.slot, 0)
    child.say(f"charge {-1000 * MIB}")
    daemon.processes = [(0, child.pid, 200 * MIB)]
    daemon.write_state()
    wait_until(lambda: ledger.books(child.slot) == (100 * MIB, 100 * MIB))


def test_managed_memory_that_is_apart_leaves_the_rest_to_figures(daemon, make_child):
    """The process says how much of what it charged no figure has."""
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {100 * MIB}")
    ledger.set_managed(child.slot, 2)
    ledger.set_managed_unlisted(child.slot, 1000 * MIB)
    child.say(f"charge {1000 * MIB}")
    daemon.processes = [(0, child.pid, 340 * MIB)]
    daemon.gpus = [(80 * GIB, 0, 1000 * MIB, "Fake H100")]
    daemon.write_state()
    wait_until(lambda: ledger.books(child.slot) == (1100 * MIB, 240 * MIB))
    assert daemon.gpu()["outside_bytes"] == 0
    daemon.processes = [(0, child.pid, 200 * MIB)]
    daemon.write_state()
    wait_until(lambda: ledger.books(child.slot) == (1100 * MIB, 100 * MIB))
    # More than it charged is not believed.
    ledger.set_managed_unlisted(child.slot, 1 << 60)
    wait_until(lambda: ledger.books(child.slot) == (1100 * MIB, 200 * MIB))


@pytest.mark.parametrize("figure,unlisted,others,outside", [
    (1, 29, 0, 0), (1, 45, 0, 16), (1, 29, 7, 7),  # a driver that has it in nobody's figure
    (1, 0, 29, 29), (1, 9, 20, 20),  # all of it, or some, is not on the GPU
    (30, 0, 5, 5), (30, 5, 0, 5),  # a driver that lists it
])
def test_managed_memory_of_a_slice_is_not_outside(daemon, make_child, figure, unlisted, others, outside):
    session = daemon.grant(vram="40")["id"]
    child = make_child(daemon, session)
    ledger = observe(daemon, session)
    ledger.set_managed(child.slot)
    child.say(f"charge {30 * GIB}")
    daemon.gpus = [(80 * GIB, 0, unlisted * GIB, "Fake H100")]
    daemon.processes = [(0, child.pid, figure * GIB), (0, 1, others * GIB)]
    daemon.write_state()
    wait_until(lambda: daemon.gpu()["used_bytes"] == (figure + unlisted + others) * GIB)
    # Of figures that take long to be had one alone is not believed.
    wait_until(lambda: daemon.gpu()["outside_bytes"] == outside * GIB)


def test_memory_beyond_the_slice_is_reported(daemon, make_child):
    """Memory taken round the front: the driver lists it, no charge was made."""
    session = daemon.grant(vram="2")["id"]
    child = make_child(daemon, session)
    daemon.processes = [(0, child.pid, 3 * GIB)]
    start = time.monotonic()
    daemon.write_state()
    time.sleep(1.5)
    over = daemon.show(session)["over_bytes"]
    if time.monotonic() - start < 3:  # else the answer may be of a time when it had lasted
        assert over == 0
    wait_until(lambda: daemon.show(session)["over_bytes"] == GIB)
    assert f"session.over id={session}" in daemon.log()
    daemon.processes = [(0, child.pid, GIB)]
    daemon.write_state()
    wait_until(lambda: daemon.show(session)["over_bytes"] == 0)


def test_a_process_beyond_the_slice_is_ended_if_the_policy_says_so(make_daemon, make_child,
                                                                     tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"over_policy": "kill", "over_tolerance": "512MiB", "over_seconds": 1}')
    daemon = make_daemon(args=["--config", config])
    session = daemon.grant(vram="2")["id"]
    child = make_child(daemon, session)
    daemon.processes = [(0, child.pid, 2 * GIB + 500 * MIB)]
    daemon.write_state()
    time.sleep(2.5)
    assert child.process.poll() is None  # within the tolerance
    config.write_text('{"over_policy": "hang"}')
    daemon.reload()
    wait_until(lambda: "config.refused" in daemon.log())  # and what held goes on holding
    daemon.processes = [(0, child.pid, 3 * GIB)]
    daemon.write_state()
    assert child.process.wait(60) == -signal.SIGKILL
    # A user who asks why finds it.
    assert "session.over_killed event=" in daemon.log()
    assert f'subject="session {session}"' in daemon.log() and f"over_policy ended process {child.pid}:" in daemon.log()
    config.write_text("{}")
    daemon.restart()
    daemon.release(session)
    shown = daemon.show(session)
    assert (shown["over_killed"], shown["over_killed_bytes"], shown["state"]) == (1, GIB, "ended")


@pytest.mark.parametrize("whose", ["own", "another", "ended"])
def test_only_what_another_session_exported_is_inherited(make_daemon, make_child, tmp_path, whose):
    """Memory that a session's own processes gave back it had in its slice: it is no excuse for what goes beyond that."""
    config = tmp_path / "config.json"
    config.write_text('{"over_policy": "kill", "over_seconds": 1}')
    daemon = make_daemon(args=["--config", config])
    session = daemon.grant(vram="2")["id"]
    theirs = session if whose == "own" else daemon.grant(vram="8")["id"]
    exporter, child = make_child(daemon, theirs), make_child(daemon, session)
    observe(daemon, theirs).set_exported(exporter.slot)
    assert exporter.say(f"charge {GIB + GIB // 2}") == "ok"
    # Whatever it writes about itself, it was granted no more.
    observe(daemon, theirs).add_used(exporter.slot, 64 * GIB)
    daemon.processes = [(0, child.pid, GIB)]
    daemon.write_state()
    exporter.kill()
    wait_until(lambda: "process.ended" in daemon.log())
    if whose == "ended":
        daemon.call("DELETE", f"/v1/sessions/{theirs}?force=1")
    daemon.processes = [(0, child.pid, (3 if whose != "ended" else 12) * GIB)]
    daemon.write_state()
    if whose == "another":
        wait_until(lambda: "session.over " in daemon.log())
        time.sleep(2)
        assert child.process.poll() is None
        return
    assert child.process.wait(60) == -signal.SIGKILL
    assert daemon.show(session)["over_killed"] == 1


@pytest.mark.long
def test_a_driver_that_fails_takes_nobodys_excuse(make_daemon, make_child, tmp_path):
    """A session still has the memory that it inherited when the driver answers again."""
    config = tmp_path / "config.json"
    config.write_text('{"over_policy": "kill", "over_seconds": 1}')
    daemon = make_daemon(args=["--config", config])
    session, theirs = daemon.grant(vram="2")["id"], daemon.grant(vram="8")["id"]
    exporter, child = make_child(daemon, theirs), make_child(daemon, session)
    observe(daemon, theirs).set_exported(exporter.slot)
    assert exporter.say(f"charge {GIB + GIB // 2}") == "ok"
    exporter.kill()
    daemon.processes = [(0, child.pid, 3 * GIB)]
    daemon.write_state()
    wait_until(lambda: daemon.show(session)["over_bytes"])
    time.sleep(4)  # longer than what was left is waited for
    daemon.failing = True
    daemon.write_state()
    time.sleep(2.5)
    daemon.failing = False
    daemon.write_state()
    time.sleep(4)
    assert child.process.poll() is None
    assert daemon.show(session)["over_bytes"] == GIB


def test_policy_waits_out_what_the_driver_reports_late(make_daemon, make_child, tmp_path):
    """A moment's figure beyond the slice ends nobody: it has to be there each time, and for so long."""
    config = tmp_path / "config.json"
    config.write_text('{"over_policy": "kill", "over_seconds": 30}')
    daemon = make_daemon(args=["--config", config])
    session = daemon.grant(vram="2")["id"]
    child = make_child(daemon, session)
    for figure in (3 * GIB, 2 * GIB) * 3:
        daemon.processes = [(0, child.pid, figure)]
        daemon.write_state()
        time.sleep(1.2)
    assert child.process.poll() is None and "session.over" not in daemon.log()
    assert child.say("settle") == str(OK)
    assert daemon.show(session)["over_bytes"] == 0
