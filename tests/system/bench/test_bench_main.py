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
from benchmark import bench, refused

sys.path.insert(0, str(ROOT))
from bench import host, main, part_limits, part_scale  # noqa: E402: found by the line above

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
@pytest.mark.long
def test_control_c_leaves_nothing(tmp_path, args, words):
    at = AtTerminal(tmp_path, *args)
    at.wait_for(words)
    wait_until(lambda: len(living(at.mark)) > 2)
    os.write(at.fd, b"\x03")
    assert at.end() == 128 + signal.SIGINT
    assert b"Traceback" not in at.said
    wait_until(lambda: not living(at.mark), timeout=60)
    assert [p.name for p in tmp_path.iterdir()] == []


def test_a_pipe_gets_the_table_alone(tmp_path):
    """And the file what the schema says, which refuses what is wrong, or the checks of it would be worth nothing."""
    done = bench("limits", "--quick", "--check", "view", "--json", tmp_path / "out.json")
    assert done.returncode == 0 and done.stderr == "" and "\r" not in done.stdout and "\033" not in done.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert {r["check"] for r in document["rows"]} == {"view"}
    results_schema.check({"schema": "carve-bench/1", "complete": False, "parts": [document]})
    for spoil in (lambda d: d.pop("load"), lambda d: d["rows"][0].pop("pass"), lambda d: d.update(part="shares"),
                  lambda d: d["rows"][1].update(check="x"), lambda d: d["machine"].update(cores="2")):
        document = json.loads((tmp_path / "out.json").read_text())
        spoil(document)
        assert results_schema.wrong(document, results_schema.SCHEMA) != []


@pytest.mark.long
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
def test_wrong_usage_is_one_line_and_exit_2(capsys, args, words):
    *others, last = refused(capsys, *args)
    assert last.startswith("scripts/bench: error: ") and words in last and len(others) <= 1


def test_wrong_usage_of_the_program_is_one_line_and_exit_2():
    done = bench("--nonsense")
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("scripts/bench: error: ") and "--nonsense" in done.stderr


def test_a_peer_for_another_machine_is_refused(tmp_path, capsys):
    foreign = bad_peers.other_machine(tmp_path, PEER).library
    line, = refused(capsys, "limits", "--peer", f"x={foreign}")
    assert f"--peer x={foreign}: a library for another kind of machine" in line


ONE_DRIVER = """
#include <dlfcn.h>
__attribute__((constructor)) static void begin(void)
{
	void *first = dlopen("libcuda.so.1", RTLD_LAZY), *second = dlopen("libcuda.so", RTLD_LAZY);

	if (!first || first != second)
		__builtin_trap();
}
"""


def test_a_peer_gets_the_null_driver_by_either_name(tmp_path, monkeypatch):
    """Where the simulated one has both, too."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(BUILD / "sim"))
    direct = host.direct(BUILD)
    peer = host.through_peer(BUILD, direct, bad_peers.compiled(tmp_path, "one", ONE_DRIVER), tmp_path)
    assert peer.broken is None and str(tmp_path) not in direct.env["LD_LIBRARY_PATH"]


def test_an_output_that_fails_at_the_end_costs_no_other(tmp_path):
    """A device that is full says so only when it is written to."""
    done = bench(*VIEW, "--svg", "/dev/full", "--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md")
    assert done.returncode == 1 and "view" in done.stdout
    assert done.stderr == "scripts/bench: --svg /dev/full: not written: No space left on device\n"
    results_schema.check(json.loads((tmp_path / "out.json").read_text()))
    assert "| view |" in (tmp_path / "out.md").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "out.md"]


@pytest.mark.long
def test_old_results_stay_until_there_are_new_ones(tmp_path):
    """Whether it is refused, cut off or whole; and a link stays one, a file's mode its own."""
    kept, link = tmp_path / "old.json", tmp_path / "link.json"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    assert bench(*VIEW, "--json", kept, "--markdown", tmp_path).returncode == 2
    assert kept.read_text() == "old"
    (tmp_path / "scratch").mkdir()
    at = AtTerminal(tmp_path / "scratch", "calls", "--json", str(kept))
    at.wait_for(b"round 2 of 61")
    assert kept.read_text() == "old"
    os.write(at.fd, b"\x03")
    assert at.end() == 128 + signal.SIGINT and kept.read_text() == "old"
    assert bench(*VIEW, "--json", link).returncode == 0
    assert json.loads(kept.read_text())["part"] == "limits" and kept.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "old.json", "scratch"] and link.is_symlink()


