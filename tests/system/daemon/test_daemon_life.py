"""carved's restarts, database, places and arguments, over a fake driver."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import BUILD, clean_env, wait_until
from daemon_client import *
from disk import fill, small_disk, tiny_disk  # noqa: F401: fixtures
from own_daemon import Asker, ask_in_child, daemon, make_daemon, waiting  # noqa: F401: fixtures


def test_sessions_survive_a_kill(daemon):
    sessions = [daemon.grant(vram="3", name=f"n{i}") for i in range(5)]
    active = daemon.request(vram="2", ephemeral=False).json
    daemon.restart()
    after = {s["id"]: lasting(s) for s in daemon.call("GET", "/v1/sessions").json}
    assert after == {s["id"]: lasting(s) for s in sessions + [active]}
    assert daemon.gpu()["available_bytes"] == (80 - 17) * GIB
    again = daemon.request(vram="2", ephemeral=False)
    assert again.status == 409 and active["id"] in again.error["message"]


def test_one_off_whose_owner_died_meanwhile_is_gone(daemon):
    child, session = ask_in_child(daemon, {"vram": "1", "ephemeral": True}, "")
    daemon.kill()
    child.kill()
    child.wait()
    daemon.start()
    assert daemon.call("GET", "/v1/sessions").json == []


def test_graceful_stop_keeps_sessions_and_answers_those_who_wait(daemon):
    daemon.grant(vram="80")
    asker = Asker(daemon, vram="40", wait_for=600)
    wait_until(lambda: waiting(daemon))
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0
    asker.join(60)
    assert asker.answer.status == 503 and "stopping" in asker.answer.error["message"]
    assert not (daemon.runtime / "carved.sock").exists()
    daemon.start()
    assert len(daemon.call("GET", "/v1/sessions").json) == 1


def test_second_daemon_in_the_same_place(daemon):
    done = subprocess.run([BUILD / "carved", "--runtime-dir", daemon.runtime, "--foreground"],
                          env=daemon.env(), stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert f"(pid {daemon.process.pid})" in done.stderr
    assert daemon.call("GET", "/v1/version").status == 200


def test_one_daemon_owns_a_gpu(daemon, tmp_path):
    """The second sees the same GPUs (its state file has the same name, so the same UUIDs)."""
    read, write = os.pipe()
    other = subprocess.Popen([BUILD / "carved", "--runtime-dir", tmp_path / "run", "--ready-fd",
                              str(write)], env=daemon.env(), stderr=subprocess.DEVNULL,
                             pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"R"
    os.close(read)

    class Other(Daemon):
        def __init__(self):
            self.runtime = tmp_path / "run"

    second = Other()
    gpu = second.gpu()
    assert gpu["held_by"]["pid"] == daemon.pid and gpu["available_bytes"] == 0
    refused = second.request(vram="1")
    assert refused.status == 409
    assert refused.error["message"].startswith(
        f"no GPU can be had: GPU 0 (Fake H100): held by another daemon (process {daemon.pid} of ")
    assert "--host" in refused.error["hint"]
    asked, = second.call("POST", "/v1/explain", {"vram": "1"}).json["gpus"]
    assert asked["available_bytes"] == gpu["available_bytes"] == 0
    daemon.process.terminate()
    assert daemon.process.wait(60) == 0
    assert second.grant(vram="1")["vram_bytes"] == GIB
    other.terminate()
    assert other.wait(60) == 0
    daemon.start()


# Claims the GPU as a daemon does, and then only a thread is left of it, for a while.
HEADLESS = """
import ctypes, os, socket, sys, threading, time
claim = socket.socket(socket.AF_UNIX)
claim.bind("\\0carve-gpu-" + sys.argv[1])
claim.listen()
def end():
    time.sleep(0.2)
    os._exit(0)
