"""An upgrade: the supervisor starts the program that is installed by now, and no client of carve's own notices."""
import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from child import make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, clean_env, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from sharing import CLIENT, KERNELS, Workload, busy, shares, slice_time, wait_busy
from takeover import upgrade


def test_everything_goes_on(daemon, make_child):
    active = daemon.request(vram="2", ephemeral=False).json
    session = daemon.grant(vram="4", name="job")["id"]
    child = make_child(daemon, session)
    ledger = observe(daemon, session)
    child.say(f"charge {GIB}")
    sessions = daemon.call("GET", "/v1/sessions").json
    for _ in range(3):
        upgrade(daemon)
    assert list(map(lasting, daemon.call("GET", "/v1/sessions").json)) == list(map(lasting, sessions))
    assert daemon.gpu()["available_bytes"] == 74 * GIB and daemon.gpu()["held_by"] is None
    # The same ledger. The front attaches anew; this child has to.
    daemon.processes = [(0, child.pid, GIB + 300 * MIB)]
    daemon.write_state()
    wait_until(lambda: ledger.committed() == GIB + 300 * MIB)
    assert daemon.call("PATCH", f"/v1/sessions/{session}", {"vram": "6"}).json["vram_bytes"] == 6 * GIB
    again = make_child(daemon, session)
    assert (again.status, again.slot) == (OK, 2)
    daemon.processes = []
    daemon.write_state()
    child.kill()
    again.kill()
    wait_until(lambda: ledger.committed() == 0)
    assert daemon.release(session).status == 200
    daemon.restart()
    assert [s["id"] for s in daemon.call("GET", "/v1/sessions").json] == [active["id"]]


def upgrade_host(host):
    done = host.run([BUILD / "carved", "--takeover"])
    assert done.returncode == 0, done.stderr


@pytest.mark.timed
def test_turns_go_on_as_they_were(make_host):
    """Alone in strict mode a session has its fraction, however often the daemon is upgraded: gates stay closed and
    accounts are kept. What is shown only grows."""
    host = make_host("h100-80gb")
    slice_time(host, "strict", "--lease", "250ms", "--granularity", "5%")
    workload = Workload(host, ["--gpu", "0.25"])
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log")
    wait_until(lambda: log.read_text().count("process.attached") == 1)
    wait_busy(host, workload)
    shown = []

    def upgraded():
        upgrade_host(host)
        turns = host.carve_json("session", "list")[0]["timeslicing"]
        shown.append([turns[k] for k in ("held_ns", "leases", "waited_ns", "overrun_ns")])
        time.sleep(0.4)
        return len(shown) == 10

    stat, had = host.stat(), busy(host, workload)
    wait_until(upgraded, 60)
    share = (busy(host, workload) - had) / (host.stat()["now_ns"] - stat["now_ns"])
    assert share < 0.38, share
    wait_busy(host, workload)
    assert all(a <= b for before, after in zip(shown, shown[1:]) for a, b in zip(before, after)), shown
    received = host.carve_json("session", "list")[0]["received"]
    assert 0.1 < received < 0.4
    workload.kill()


@pytest.mark.timed
def test_the_share_is_one_of_the_time_that_was_counted(make_host):
    """A daemon that died counts no more; the next one does not take that time for idle."""
    host = make_host("h100-80gb")
    slice_time(host, "fair")
    session = host.carve_json("session", "request", "--gpu", "0.5")["id"]
    time.sleep(4)
    os.kill(host.daemon_pid(), signal.SIGKILL)
    workload = host.popen([BUILD / "carve", "run", "--session", session, "--", CLIENT, *KERNELS], start_new_session=True)
    assert workload.stdout.readline() == "up\n"
    wait_until(lambda: host.carve_json("session", "show", session)["gpus"][0]["busy_ns"] > 5e8)
    received = host.carve_json("session", "show", session)["received"]
    os.killpg(workload.pid, signal.SIGKILL)
    workload.wait()
    assert received > 0.2, received


