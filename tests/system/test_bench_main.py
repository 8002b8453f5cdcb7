"""scripts/bench as a program: its options, what it leaves behind, and what it prints where."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

import bad_peers
import results_schema
from conftest import BUILD, ON_GPU, ROOT, clean_env, wait_until
from test_bench_calls import bench, sanitized

sys.path.insert(0, str(ROOT))
from bench import main  # noqa: E402: found by the line above

PEER = BUILD / "bench/libexample_peer.so"
VIEW = ("limits", "--quick", "--check", "view")

pytestmark = [pytest.mark.skipif(ON_GPU, reason="runs on simulated hosts"),
              pytest.mark.once("a benchmark")]


def living(mark):
    """The processes with that in their environment."""
    found = []
    for proc in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (proc / "environ").read_bytes() and "Z" not in (proc / "stat").read_text().rpartition(")")[2][:3]:
                found.append(f"{proc.name} {(proc / 'comm').read_text().strip()}")
        except OSError:
            pass  # gone, or another user's
    return found


class AtTerminal:
    """scripts/bench in a terminal of its own."""

    def __init__(self, folder, *args):
        self.folder, self.said = folder, b""
        self.mark = f"BENCH_TEST_MARK={folder}".encode()
        env = clean_env({"TMPDIR": str(folder), "BENCH_TEST_MARK": str(folder)})
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(ROOT / "scripts/bench", ["scripts/bench", "--build", str(BUILD), *args], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 400, 0, 0))

    def read(self, timeout):
        """What it says meanwhile; False at the end."""
        if select.select([self.fd], [], [], timeout)[0]:
            try:
                self.said += os.read(self.fd, 65536)
            except OSError:
                return False
        return True

    def wait_for(self, words):
        end = time.monotonic() + 150
        while words not in self.said:
            assert time.monotonic() < end and self.read(0.1), self.said

    def end(self):
        end = time.monotonic() + 60
        while self.read(0.1):
            assert time.monotonic() < end, self.said
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize("args, words", [
    (["shares", "--scenario", "25-75"], b"25-75, carve"), (["limits"], b"none: race"),
    (["calls", "--quick"], b"round 2 of 5"), (["scale", "--quick"], b"sessions")])
def test_control_c_leaves_nothing(tmp_path, args, words):
    at = AtTerminal(tmp_path, *args)
    at.wait_for(words)
    wait_until(lambda: len(living(at.mark)) > 2)
    os.write(at.fd, b"\x03")
    assert at.end() == 128 + signal.SIGINT
    assert b"Traceback" not in at.said
    wait_until(lambda: not living(at.mark), timeout=20)
    assert [p.name for p in tmp_path.iterdir()] == []


def test_a_pipe_gets_the_table_alone(tmp_path):
    done = bench("limits", "--quick", "--check", "view", "--json", tmp_path / "out.json")
    assert done.returncode == 0 and done.stderr == "" and "\r" not in done.stdout and "\033" not in done.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert {r["check"] for r in document["rows"]} == {"view"}
    results_schema.check({"schema": "carve-bench/1", "parts": [document]})


def test_the_schema_refuses_what_is_wrong(tmp_path):
    """Or the checks of it would be worth nothing."""
    done = bench("limits", "--quick", "--check", "view", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    for spoil in (lambda d: d.pop("load"), lambda d: d["rows"][0].pop("pass"), lambda d: d.update(part="shares"),
                  lambda d: d["rows"][1].update(check="x"), lambda d: d["machine"].update(cores="2")):
        document = json.loads((tmp_path / "out.json").read_text())
        spoil(document)
        assert results_schema.wrong(document, results_schema.SCHEMA) != []


def test_a_terminal_is_told_what_goes_on(tmp_path):
    at = AtTerminal(tmp_path, "limits", "--quick", "--check", "view")
    assert at.end() == 0
    assert b"\r\033[Klimits: carve: view, all (1 of 1)" in at.said and b"2 of 2" not in at.said


@pytest.mark.parametrize("args, words", [
    (["nonsense"], "nonsense"), (["--nonsense"], "--nonsense"), (["calls", "limits"], "limits"),
    (["--peer", "nothing"], "--peer nothing"), (["--peer", "x=/no/such.so"], "/no/such.so"),
    (["--peer", "x=/"], "x=/"), (["--peer", "carve=/etc/passwd"], "the name carve is taken"),
    (["--peer", f"x={PEER}", "--peer", f"x={PEER}"], "the name x is taken"),
    (["--peer", "x=/etc/passwd"], "not a library: no ELF file"), (["--peer", "x=/dev/null"], "/dev/null"),
    (["--peer-env", "A=1"], "after a --peer"), (["--peer", f"x={PEER}", "--peer-env", "A"], "--peer-env A"),
    (["limits", "--json", "/tmp"], "--json /tmp: cannot be written"),
    (["limits", "--json", "/proc/x.json"], "--json /proc/x.json: cannot be written"),
    (["limits", "--svg", "/sys/x.svg"], "--svg /sys/x.svg: cannot be written"),
    (["limits", "--markdown", "/etc/passwd/x.md"], "/etc/passwd/x.md"),
    (["limits", "--json", "/tmp/carve-same", "--markdown", "/tmp/./carve-same"], "--json goes there already"),
    (["shares", "--seconds", "nan"], "nan"), (["shares", "--blocks", "0"], "0"), (["limits", "--check", "x"], "x"),
    (["calls", "--json", "/no/such/folder/out.json"], "/no/such/folder"),
    (["calls", "--build", "/no/such"], "/no/such"), (["--guard", "--bounds", "/no/such.json"], "/no/such.json")])
def test_wrong_usage_is_one_line_and_exit_2(args, words):
    done = subprocess.run([ROOT / "scripts/bench", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=30, env=clean_env(), check=False)
    assert done.returncode == 2 and done.stdout == ""
    *_, last = done.stderr.splitlines()
    assert last.startswith("scripts/bench: error: ") and words in last and len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_a_peer_for_another_machine_is_refused(tmp_path):
    foreign = bad_peers.other_machine(tmp_path, PEER).library
    done = bench("limits", "--peer", f"x={foreign}")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"--peer x={foreign}: a library for another kind of machine" in done.stderr


def test_an_output_that_fails_at_the_end_costs_no_other(tmp_path):
    """A device that is full says so only when it is written to."""
    done = bench(*VIEW, "--svg", "/dev/full", "--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md")
    assert done.returncode == 1 and "view" in done.stdout
    assert done.stderr == "scripts/bench: --svg /dev/full: not written: No space left on device\n"
    results_schema.check(json.loads((tmp_path / "out.json").read_text()))
    assert "| view |" in (tmp_path / "out.md").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "out.md"]


def test_old_results_stay_until_there_are_new_ones(tmp_path):
    """Whether it is refused, cut off or whole; and a link stays one, a file's mode its own."""
    kept, link = tmp_path / "old.json", tmp_path / "link.json"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    assert bench(*VIEW, "--json", kept, "--markdown", tmp_path).returncode == 2
    assert kept.read_text() == "old"
    (tmp_path / "scratch").mkdir()
    at = AtTerminal(tmp_path / "scratch", "limits", "--json", str(kept))
    at.wait_for(b"none: race")
    assert kept.read_text() == "old"
    os.write(at.fd, b"\x03")
    assert at.end() == 128 + signal.SIGINT and kept.read_text() == "old"
    assert bench(*VIEW, "--json", link).returncode == 0
    assert json.loads(kept.read_text())["part"] == "limits" and kept.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "old.json", "scratch"] and link.is_symlink()


def test_the_usage_at_its_head_names_every_part():
    head = (ROOT / "scripts/bench").read_text().split('"""')[1]
    assert all(part in head for part in main.PARTS)
    told = bench("--help").stdout
    assert all(option in told for option in re.findall(r"--[a-z-]+", head))
