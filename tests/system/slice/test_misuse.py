"""Programs that treat the process which they share with the front in unusual ways: none is the worse for it, none gets
past its slice, and the books stay those of the driver (`carve sim stat`)."""
import os
import pathlib
import re
import signal
import time

import pytest

from conftest import BUILD, rest_long, wait_until
from in_slice import context_bytes, pieces_in

MIB = 1 << 20
GIB = 1 << 30
PIECE = 20 * MIB
VRAM = 3 * GIB
NOT_INITIALIZED = 3
PROGRAM = BUILD / "tests/programs/misuse"


class Case:
    """One case of the program in a session of its own; lines that it prints are read one by one."""

    def __init__(self, host, *argv):
        self.host = host
        self.context = context_bytes(host)
        self.session = host.carve_json("session", "request", "--vram", "3")["id"]
        self.process = host.popen([BUILD / "carve", "run", "--session", self.session, "--", PROGRAM, *argv], stdin=-1)

    def line(self):
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate()
        return line

    def ready(self):
        assert self.line() == "ready"

    def go_on(self):
        self.process.stdin.write("x")
        self.process.stdin.flush()

    def end(self, code=0):
        """It says nothing more, ends as it should, and the slice is whole again."""
        out, err = self.process.communicate("x", timeout=60)
        assert (self.process.returncode, out) == (code, ""), err
        self.is_whole()

    def is_whole(self):
        wait_until(lambda: self.shown() == (0, []) and self.driver() == 0)
        assert self.host.stat()["gpus"][0]["memory_peak_bytes"] <= VRAM
        done = self.host.carve("run", "--session", self.session, "--", PROGRAM, "child")
        assert done.returncode == 0, done.stderr
        self.child_had_all(done.stdout, VRAM - self.context)

    def child_had_all(self, line, room):
        """What its one line says: so many pieces of so many that its room had place for."""
        had, of = re.fullmatch(r"child (\d+) of (\d+)\n?", line).groups()
        assert had == of and int(had) == pieces_in(self.host, room, 100 * MIB)

    def fit(self, contexts, more=0):
        """So many of its pieces fit beside that."""
        return pieces_in(self.host, VRAM - contexts * self.context - more, PIECE)

    def shown(self):
        session = self.host.carve_json("session", "show", self.session)
        assert session["stray_pids"] == [] and session["over_bytes"] == 0
        return session["gpus"][0]["used_bytes"], session["pids"]

    def driver(self):
        return self.host.stat()["gpus"][0]["memory_used_bytes"]

    def agrees(self):
        """Both books have the same, now or within the second in which the daemon compares them."""
        wait_until(lambda: self.shown()[0] == self.driver())


@pytest.fixture
def case(host):
    return lambda *argv: Case(host, *argv)


@pytest.mark.parametrize("how", ["vfork", "posix-spawn"])
def test_children_that_use_the_gpu_beside_their_parent(case, how):
    c = case(how)
    for _ in range(3):
        c.child_had_all(c.line(), VRAM - 2 * c.context - 300 * MIB)
    c.ready()
    c.agrees()
    c.end()


def test_a_process_that_shares_a_dead_ones_memory(case):
    """It holds neither the connection nor what the driver gave: that is given back, however long it lives."""
    c = case("shared-memory")
    c.ready()
    c.agrees()
    c.go_on()
    child = int(c.line())
    assert c.process.wait(60) != 0
    wait_until(lambda: c.driver() == 0)
    wait_until(lambda: c.shown() == (0, []))
    os.kill(child, signal.SIGKILL)
    c.is_whole()


def test_a_process_of_the_same_memory_calls_the_driver(case):
    """It is told that it may not, or it may: it is not kept waiting, and leaves no trace."""
    c = case("sibling")
    assert set(map(int, c.line().split())) in ({0}, {NOT_INITIALIZED})
    c.ready()
    c.agrees()
    c.go_on()
    assert int(c.line()) == c.fit(1, 100 * MIB)
    c.ready()
    c.agrees()
    c.end()


def test_a_process_whose_first_thread_has_ended_lives_for_the_next_daemon_too(case):
    c = case("first-thread")
    c.ready()
    c.agrees()
    held = c.shown()
    pid, = held[1]
    status = pathlib.Path(f"/proc/{pid}/stat")
    wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z")
    daemon = c.host.daemon_pid()
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not pathlib.Path(f"/proc/{daemon}").exists())
    assert c.shown() == held and c.driver() == held[0]
    time.sleep(1.5)
    assert c.shown() == held and c.driver() == held[0]
    c.go_on()
    assert int(c.line()) == c.fit(1, 300 * MIB)
    c.ready()
    c.agrees()
    assert c.shown()[1] == [pid]
    c.end()


def test_a_daemon_of_its_own_is_in_the_slice(case):
    c = case("daemonised")
    pid = int(c.line())
    c.ready()
    c.agrees()
    assert c.shown() == (c.driver(), [pid]) and VRAM - PIECE < c.driver() <= VRAM
    os.kill(pid, signal.SIGKILL)
    c.end()


@pytest.mark.parametrize("how", ["close", "read", "write"])
def test_other_files_in_place_of_the_fronts_descriptors(case, how):
    c = case("over-descriptors", how)
    c.ready()
    c.agrees()
    c.go_on()
    assert int(c.line()) == c.fit(2, 300 * MIB)
    c.ready()
    c.agrees()
    c.end()


def test_all_descriptors_closed(case):
    """The driver's too, which then takes all back. The slice has it again when the process ends: no sooner, no less."""
    c = case("closed-all")
    c.ready()
    wait_until(lambda: c.driver() == 0)
    c.go_on()
    c.ready()
    assert c.shown()[0] <= c.context + 300 * MIB
    c.end()


@pytest.mark.once("the front's dealings; the daemon's are in the others")
@pytest.mark.parametrize("most", rest_long([3, 6, 9, 20, 5, 7, 8, 50], 4))
def test_few_descriptors_from_the_start(case, most):
    """It gets its slice, or nothing."""
    c = case("few-descriptors", most)
    result, pieces = map(int, c.line().split())
    assert pieces == (0 if result else c.fit(1))
    assert most < 20 or result == 0
    c.ready()
    c.agrees()
    c.end()


def test_no_descriptors_left(case):
    c = case("few-descriptors", 3, "late")
    assert c.line().startswith("0 ")
    c.ready()
    c.agrees()
    c.end()


@pytest.mark.once("the front's dealings; the daemon's are in the others")
@pytest.mark.parametrize("kib", rest_long([0, 1024, 64, 4096], 2))
def test_no_address_space_left(case, kib):
    c = case("little-memory", kib)
    count, before, after = map(int, c.line().split())
    assert before == after
    c.ready()
    c.agrees()
    c.end()


@pytest.mark.once("the front's dealings; the daemon's are in the others")
@pytest.mark.parametrize("how", ["blocked", "interrupting"])
def test_signals(case, how):
    c = case("signals", how)
    assert int(c.line()) == c.fit(1)
    c.ready()
    c.agrees()
    c.end()


def test_another_root_directory(case):
    c = case("changed-root")
    line = c.line()
    if line == "no":
        pytest.skip("needs to be root")
    assert int(line) == c.fit(2)
    c.ready()
    c.agrees()
    c.end()


def test_system_calls_that_fail(case):
    """A sandbox for what the driver does once it runs."""
    c = case("filtered")
    assert int(c.line()) == c.fit(2)
    c.ready()
    c.agrees()
    c.end()