@pytest.mark.parametrize("args, row", [(["limits"], "family"), (["shares", "--quick", "--seconds", "1"], "25-75")])
@pytest.mark.long
def test_a_run_that_is_ended_has_what_was_measured(tmp_path, args, row):
    """In its files, all the time; and as a table, at the end."""
    paths = {kind: tmp_path / f"out.{kind}" for kind in ("json", "svg", "md")}
    (tmp_path / "scratch").mkdir()
    at = AtTerminal(tmp_path / "scratch", *args, "--json", str(paths["json"]), "--svg", str(paths["svg"]),
                    "--markdown", str(paths["md"]))

    def seen():
        document = json.loads(paths["json"].read_text())
        results_schema.check(document)
        assert not document["complete"] and row in (document["rows"][0].get("check"), document["rows"][0].get("scenario"))
        assert "incomplete</text>" in paths["svg"].read_text()
        assert ", incomplete\n" in paths["md"].read_text().replace(", 1 s each", "") and f"| {row} |" in paths["md"].read_text()
        return len(document["rows"])

    while not paths["md"].exists():
        assert at.read(0.1), at.said
    before = seen()
    os.write(at.fd, b"\x03")
    assert at.end() == 128 + signal.SIGINT and b"Traceback" not in at.said
    assert seen() >= before
    assert f"ended early: {paths['json']} and {paths['md']} have what was".encode() in at.said
    assert b", incomplete" in at.said and row.encode() in at.said.partition(b", incomplete")[2]


class FakePart:
    """Has those rows, one after the other, and then what `end` does."""

    def __init__(self, real, rows, end=lambda: None, **more):
        self.rows, self.end, self.more = rows, end, more
        self.text, self.markdown, self.svg = real.text, real.markdown, real.svg

    def run(self, build, options, say, keep):
        for i in range(1, len(self.rows) + 1):
            keep({**self.more, "rows": self.rows[:i]})
        self.end()
        return {**self.more, "rows": self.rows}


LIMITS = {"gpu": None, "configurations": [{"name": "carve"}]}
LIMIT_ROWS = [{"configuration": "carve", "check": "family", "family": name, "pass": True, "measured": "never over"}
              for name in ("linear", "vmm")]
SCALE_ROWS = [{"curve": "ledger", "title": "t", "unit": "ns", "points": [[1, 2], [10, 2], [100, 2]], "exponent": 0.0,
               "at_most": 0.25, "pass": True}]


def fail():
    raise host.BenchError("nothing works")


def end():
    raise main.Ended(signal.SIGTERM)


def fake_run(monkeypatch, folder, limits_end=lambda: None, scale_end=lambda: None):
    """(exit status or the exception, the document that is there then)"""
    monkeypatch.setattr(main, "PARTS", {"limits": FakePart(part_limits, LIMIT_ROWS, limits_end, **LIMITS),
                                        "scale": FakePart(part_scale, SCALE_ROWS, scale_end)})
    options = main.parse(["--build", str(BUILD), "--json", str(folder / "out.json"), "--svg", str(folder / "out.svg")])
    try:
        status = main.run_parts(BUILD, options)
    except main.Ended as ended:
        status = ended
    document = json.loads((folder / "out.json").read_text())
    results_schema.check(document)
    return status, document


def test_a_part_that_fails_takes_no_other_with_it(monkeypatch, tmp_path, capsys):
    status, document = fake_run(monkeypatch, tmp_path, limits_end=fail)
    first, second = document["parts"]
    assert status == 1 and not document["complete"]
    assert (first["complete"], first["error"], len(first["rows"])) == (False, "nothing works", 2)
    assert (second["part"], second["complete"]) == ("scale", True) and "error" not in second
    said = capsys.readouterr()
    assert said.err.endswith("scripts/bench: limits: nothing works\n") and "vmm" in said.out and "2.00 ns" in said.out


def test_a_run_that_is_ended_keeps_the_parts_before(monkeypatch, tmp_path, capsys):
    status, document = fake_run(monkeypatch, tmp_path, scale_end=end)
    assert isinstance(status, main.Ended) and not document["complete"]
    assert [(d["part"], d["complete"]) for d in document["parts"]] == [("limits", True), ("scale", False)]
    assert capsys.readouterr().out.count("incomplete") == 1
    assert fake_run(monkeypatch, tmp_path)[0] == 0
    assert json.loads((tmp_path / "out.json").read_text())["complete"]
    assert all("incomplete" not in (tmp_path / f"out-{part}.svg").read_text() for part in ("limits", "scale"))


def test_an_output_that_is_no_regular_file_gets_one_whole_document():
    done = bench("limits", "--quick", "--check", "view", "--json", "/dev/stdout")
    assert done.returncode == 0 and done.stdout.count('"schema"') == 1 and '"complete": true' in done.stdout


def test_the_usage_at_its_head_names_every_part():
    head = (ROOT / "scripts/bench").read_text().split('"""')[1]
    assert all(part in head for part in main.PARTS)
    told = bench("--help").stdout
    assert all(option in told for option in re.findall(r"--[a-z-]+", head))