@pytest.mark.timed
def test_two_that_share_go_on_sharing(make_host):
    host = make_host("h100-80gb")
    slice_time(host, "fair")
    workloads = [Workload(host, ["--gpu", f]) for f in ("0.2", "0.8")]
    for w in workloads:
        wait_busy(host, w)
    over = threading.Event()

    def upgrades():
        while not over.wait(0.5):
            upgrade_host(host)

    upgrader = threading.Thread(target=upgrades)
    upgrader.start()
    try:
        had = shares(host, workloads, seconds=5)
    finally:
        over.set()
        upgrader.join(60)
    assert 0.1 < had[0] / sum(had) < 0.35, had
    for w in workloads:
        w.kill()


def test_commands_under_upgrades(daemon):
    """carve's own clients ask again by the same ID: each command succeeds, once."""
    over, failures, done = threading.Event(), [], [0]

    def client():
        env = dict(daemon.env(), CARVE_RUNTIME_DIR=str(daemon.runtime))
        while not over.is_set():
            for words in (["run", "--ephemeral", "--vram", "100MB", "true"], ["gpu", "list"]):
                command = subprocess.run([BUILD / "carve", *words], env=env, capture_output=True, text=True, timeout=60)
                if command.returncode or command.stderr:
                    failures.append((words, command.returncode, command.stderr))
            done[0] += 1

    threads = [threading.Thread(target=client) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(int(os.environ.get("CARVE_TEST_UPGRADES", "8"))):
        before = done[0]
        upgrade(daemon)
        wait_until(lambda: done[0] > before or failures)  # noqa: B023
    over.set()
    for t in threads:
        t.join(60)
    assert failures == []
    wait_until(lambda: daemon.call("GET", "/v1/sessions").json == [])
    assert all(s["reason"] in ("released", "its command ended") for s in daemon.all_sessions() if s["state"] == "ended")


# ---- what is refused, and changes nothing ----

@pytest.fixture
def copied(tmp_path):
    """A daemon whose program can be replaced."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("carved", "carve-shim"):
        shutil.copy2(BUILD / name, place / name)
    started = Daemon(program=place / "carved")
    yield started, place / "carved"
    started.close()


def replace(program, script):
    new = program.with_suffix(".new")
    new.write_text("#!/bin/sh\n" + script)
    new.chmod(0o755)
    new.rename(program)


def refused(daemon, path):
    before = daemon.pid
    answer = daemon.call("POST", "/v1/upgrade", {"program": str(path)})
    assert answer.status == 409 and answer.error["code"] == 1, answer.json
    assert daemon.call("GET", "/v1/version").json["pid"] == before
    daemon.release(daemon.grant(vram="1")["id"])
    assert "carved.restarts" not in daemon.log()
    return answer.error["message"]


def test_programs_that_cannot_take_over(copied):
    daemon, program = copied
    for script, why in (("exit 0", "it is no carved that knows how"), ("exit 1", "it is no carved that knows how"),
                        ("echo too old; exit 1", "cannot take over: too old"), ("yes | head -c 100000; exit 1", "cannot take over: y"),
                        ("kill -9 $$", "cannot take over")):
        replace(program, script)
        message = refused(daemon, program)
        assert why in message and len(message) < 500
    program.unlink()
    assert "no such file" in refused(daemon, program)
    assert daemon.log().count("upgrade.failed") == 6
    fds = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    refused(daemon, program)
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= fds)
    # A daemon that is killed is followed by its own program still, not by what has its path.
    replace(program, "exit 7")
    daemon.restart()
    program.unlink()
    shutil.copy2(BUILD / "carved", program)
    before, supervisor = daemon.pid, os.stat(f"/proc/{daemon.process.pid}/exe").st_ino
    done = subprocess.run([program, "--runtime-dir", daemon.runtime, "--takeover"], env=daemon.env(), capture_output=True, text=True)
    assert done.returncode == 0 and f"as process {daemon.wait_for_worker(before)}\n" in done.stdout, done.stderr
    for pid in (daemon.process.pid, daemon.pid):
        assert os.stat(f"/proc/{pid}/exe").st_ino == program.stat().st_ino != supervisor


def test_a_program_elsewhere_is_not_started(daemon):
    for path in ("/none/carved", "/bin/true"):
        assert f"the daemon is started from {BUILD / 'carved'}" in refused(daemon, path)


def test_an_upgrade_is_refused_if_the_new_program_could_not_go_on(make_daemon, tmp_path):
    config = tmp_path / "config.json"
    config.write_text("{}")
    daemon = make_daemon(args=["--config", config])
    config.write_text('{"colour": "red"}')
    assert "unknown key 'colour'" in refused(daemon, BUILD / "carved")
    config.write_text("{}")
    for name in ("carve.db", "queue.db"):
        with contextlib.closing(sqlite3.connect(daemon.runtime / name)) as db, db:
            newest, = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version={newest + 1}")
        said = refused(daemon, BUILD / "carved")
        assert f"{name}: another version of carve wrote it" in said, said
        with contextlib.closing(sqlite3.connect(daemon.runtime / name)) as db, db:
            db.execute(f"PRAGMA user_version={newest}")
    done = subprocess.run([BUILD / "carved", "--takeover-check", "99", "--runtime-dir", daemon.runtime],
                          stdout=subprocess.PIPE, text=True, timeout=60, env=clean_env())
    assert done.returncode == 1 and "does not follow on a daemon that asks for takeover 99" in done.stdout
    upgrade(daemon)


def test_bodies_of_upgrades(daemon):
    for body in ({}, {"program": "carved"}, {"program": 1}, {"program": "/x", "more": 1}, [], b"x",
                 {"program": "/" + "x" * 5000}):
        answer = daemon.call("POST", "/v1/upgrade", body)
        assert answer.status == 400, body


def test_in_the_background_the_supervisor_stays(tmp_path, daemon):
    daemon.kill()
    subprocess.run([BUILD / "carved", "--runtime-dir", tmp_path / "bg", "--idle-exit", "60"], env=daemon.env(),
                   check=True, timeout=60)
    pid = int((tmp_path / "bg" / "lock").read_text().split()[0])
    try:
        done = subprocess.run([BUILD / "carved", "--takeover", "--runtime-dir", tmp_path / "bg"],
                              env=daemon.env(), timeout=60)
        assert done.returncode == 0 and int((tmp_path / "bg" / "lock").read_text().split()[0]) == pid
        assert "supervisor.renewed" in (tmp_path / "bg" / "carved.log").read_text()
        assert "--idle-exit" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)
        daemon.start()



@pytest.mark.usefixtures("another_user")
def test_another_user_upgrades_nothing(make_daemon):
    daemon = make_daemon(args=["--system"])
    os.chmod(daemon.dir, 0o755)
    script = ("import sys; sys.path.insert(0, %r)\nfrom unix_http import UnixConnection\n"
              "c = UnixConnection(%r); c.request('POST', '/v1/upgrade', '{\"program\": \"/bin/sh\"}')\n"
              "print(c.getresponse().status)")
    script %= (str(pathlib.Path(__file__).parents[1]), str(daemon.runtime / "carved.sock"))
    done = subprocess.run(["/usr/bin/python3", "-c", script], user=65534, group=65534, text=True,
                          stdout=subprocess.PIPE, env=clean_env({"PYTHONDONTWRITEBYTECODE": "1"}), timeout=60)
    assert done.stdout == "403\n"


def test_options_that_the_running_daemon_would_not_hear_of(daemon, tmp_path):
    for option, value in (("--state-dir", tmp_path), ("--config", "/dev/null"), ("--idle-exit", "5")):
        done = subprocess.run([BUILD / "carved", "--takeover", "--runtime-dir", daemon.runtime, option, value],
                              env=clean_env(), stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "carved.restarts" not in daemon.log()


def test_an_upgrade_without_a_daemon_says_so(tmp_path):
    done = subprocess.run([BUILD / "carved", "--takeover", "--runtime-dir", tmp_path], env=clean_env(),
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 4 and "no daemon answers" in done.stderr