threading.Thread(target=end).start()
print(flush=True)
ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread
"""


def test_a_killed_daemon_that_is_still_ending_has_no_gpu(daemon):
    uuid = daemon.gpu()["uuid"]
    daemon.kill()
    holder = subprocess.Popen([sys.executable, "-c", HEADLESS, uuid], stdout=subprocess.PIPE)
    assert holder.stdout.readline()
    wait_until(lambda: ") Z " in pathlib.Path(f"/proc/{holder.pid}/stat").read_text())
    daemon.start()
    assert not daemon.gpu().get("held_by")
    holder.communicate(timeout=60)


def test_idle_exit(make_daemon):
    daemon = make_daemon(args=["--idle-exit", "1"])
    session = daemon.grant(vram="1")
    time.sleep(2.5)
    assert daemon.process.poll() is None
    daemon.release(session["id"])
    assert daemon.process.wait(60) == 0


def wake_ups(pid):
    """How often its threads went to sleep so far."""
    return sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
               for line in (task / "status").read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.timed
@pytest.mark.parametrize("sessions, most", [(0, 3.5), (3, 8)])
def test_an_idle_daemon_is_woken_each_second_only(daemon, sessions, most):
    """It looks after its files and the GPUs' claims each second, and while there are sessions asks the driver, on a thread
    of the pool, for memory beyond them. The bounds are generous, and still below one timer of 100 ms."""
    for i in range(sessions):
        daemon.grant(vram="1", name=f"n{i}")
    assert daemon.call("PUT", "/v1/timeslicing", {"mode": "strict"}).status == 200
    time.sleep(2)  # what the requests began is over
    before, began = wake_ups(daemon.pid), time.monotonic()
    time.sleep(6)
    assert wake_ups(daemon.pid) - before <= most * (time.monotonic() - began)


def test_exit_when_the_directory_is_gone(daemon):
    daemon.runtime.rename(daemon.dir / "elsewhere")
    assert daemon.process.wait(60) == 0


def test_background(tmp_path, daemon):
    done = subprocess.run([BUILD / "carved", "--runtime-dir", tmp_path / "bg", "--idle-exit", "1"],
                          env=daemon.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bg" / "carved.sock").exists()
    pid = int((tmp_path / "bg" / "lock").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)
    assert "carved.listening" in (tmp_path / "bg" / "carved.log").read_text()
    again = subprocess.run([BUILD / "carved", "--runtime-dir", daemon.runtime], env=daemon.env(),
                           stderr=subprocess.PIPE, text=True, timeout=60)
    assert again.returncode == 1 and "serves" in again.stderr


def test_the_log_is_bounded(tmp_path, daemon):
    log, old = tmp_path / "carved.log", tmp_path / "carved.log.old"
    tmp_path.chmod(0o700)
    log.write_bytes(b"x" * ((1 << 20) - 300))
    subprocess.run([BUILD / "carved", "--runtime-dir", tmp_path], env=daemon.env(), check=True,
                   timeout=60)
    for _ in range(20):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(tmp_path / "carved.sock"))
        s.send(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n")
        s.recv(1000)
        s.close()
    pid = int((tmp_path / "lock").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)
    assert (1 << 20) - 300 <= old.stat().st_size <= 1 << 20
    assert 0 < log.stat().st_size < 100000 and b"carved.stopping" in log.read_bytes()


def database(daemon):
    return sqlite3.connect(daemon.runtime / "carve.db")


@pytest.mark.parametrize("age", ["newer", "never released"])
def test_a_database_of_a_version_that_this_carve_does_not_know_is_refused(daemon, age):
    session = daemon.grant(vram="3")
    daemon.kill()
    with contextlib.closing(database(daemon)) as db, db:
        known, = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version={known + 1 if age == 'newer' else 1}")
    daemon.start(wait=False)
    assert daemon.process.wait(60) == 1
    assert "another version of carve wrote it" in daemon.log()
    with contextlib.closing(database(daemon)) as db, db:
        db.execute(f"PRAGMA user_version={known}")
    daemon.start()
    assert lasting(daemon.show(session["id"])) == lasting(session)


def test_damaged_database(daemon):
    daemon.kill()
    (daemon.runtime / "carve.db").write_bytes(b"not a database, whatever else" * 200)
    for left in ("carve.db-wal", "carve.db-shm"):
        (daemon.runtime / left).unlink(missing_ok=True)
    daemon.start(wait=False)
    assert daemon.process.wait(60) == 1
    assert "is damaged" in daemon.log() and "promised to others; /usr/share/doc/carve/admin/backup.md" in daemon.log()
    (daemon.runtime / "carve.db").unlink()
    daemon.start()


@pytest.mark.parametrize("args", [["--nonsense"], ["extra"], ["--idle-exit", "x"],
                                  ["--ready-fd", "1"], ["--runtime-dir", "/" + "x" * 200]])
def test_bad_arguments(args):
    done = subprocess.run([BUILD / "carved", *args], env=clean_env(), stderr=subprocess.PIPE, text=True,
                          timeout=60)
    assert done.returncode == 2 and done.stderr


def test_directory_of_somebody_else(tmp_path, daemon):
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    done = subprocess.run([BUILD / "carved", "--runtime-dir", place], env=daemon.env(),
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "only you can write" in done.stderr


# ---- a database that cannot be written ----

@pytest.mark.alone
def test_a_full_disk_makes_no_half_grants(small_disk):
    daemon = Daemon(dir=small_disk)
    try:
        before = daemon.grant(vram="2")
        filler = small_disk / "filler"
        with open(filler, "wb", buffering=0) as f:
            with pytest.raises(OSError):
                while True:
                    f.write(b"x" * 4096)
        refused = [daemon.request(vram="1") for _ in range(400)]
        full = [a for a in refused if a.status != 201]
        assert full and full[-1].status == 409
        assert "the disk is full" in full[-1].error["message"]
        granted = [a.json["id"] for a in refused if a.status == 201] + [before["id"]]
        assert daemon.gpu()["available_bytes"] == (80 - 1 - len(granted)) * GIB
        # An end that the database cannot take yet is there when there is room.
        assert daemon.release(granted.pop()).status == 200
        filler.unlink()
        wait_until(lambda: "store.recorded" in daemon.log())
        daemon.restart()
        assert sorted(s["id"] for s in daemon.call("GET", "/v1/sessions").json) == sorted(granted)
        daemon.grant(vram="1")
    finally:
        daemon.kill()


def grants_until_full(daemon, filler):
    """Until no write gets through, so that no room is left in what the database has already."""
    granted = []
    while True:
        fill(filler)
        answer = daemon.request(vram="0.1")
        if answer.status != 201:
            assert "the disk is full" in answer.error["message"]
            return granted
        granted.append(answer.json["id"])


@pytest.mark.alone
def test_refusals_of_a_full_disk_name_the_next_command(tiny_disk):
    daemon = Daemon(dir=tiny_disk)
    try:
        kept = daemon.grant(vram="2")["id"]
        grants_until_full(daemon, tiny_disk / "filler")
        for method, path, body in [("POST", "/v1/sessions", {"vram": "1"}), ("PATCH", f"/v1/sessions/{kept}", {"vram": "3"}),
                                   ("PATCH", "/v1/quotas/user/20001", {"vram": "4"}),
                                   ("PUT", "/v1/timeslicing", {"mode": "fair"})]:
            refused = daemon.call(method, path, body)
            assert refused.status == 409, (path, refused.json)
            assert refused.error["message"].endswith(": the disk is full"), refused.error
            assert "`carve check`" in refused.error["hint"], refused.error
    finally:
        daemon.kill()


@pytest.mark.alone
@pytest.mark.parametrize("freed", ["before", "after", "never"])
def test_a_release_on_a_full_disk_outlives_the_daemon(tiny_disk, freed):
    """`freed`: when there is room again, seen from the daemon's death."""
    daemon = Daemon(dir=tiny_disk)
    filler = tiny_disk / "filler"
    try:
        kept = daemon.grant(vram="2")["id"]
        released = [daemon.grant(vram="0.5", name=f"s{i}")["id"] for i in range(4)]
        kept = [kept] + grants_until_full(daemon, filler)
        for id in released:
            assert daemon.release(id).status == 200
        if freed == "before":
            filler.unlink()
        daemon.kill()
        if freed == "after":
            filler.unlink()
        daemon.start()
        assert sorted(s["id"] for s in daemon.call("GET", "/v1/sessions").json) == sorted(kept)
        if freed == "never":
            filler.unlink()

        def ended():
            every = daemon.all_sessions()
            return {s["id"]: s for s in every if s["state"] == "ended"}
        wait_until(lambda: set(ended()) == set(released))
        assert {s["name"] for s in ended().values()} == {f"s{i}" for i in range(4)}
    finally:
        daemon.kill()


