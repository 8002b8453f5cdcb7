"""Idle sessions as their users see them: in lists, in `carve top`, in the terminal of `carve run`."""
import re
import shutil
import signal
import time

import pytest

from conftest import BUILD, wait_until
from policed import Daemon, policed  # noqa: F401: a fixture
from programs import python

CARVE = BUILD / "carve"


def show(host, session):
    return host.carve_json("session", "show", session)


class Busy:
    """A program in a slice of its own that keeps the GPU busy while it is told to work."""

    def __init__(self, host, file):
        self.host, self.file = host, file
        self.works(True)
        before = {s["id"] for s in host.carve_json("session", "list")}
        self.process = host.popen([CARVE, "run", "--vram", "4", "--", *python("busy", file)])
        self.id, = wait_until(lambda: [s["id"] for s in host.carve_json("session", "list") if s["id"] not in before and s["pids"]])
        wait_until(lambda: host.stat()["gpus"][0]["busy_ns"])

    def works(self, whether):
        if whether:
            self.file.touch()
        else:
            self.file.unlink()

    def show(self):
        return show(self.host, self.id)


def test_idle_sessions_are_told_in_lists_and_top(policed):
    policed()
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "1")["id"]
    wait_until(lambda: show(host, session)["idle_since"])
    head, row = host.carve("session", "list").stdout.splitlines()
    assert "IDLE" in head.split() and re.search(r" \d+s ", row)
    assert f"idle:      since {show(host, session)['idle_since'][:10]}" in host.carve("session", "show", session).stdout
    top = host.carve_json("top", "--once")
    assert [s["idle_since"] for s in top["sessions"]] == [show(host, session)["idle_since"]]
    assert "IDLE" in host.carve("top", "--once").stdout


@pytest.mark.parametrize("sliced", [False, True], ids=["unsliced", "sliced"])
def test_a_program_that_computes_is_never_released_and_one_that_rests_is(policed, tmp_path, sliced):
    policed(idle_timeout=6, idle_warning=3, **({"timeSlicing": {"mode": "fair"}} if sliced else {}))
    busy = Busy(policed.host, tmp_path / "works")
    time.sleep(8)
    shown = busy.show()
    assert shown["state"] == "active" and shown["idle_since"] is None and shown["idle_unknown"] is None
    busy.works(False)
    wait_until(lambda: busy.show()["idle_warned"])
    busy.works(True)
    wait_until(lambda: not busy.show()["idle_warned"])
    busy.works(False)
    wait_until(lambda: busy.show()["state"] == "ended")
    assert busy.show()["reason"] == "it used no GPU time for 6s (idle_timeout)"
    out, err = busy.process.communicate(timeout=60)
    assert f"carve: session {busy.id} ended: it used no GPU time for 6s (idle_timeout)" in err.splitlines()


def test_the_terminal_of_run_is_warned_once_and_hears_of_the_withdrawal(policed, tmp_path):
    policed(idle_timeout=40, idle_warning=36)
    busy = Busy(policed.host, tmp_path / "works")
    busy.works(False)
    line = busy.process.stderr.readline()
    assert re.fullmatch(rf"carve: session {busy.id} has used no GPU time for \d+ s: it is released in \d+ s unless it uses some "
                        r"\(idle_timeout\)\n", line), line
    busy.works(True)
    assert busy.process.stderr.readline().startswith(f"carve: session {busy.id} is not released for now")
    assert busy.show()["state"] == "active"
    busy.process.terminate()
    assert "idle_timeout" not in busy.process.communicate(timeout=60)[1]


def test_a_shell_that_nobody_uses_is_warned_and_ended(policed):
    policed(idle_timeout=6, idle_warning=4)
    host = policed.host
    process = host.popen([CARVE, "run", "--vram", "4", "--", "sleep", "1000"])
    out, err = process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGTERM
    warning, end = [line for line in err.splitlines() if "GPU time" in line]
    assert "it is released in" in warning and "ended: it used no GPU time for 6s (idle_timeout)" in end


def test_a_command_without_a_policy_asks_the_daemon_nothing(policed, tmp_path):
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    policed()
    trace, begin, end = (tmp_path / name for name in ("trace", "begin", "end"))
    process = policed.host.popen(["strace", "-f", "-e", "trace=connect", "-o", trace, CARVE, "run", "--vram", "4", "--",
                                  "sh", "-c", f"cp {trace} {begin}; sleep 5; cp {trace} {end}"])
    assert process.wait(120) == 0
    asked = [path.read_text().count("carved.sock") for path in (begin, end, trace)]
    assert 0 < asked[0] == asked[1] < asked[2], asked


@pytest.mark.parametrize("model, known", [("h100-80gb", True), ("a100-80gb", False)])
def test_a_mig_instance_is_idle_where_the_driver_counts_its_work(make_host, tmp_path, model, known):
    host = make_host(f"{model}+mig")
    daemon = Daemon(host, {"idle_timeout": "1h", "idle_warning": "3599s"})
    try:
        assert host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
        work = tmp_path / "works"
        work.touch()
        process = host.popen([CARVE, "run", "--mig-profile", "1g.10gb", "--", *python("busy", work)])
        id, = wait_until(lambda: [s["id"] for s in host.carve_json("session", "list") if s["pids"]])
        if known:
            wait_until(lambda: not show(host, id)["idle_unknown"] and not show(host, id)["idle_since"])
            work.unlink()
            wait_until(lambda: show(host, id)["idle_warned"])
            work.touch()
            wait_until(lambda: not show(host, id)["idle_since"])
        else:
            wait_until(lambda: show(host, id)["idle_unknown"])
            time.sleep(3)
            shown = show(host, id)
            assert shown["idle_unknown"] == "the driver does not tell whether its MIG instance works"
            assert shown["idle_since"] is None and not shown["idle_warned"]
            assert f"idle:      not known, as {shown['idle_unknown']}" in host.carve("session", "show", id).stdout
        process.terminate()
        process.communicate(timeout=60)
    finally:
        daemon.close()
