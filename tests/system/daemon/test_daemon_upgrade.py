"""Upgrade in place: a running daemon becomes another program, and nobody is refused or notices."""
import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

from child import make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, clean_env, wait_until
from daemon_client import *
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures
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
    assert daemon.call("GET", "/v1/sessions").json == sessions
    assert daemon.gpu()["available_bytes"] == 74 * GIB and daemon.gpu()["held_by"] is None
    # The same connection and the same ledger, without attaching anew.
    daemon.processes = [(0, child.pid, GIB + 300 * MIB)]
    daemon.write_state()
    assert child.say("settle") == str(OK)
    assert ledger.committed() == GIB + 300 * MIB
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


def test_a_forked_child_still_keeps_the_memory_of_its_killed_parent(daemon, make_child):
    """The connection says so: what a crash of the daemon loses, an upgrade keeps."""
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    ledger = observe(daemon, session)
    child.say(f"charge {GIB}")
    grandchild = int(child.say("fork"))
    child.kill()
    wait_until(lambda: ledger.state(child.slot) == "dead")
    upgrade(daemon)
    time.sleep(0.7)
    assert ledger.committed() == GIB
    os.kill(grandchild, signal.SIGKILL)
    wait_until(lambda: ledger.committed() == 0)


@pytest.mark.parametrize("full", [False, True])
def test_a_wait_for_memory_of_ended_processes_goes_on(daemon, make_child, full):
    """For their memory, or for one of their slots."""
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    ledger = observe(daemon, session)
    child.say(f"charge {GIB}")
    daemon.processes = [(0, child.pid, GIB)]
    daemon.write_state()
    others = [Attached(daemon) for _ in range(255 if full else 1)]
    assert [a.ask(WORKLOAD, session)[0] for a in others[:254]] == [OK] * min(len(others), 254)
    child.kill()
    start = time.monotonic()
    others[-1].send(attach_message(WORKLOAD if full else SWEEP, session))
    upgrade(daemon)
    if time.monotonic() - start > 2:
        pytest.skip("this machine was too busy: nobody waits for longer than 3 s")
    assert ledger.committed() == GIB and not select.select([others[-1].socket], [], [], 0)[0]
    daemon.processes = []
    daemon.write_state()
    assert others[-1].receive()[0] == OK and ledger.committed() == 0
    for a in others:
        a.close()


def test_a_waiting_request_keeps_its_place(daemon):
    full = daemon.grant(vram="80")
    askers = []
    for i in range(4):  # without an ID of their own: these clients would not repeat themselves
        askers.append(Asker(daemon, vram="30", wait_for=600, name=f"n{i}"))
        wait_until(lambda: len(waiting(daemon)) == i + 1)
    wait_until(lambda: len(waiting(daemon)) == 4)
    last = Asker(daemon, vram="80", wait_for=2, name="late")
    wait_until(lambda: len(waiting(daemon)) == 5 or last.answer)
    before = waiting(daemon)[:4]
    for _ in range(3):
        upgrade(daemon)
    after = waiting(daemon)[:4]
    keys = ("id", "name", "position", "created", "asked", "requester_pid")
    assert [[w[k] for k in keys] for w in after] == [[w[k] for k in keys] for w in before]
    last.join(60)
    assert last.answer.status == 409 and last.answer.error["code"] == 3  # its time ran on
    daemon.release(full["id"])
    for asker in askers[:2]:
        asker.join(60)
        assert asker.answer.status == 201
    assert [w["name"] for w in waiting(daemon)] == ["n2", "n3"]
    for asker in askers[:2]:
        daemon.release(asker.answer.json["id"])
    for asker in askers[2:]:
        asker.join(60)
        assert asker.answer.status == 201


def test_a_release_by_force_and_its_answer(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session, stubborn=True)
    answers = []
    releaser = threading.Thread(target=lambda: answers.append(daemon.release(session, force=True)))
    releaser.start()
    wait_until(lambda: daemon.show(session)["state"] == "ending")
    upgrade(daemon)
    releaser.join(60)
    assert answers[0].status == 200 and child.process.wait(60) == -signal.SIGKILL
    assert daemon.show(session)["state"] == "ended"