@pytest.mark.alone
def test_a_release_that_cannot_be_kept_is_refused(tiny_disk):
    daemon = Daemon(dir=tiny_disk)
    filler = tiny_disk / "filler"
    try:
        session = daemon.grant(vram="4", name="s1")["id"]
        daemon.kill()
        for path in tiny_disk.rglob("carve.db-ends"):
            path.unlink()
            path.mkdir()
        daemon.start()
        kept = grants_until_full(daemon, filler)
        for _ in range(2):
            refused = daemon.release(session)
            assert refused.status == 409
            assert "is not released yet" in refused.error["message"]
        assert session in [s["id"] for s in daemon.call("GET", "/v1/sessions").json]
        filler.unlink()
        wait_until(lambda: sorted(s["id"] for s in daemon.call("GET", "/v1/sessions").json) == sorted(kept))
        daemon.restart()
        assert sorted(s["id"] for s in daemon.call("GET", "/v1/sessions").json) == sorted(kept)
    finally:
        daemon.kill()


# ---- a supervisor's sockets ----

def test_socket_activation_and_readiness(tmp_path, daemon):
    """As systemd does it: listening sockets from descriptor 3 on, and a socket to be told on."""
    daemon.process.terminate()
    daemon.process.wait(60)
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    http, attach = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    http.bind(str(run / "carved.sock"))
    attach.bind(str(run / "attach.sock"))
    http.listen()
    attach.listen()
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    told.settimeout(60)
    shell = f'exec 3<&{http.fileno()} 4<&{attach.fileno()}; LISTEN_PID=$$ exec "$@"'
    env = dict(daemon.env(), LISTEN_FDS="2", LISTEN_FDNAMES="http:attach",
               NOTIFY_SOCKET=str(tmp_path / "notify"))
    carved = subprocess.Popen(["/bin/bash", "-c", shell, "sh", BUILD / "carved", "--runtime-dir", run,
                               "--foreground"], env=env, stderr=subprocess.DEVNULL,
                              pass_fds=[http.fileno(), attach.fileno()])
    assert told.recv(100) == b"READY=1"
    connection = UnixConnection(run / "carved.sock")
    connection.request("GET", "/v1/version")
    assert json.loads(connection.getresponse().read())["pid"] != carved.pid
    assert told.recv(100) == b"WATCHDOG=1"
    carved.terminate()
    assert carved.wait(60) == 0
    while told.recv(100) != b"STOPPING=1":
        pass
    assert (run / "carved.sock").exists()  # the supervisor's, not ours to remove
    daemon.start()
