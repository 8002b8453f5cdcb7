"""The session's gate as the front sees it, over the null driver: front_host plays the daemon (front_gate.h)."""
import json
import os
import pathlib

import pytest

from conftest import BUILD, clean_env, rest_long, run
from front_host import FRONTS, NULL_DRIVER
from programs import python

MS = 1_000_000


def through(plan, ms, *args, answer="ok", program="gate_launch"):
    """(what the program says, what the gate's owner saw)"""
    done = run([BUILD / "tests/programs/front_host", "--gate", plan, "--answer", answer, "--preload",
                ":".join(map(str, FRONTS)), "--", BUILD / "tests/programs" / program, str(ms), *map(str, args)],
               env=clean_env({"CARVE_DRIVER_CUDA": str(NULL_DRIVER)}), timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), json.loads(done.stderr.splitlines()[-1])["gate"]


@pytest.mark.parametrize("plan", ["off", "open", "contended"])
@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_lets_pass(plan):
    program, gate = through(plan, 200)
    assert program["launches"] > 1000
    assert gate["waits"] == gate["woken"] == gate["closes"] == 0


@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
@pytest.mark.parametrize("plan", ["off", "open", "contended", "open:5,@contended:1,open:1,idle:1,closed:1,open:1"])
def test_arguments_results_and_the_stack_pass_through(plan):
    done = run([BUILD / "tests/programs/front_host", "--gate", plan, "--preload", ":".join(map(str, FRONTS)), "--",
                BUILD / "tests/programs/gate_entry", "300"],
               env=clean_env({"CARVE_DRIVER_CUDA": str(NULL_DRIVER)}), timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_closed_waits_and_tells_the_daemon():
    program, gate = through("closed:waiting,closed:150,open", 100)
    assert program["longest_ns"] > 100 * MS
    assert (gate["waits"], gate["woken"], gate["leaked"]) == (1, 1, 0)
    assert gate["wait_ns"] > 100 * MS


@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_idle_lease_is_taken_up_again_without_waiting():
    program, gate = through("contended:50,idle:50,@contended:5,idle:5", 300)
    assert gate["woken"] > 0
    assert gate["waits"] == 0


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_nothing_passes_a_closed_gate(threads):
    program, gate = through("open:20,@closed:3,contended:3,closed:3,open:3", 500, threads)
    assert gate["drained"] > 0
    assert gate["waits"] > 0
    assert (gate["leaked"], gate["given_up"]) == (0, 0)


@pytest.mark.parametrize("state", ["open", "contended"])
@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_a_launch_that_the_gate_closed_on_is_marked_when_it_returns(state):
    """Its thread does something else then. Until the marker is in, the gate's owner waits for it: it could close the gate
    once for each launch, if the helper looked no more, and can tens of times."""
    program, gate = through(f"@{state}:20,closed:1", 3, program="gate_late")
    assert program["launches"] == 3 and gate["leaked"] == 0
    assert gate["closes"] > 9, gate


@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_forked_child_has_a_record_of_its_own():
    program, gate = through("open:20,@closed:3,contended:3,closed:3,open:3", 500, 1, "fork")
    assert program["launches"] > 1000
    assert gate["waits"] > 0 and gate["registered"] == 2
    assert (gate["leaked"], gate["given_up"]) == (0, 0)


@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
def test_opens_by_itself_where_the_daemon_is_gone():
    """The daemon leaves a closed gate behind: the program goes on after about a second."""
    program, gate = through("closed", 3000, answer="leave")
    assert program["launches"] > 1000
    assert 900 * MS < gate["wait_ns"] < 10_000 * MS


def driver_of(host):
    """The simulated driver's own library."""
    return next(path for path in (pathlib.Path(d, "libcuda.so.1") for d in host.env["LD_LIBRARY_PATH"].split(":"))
                if path.exists()).resolve()


def on_sim(host, plan, *argv):
    """(the program's output, what the gate's owner saw)"""
    done = host.run([BUILD / "tests/programs/front_host", "--limit", str(60 << 30), "--uuid",
                     host.stat()["gpus"][0]["uuid"], "--gate", plan, "--preload", FRONTS[0], "--", *argv],
                    env={"CARVE_DRIVER_CUDA": str(driver_of(host))}, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr.splitlines()[-1])["gate"]


def seeds():
    """scripts/soak asks for more: FIRST-LAST."""
    first, last = map(int, os.environ.get("CARVE_GATE_SEEDS", "4-6").split("-"))
    return range(first, last + 1)


@pytest.mark.parametrize("seed", seeds())
def test_random_program_ends_and_computes_the_same(make_host, seed):
    """Streams of all kinds, events, captures, graphs, host functions, words that streams wait for; a gate at random."""
    host = make_host("h100-80gb")
    program = [BUILD / "tests/programs/gate_stress", str(seed), "3", "100"]
    direct = host.run(program, timeout=60)
    assert direct.returncode == 0, direct.stderr
    through_gate, gate = on_sim(host, f"random:{seed}", *program)
    assert through_gate == direct.stdout, f"seed {seed}"
    assert gate["leaked"] == 0 and gate["drained"] > 0


COPIES = [(how, kinds, "w" in kinds)
          for how in ("cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync_ptsz", "cuMemcpyBatchAsync_v2_ptsz", "cuMemcpy3DBatchAsync",
                      "cuMemcpy3DBatchAsync_v2", "cuMemcpy3DBatchAsync_v2_ptsz", "cuMemcpyWithAttributesAsync", "cuMemcpyWithAttributesAsync_ptsz",
                      "cuMemcpy3DWithAttributesAsync", "cuMemcpy3DWithAttributesAsync_ptsz")
          for kinds in (("w", "fw", "wf", "ftw", "fft", "t") if how == "cuMemcpyBatchAsync_v2" else ("fw", "ft"))]


@pytest.mark.once("the front's gate, beside a stand-in for the daemon")
@pytest.mark.parametrize("how, kinds, waits", COPIES)
def test_copies_wait_for_the_gate_if_any_of_them_is_within_the_gpu(make_host, how, kinds, waits):
    """Copies between the host and the GPU hardly disturb, and pass. A batch has one word for all of its copies."""
    _, gate = on_sim(make_host("h100-80gb", "615"), "closed:waiting,open", *python("gate_copies", how, kinds))
    assert (gate["waits"] > 0, gate["leaked"]) == (waits, 0)


@pytest.mark.parametrize("mode", rest_long(["global", "thread", "relaxed"]))
def test_nothing_of_the_front_gets_into_a_capture(make_host, mode):
    """Markers are put into streams by another thread: not into one in which a capture is just beginning."""
    captures, gate = on_sim(make_host("h100-80gb"), "contended", BUILD / "tests/programs/capture_beside", "3", mode)
    assert int(captures) > 100 and gate["leaked"] == 0


def test_streams_without_a_record_are_not_asked_about_when_they_are_gone(make_host):
    streams, gate = on_sim(make_host("h100-80gb"), "contended", BUILD / "tests/programs/stream_churn", "4")
    assert int(streams) > 100 and gate["leaked"] == 0


@pytest.mark.parametrize("streams", [1, 8])
def test_nothing_is_queued_behind_a_first_kernel_of_unknown_length(make_host, streams):
    """A newcomer's turn would be outstayed by the whole queue, and its neighbours would miss as much of their shares."""
    _, gate = on_sim(make_host("h100-80gb"), "contended", BUILD / "tests/programs/share_client", "--kernel-us", "250000",
                     "--streams", streams, "--sync-every", "64", "--seconds", "0.5")
    # Another one as the first is about to end: then it is known how long it takes.
    assert 1 <= gate["in_flight_most"] <= 2


@pytest.mark.timed
def test_a_launch_that_waits_for_later_work_is_submitted_soon(make_host):
    """Nothing that is in flight ends before all is: what passes then without room doubles."""
    host = make_host("h100-80gb")
    program = BUILD / "tests/programs/enqueue_behind", "200"
    direct = host.run(program, timeout=60)
    assert direct.returncode == 0, direct.stderr
    took, gate = on_sim(host, "contended", *program)
    # Most of both is what filling memory takes this machine.
    assert float(took) < 1.5 * float(direct.stdout) + 3 and gate["leaked"] == 0, (took, direct.stdout)