def test_idle_and_http_1_0_connections(daemon):
    connection = UnixConnection(daemon.runtime / "carved.sock")
    old = socket.socket(socket.AF_UNIX)
    old.settimeout(60)
    old.connect(str(daemon.runtime / "carved.sock"))
    daemon.grant(vram="80")
    body = json.dumps({"vram": "1", "wait_for": 3})
    old.send(f"POST /v1/sessions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_until(lambda: waiting(daemon))
    for _ in range(3):
        connection.request("GET", "/v1/version")
        assert json.loads(connection.getresponse().read())["pid"] == daemon.process.pid
        upgrade(daemon)
    answer = b""
    while part := old.recv(4096):
        answer += part
    assert answer.startswith(b"HTTP/1.1 409 ") and json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == 3
    connection.close()
    old.close()


def upgrade_host(host):
    done = host.run([BUILD / "carved", "--takeover"])
    assert done.returncode == 0, done.stderr


@pytest.mark.timed
def test_turns_go_on_as_they_were(make_host):
    """Alone in strict mode a session has its fraction, however often the daemon is upgraded: gates stay closed and
    accounts are kept. Processes don't attach anew, and what is shown only grows."""
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
    assert log.read_text().count("process.attached") == 1 and "resumed" not in log.read_text()
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


def test_upgrades_under_load(daemon):
    """Clients that keep their connections and clients that don't, none of which ever repeats a call."""
    over, failures, pairs, held = threading.Event(), [], [0], []

    def client(keeps):
        connection = UnixConnection(daemon.runtime / "carved.sock")

        def call(method, path, body=None):
            connection.request(method, path, json.dumps(body) if body else None)
            response = connection.getresponse()
            answer = response.status, json.loads(response.read())
            if not keeps:
                connection.close()
            return answer

        try:
            while not over.is_set():
                status, session = call("POST", "/v1/sessions", {"vram": "100MB", "ephemeral": True})
                assert status == 201, session
                status, answer = call("DELETE", f"/v1/sessions/{session['id']}")
                assert status == 200, answer
                status, gpus = call("GET", "/v1/gpus")
                assert status == 200 and gpus[0]["held_by"] is None
                pairs[0] += 1
        except Exception as e:  # noqa: BLE001: whatever it is, it is a failed request
            failures.append(repr(e))

    threads = [threading.Thread(target=client, args=(i % 2,)) for i in range(6)]
    for t in threads:
        t.start()
    count = int(os.environ.get("CARVE_TEST_UPGRADES", "12"))
    for i in range(count):
        held.append(daemon.grant(vram="100MB", name=f"h{i}")["id"])
        if len(held) > 40:  # the GPU has an end
            daemon.release(held.pop(0))
        before = pairs[0]
        upgrade(daemon)
        wait_until(lambda: pairs[0] > before or failures)
    over.set()
    for t in threads:
        t.join(60)
    assert failures == []
    assert [s["id"] for s in daemon.call("GET", "/v1/sessions").json] == held
    ended = [s for s in daemon.all_sessions() if s["state"] == "ended"]
    assert len(ended) == pairs[0] + count - len(held) or len(ended) >= 10000  # of which history keeps no more
    assert all(s["reason"] == "released" for s in ended)
    assert daemon.gpu()["available_bytes"] == 80 * GIB - len(held) * 100000000
    assert daemon.log().count("carved.taken_over") == count


# ---- what is refused, and changes nothing ----

@pytest.fixture
def program(tmp_path):
    def make(script):
        path = tmp_path / "program"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return path
    return make


def refused(daemon, path):
    answer = daemon.call("POST", "/v1/upgrade", {"program": str(path)})
    assert answer.status == 409 and answer.error["code"] == 1, answer.json
    assert answer.error["hint"] == "the daemon goes on as it was"
    assert daemon.call("GET", "/v1/version").json["pid"] == daemon.process.pid
    daemon.release(daemon.grant(vram="1")["id"])
    assert "carved.taken_over" not in daemon.log()
    return answer.error["message"]


def test_programs_that_cannot_take_over(daemon, program):
    assert "no such file" in refused(daemon, "/none/carved")
    assert "it is no carved that knows how" in refused(daemon, "/bin/true")
    assert "it is no carved that knows how" in refused(daemon, "/bin/false")
    assert "cannot take over: too old" in refused(daemon, program("echo too old; exit 1"))
    big = refused(daemon, program("yes | head -c 100000; exit 1"))
    assert len(big) < 500
    assert "kill" not in refused(daemon, program("kill -9 $$"))
    # It says that it can, and then it is gone.
    assert "cannot be run" in refused(daemon, program('echo "carved can take over"; rm "$0"'))
    assert daemon.log().count("upgrade.failed") == 7
    fds = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    refused(daemon, "/bin/true")
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= fds)
    daemon.reload()  # still no reason to end
    assert daemon.call("GET", "/v1/version").status == 200
    upgrade(daemon)


