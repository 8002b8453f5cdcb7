"""Linear memory and contexts in a slice, over the null driver and a stand-in for the daemon (front_host)."""
import contextlib
import socket

import pytest

from conftest import BUILD, clean_env, run
from front_host import FRONTS, NULL_DRIVER, in_slice

pytestmark = pytest.mark.once("the front beside a stand-in for the daemon: neither is instrumented")

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize("check", ["view", "small", "small-misfit", "family", "rollback", "threads", "fork", "killed"])
def test_check(check):
    status, lines, books = in_slice(check)
    assert (status, lines) == (0, [])
    assert books["committed"] == 0
    assert 0 < books["peak"] <= GIB


@pytest.mark.parametrize("check", ["pool", "pool-limit", "pool-on-host", "pool-managed", "vmm", "array", "graph"])
def test_family(check):
    status, lines, books = in_slice(check, program="front_families")
    assert (status, lines) == (0, [])
    assert books["committed"] == 0
    assert books["peak"] <= GIB


@pytest.mark.parametrize("keeper", ["array", "multicast", "address", "handle", "multicast-v2", "address-v2", "endpoint", "endpoint-address"])
def test_the_driver_is_asked_whether_it_keeps_memory_that_was_given_back(keeper):
    """A sparse array, a multicast object or a handle that is not CUDA's may hold memory of which nothing else is left."""
    settles = {}
    for check in ("nobody", keeper):
        status, lines, books = in_slice(f"kept-by-{check}", program="front_families")
        assert (status, lines, books["committed"]) == (0, [], 0)
        settles[check] = books["settles"]
    assert settles[keeper] > settles["nobody"]


def test_exact_at_the_limit():
    status, lines, books = in_slice("exact")
    assert (status, lines) == (0, [])
    assert books == {"attached": 1, "settles": 1, "committed": 0, "peak": GIB, "refused": 4}


def test_context_is_charged_and_settled():
    status, lines, books = in_slice("context", "--context", 100 * MIB, "--settled", 20 * MIB)
    assert (status, lines) == (0, [])
    assert books["committed"] == 0


def test_limit_holds_where_the_daemon_is_gone():
    status, lines, books = in_slice("alone", "--answer", "leave")
    assert (status, lines) == (0, [])
    assert books == {"attached": 1, "settles": 0, "committed": GIB, "peak": GIB, "refused": 1}


def test_a_slice_that_is_smaller_than_what_it_holds():
    status, lines, books = in_slice("over", "--answer", "shrink")
    assert (status, lines) == (0, [])
    assert (books["peak"], books["refused"]) == (800 * MIB, 2)


def test_context_that_does_not_fit_is_refused():
    status, lines, books = in_slice("context-too-big", "--context", 2 * GIB)
    assert (status, lines) == (0, [])
    assert books["refused"] == 2


def test_context_that_turns_out_too_big_is_undone():
    status, lines, books = in_slice("context-too-big", "--settled", 2 * GIB)
    assert (status, lines) == (0, [])
    # Posted beyond the limit and undone: nothing that the slice ever had.
    assert books["peak"] == 0


@pytest.mark.parametrize("answer, why", [
    ("refuse", "session s-test ended"),
    ("silent", "the daemon did not answer"),
    ("unsealed", "the daemon's ledger is unusable"),
    ("newer", "the daemon is of another version"),
    ("older", "the daemon is of another version"),
    ("newer-attach", "this carved speaks version 2"),
])
def test_fails_closed_and_says_why_once(answer, why):
    status, lines, _ = in_slice("closed", "--answer", answer)
    assert status == 0
    assert len(lines) == 1 and lines[0].startswith("carve: ") and why in lines[0]


def test_a_newer_ledger_that_this_front_understands_is_used():
    status, lines, books = in_slice("exact", "--answer", "newer-compatible")
    assert (status, lines) == (0, [])
    assert (books["peak"], books["refused"]) == (GIB, 4)


def test_without_a_session_fails_closed():
    done = run([BUILD / "tests/programs/front_memory", "closed"],
               env=clean_env({"LD_PRELOAD": str(FRONTS[0]), "CARVE_DRIVER_CUDA": str(NULL_DRIVER)}))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1 and "no session" in done.stderr


def test_daemon_that_is_not_there_fails_closed(tmp_path):
    done = run([BUILD / "tests/programs/front_memory", "closed"],
               env=clean_env({"LD_PRELOAD": str(FRONTS[0]), "CARVE_DRIVER_CUDA": str(NULL_DRIVER),
                              "CARVE_SESSION": "s-test", "CARVE_ATTACH": str(tmp_path / "attach.sock")}))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1 and "cannot be reached" in done.stderr


# Interrupts every system call of its own that does not begin again by itself.
INTERRUPTED = """
import ctypes, signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0)
print(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
signal.setitimer(signal.ITIMER_REAL, 0)  # an interpreter that ends handles no signals any more
"""


@pytest.mark.parametrize("queue, program, why", [
    ("full", [BUILD / "tests/programs/front_memory", "closed"], "cannot be reached"),
    ("empty", ["/usr/bin/python3", "-c", INTERRUPTED], "did not answer")], ids=["full", "empty"])
def test_a_daemon_that_hangs_is_not_waited_for_for_ever(tmp_path, queue, program, why):
    """A socket that nobody accepts from, with room for connections or without."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(str(tmp_path / "attach.sock"))
        listener.listen(0 if queue == "full" else 100)
        with contextlib.suppress(BlockingIOError):
            while queue == "full":
                one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
                one.connect(str(tmp_path / "attach.sock"))
        done = run(program, env=clean_env({"LD_PRELOAD": str(FRONTS[0]), "CARVE_DRIVER_CUDA": str(NULL_DRIVER),
                                           "CARVE_SESSION": "s-test", "CARVE_ATTACH": str(tmp_path / "attach.sock")}))
    assert done.returncode == 0 and done.stdout in ("", "2\n"), done.stdout + done.stderr
    assert done.stderr.count("\n") == 1 and why in done.stderr