def test_an_upgrade_is_refused_if_the_new_program_could_not_go_on(make_daemon, tmp_path):
    config = tmp_path / "config.json"
    config.write_text("{}")
    daemon = make_daemon(args=["--config", config])
    config.write_text('{"colour": "red"}')
    assert "unknown key 'colour'" in refused(daemon, BUILD / "carved")
    config.write_text("{}")
    with contextlib.closing(sqlite3.connect(daemon.runtime / "carve.db")) as db, db:
        newest, = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version={newest + 1}")
    assert "another version of carve wrote it" in refused(daemon, BUILD / "carved")
    with contextlib.closing(sqlite3.connect(daemon.runtime / "carve.db")) as db, db:
        db.execute(f"PRAGMA user_version={newest}")
    done = subprocess.run([BUILD / "carved", "--takeover-check", "99", "--runtime-dir", daemon.runtime],
                          stdout=subprocess.PIPE, text=True, timeout=60, env=clean_env())
    assert done.returncode == 1 and "does not know what a daemon with handover 99 leaves" in done.stdout
    upgrade(daemon)


def test_bodies_of_upgrades(daemon):
    for body in ({}, {"program": "carved"}, {"program": 1}, {"program": "/x", "more": 1}, [], b"x",
                 {"program": "/" + "x" * 5000}):
        answer = daemon.call("POST", "/v1/upgrade", body)
        assert answer.status == 400, body


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
    assert "carved.taken_over" not in daemon.log()


def test_an_upgrade_without_a_daemon_says_so(tmp_path):
    done = subprocess.run([BUILD / "carved", "--takeover", "--runtime-dir", tmp_path], env=clean_env(),
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 4 and "no daemon answers" in done.stderr


def test_a_handover_that_is_none(daemon, tmp_path):
    """Whatever stands in the environment: a daemon starts as it always does."""
    read, write = os.pipe()
    daemon.kill()
    for text in ("x", "1", str(read)):
        with open(tmp_path / "words", "w+") as words:
            done = subprocess.run([BUILD / "carved", "--runtime-dir", tmp_path / "run", "--idle-exit", "1"],
                                  env=dict(daemon.env(), CARVE_HANDOVER=text), pass_fds=[read],
                                  stderr=words, timeout=60)
            assert done.returncode == 0, text
        pid = int((tmp_path / "run" / "lock").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)
    os.close(read)
    os.close(write)
    daemon.start()


def test_in_the_background_the_log_goes_on(tmp_path, daemon):
    daemon.kill()
    subprocess.run([BUILD / "carved", "--runtime-dir", tmp_path / "bg", "--idle-exit", "60"], env=daemon.env(),
                   check=True, timeout=60)

    class Background(Daemon):
        def __init__(self):
            self.runtime = tmp_path / "bg"

    pid = int((tmp_path / "bg" / "lock").read_text())
    try:
        done = subprocess.run([BUILD / "carved", "--takeover", "--runtime-dir", tmp_path / "bg"],
                              env=daemon.env(), timeout=60)
        assert done.returncode == 0
        assert Background().call("GET", "/v1/version").json["pid"] == pid
        assert "carved.taken_over" in (tmp_path / "bg" / "carved.log").read_text()
        assert "--idle-exit" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)
        daemon.start()
