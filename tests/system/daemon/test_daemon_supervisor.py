"""The supervisor: it starts the daemon's worker again, and keeps the descriptors of ledgers meanwhile."""
import contextlib
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from child import attached, make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, clean_env, process_ended, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from systemd import Systemd
from takeover import upgrade

PARTS = ("ledger", "limits", "view", "wake")


def names_of(*sessions):
    return sorted(f"{session}.{part}" for session in sessions for part in PARTS)


def keepers(runtime):
    """Processes that hold what a supervisor left that ended in order."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text() == "carve-keeper\n" and str(runtime) in (entry / "cmdline").read_text().split("\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_killed_worker_is_followed_by_another_at_the_same_sockets(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    inodes = [(daemon.runtime / name).stat().st_ino for name in ("lock", "carved.sock", "attach.sock")]
    for _ in range(3):
        before = daemon.pid
        os.kill(before, signal.SIGKILL)
        # It is asked at once: the connection waits at the socket for the next one.
        assert daemon.show(session)["gpus"][0]["used_bytes"] == GIB and daemon.show(session)["pids"] == [child.pid]
        assert daemon.pid != before
    assert inodes == [(daemon.runtime / name).stat().st_ino for name in ("lock", "carved.sock", "attach.sock")]
    assert int((daemon.runtime / "lock").read_text().split()[0]) == daemon.process.pid


@pytest.mark.parametrize("kind", [[], ["--system"]], ids=["own", "system"])
@pytest.mark.parametrize("fault", ["wrong", "gone"])
def test_the_settings_of_the_last_good_reload_hold_after_a_crash(make_daemon, kind, fault):
    """The supervisor has read the file at the start, and does not know what a reload read later."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carved-test-"))  # the worker's user can read it
    config = place / "carved.json"
    config.write_text("{}")
    config.chmod(0o644)
    daemon = make_daemon(args=[*kind, "--config", config], dir=place)
    limits = daemon.call("GET", "/v1/limits").json
    config.write_text('{"defaults": {"vram": "10GiB", "sessions": 10}, "session_timeout_max": "1h"}')
    daemon.reload()
    wait_until(lambda: daemon.call("GET", "/v1/limits").json != limits)
    limits = daemon.call("GET", "/v1/limits").json
    for _ in range(2):
        config.write_text("{bad") if fault == "wrong" else config.unlink(missing_ok=True)
        daemon.reload()
        wait_until(lambda: daemon.call("GET", "/v1/version").json["config_error"])
        daemon.restart()
        assert daemon.call("GET", "/v1/limits").json == limits
        assert daemon.call("GET", "/v1/version").json["config_error"]
    config.write_text('{"defaults": {"vram": "20GiB"}}')
    config.chmod(0o644)
    daemon.restart()
    assert daemon.call("GET", "/v1/limits").json != limits
    assert not daemon.call("GET", "/v1/version").json["config_error"]


def test_a_command_that_meets_the_dying_worker_of_a_killed_supervisor_starts_both(host):
    """The worker may answer its socket when the command chooses it, and is gone when it is asked."""
    runtime = pathlib.Path(host.env["CARVE_RUNTIME_DIR"])
    for _ in range(5):
        assert host.carve("session", "list").returncode == 0
        os.kill(int((runtime / "lock").read_text().split()[0]), signal.SIGKILL)
        done = host.carve("session", "list")
        assert done.returncode == 0, done.stderr


def test_the_worker_has_the_name_of_the_daemon_and_ends_with_its_supervisor(daemon):
    names = [pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in (daemon.pid, daemon.process.pid)]
    assert names == ["carved", "carve-supervise"]  # `pkill carved` ends it in order
    worker = daemon.pid
    daemon.process.kill()
    daemon.process.wait()
    wait_until(lambda: process_ended(worker))
    daemon.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("who", ["worker", "supervisor"])
def test_either_process_can_be_told_to_end(daemon, who, number):
    daemon.grant(vram="4")
    os.kill(daemon.pid if who == "worker" else daemon.process.pid, number)
    assert daemon.process.wait(60) == 0
    assert not (daemon.runtime / "carved.sock").exists() and not (daemon.runtime / "lock").read_text()
    daemon.start()


def test_ledgers_outlive_a_daemon_that_ended_in_order(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    daemon.process.terminate()
    assert daemon.process.wait(60) == 0
    wait_until(lambda: len(keepers(daemon.runtime)) == 1)  # it has its name when it was executed
    daemon.start()
    wait_until(lambda: keepers(daemon.runtime) == [])
    assert daemon.show(session)["gpus"][0]["used_bytes"] == GIB and daemon.show(session)["pids"] == [child.pid]
    child.say(f"charge {MIB}")
    assert daemon.show(session)["gpus"][0]["used_bytes"] == GIB + MIB == ledger.committed()


def test_the_limits_can_be_changed_and_the_slots_given_after_a_restart(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    daemon.restart()
    assert daemon.call("PATCH", f"/v1/sessions/{session}", {"vram": "6"}).status == 200
    second = make_child(daemon, session)
    assert (second.status, second.slot) == (OK, 2)
    a = Attached(daemon)
    assert a.ask(OBSERVE, session)[0] == OK
    # The descriptors that workloads are handed are read-only, as before.
    assert fcntl.fcntl(a.fds[0], fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    assert os.fstat(a.fds[0]).st_mode & 0o777 == 0o400
    a.close()


def test_a_lost_ledger_is_nobodys_until_its_processes_have_ended(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    other = make_child(daemon, session)
    child.say(f"charge {GIB}")
    daemon.lose()
    daemon.start()
    shown = daemon.show(session)
    assert sorted(shown["pids"]) == sorted([child.pid, other.pid]) and shown["ledger"] == "lost"
    assert daemon.gpu()["available_bytes"] == 76 * GIB  # it is still promised
    for kind in (WORKLOAD, OBSERVE):
        a = Attached(daemon)
        status, _, message = a.ask(kind, session)
        assert status == FAILED and "ledger was lost" in message
        a.close()
    assert child.say(f"charge {MIB}") == "ok"  # they go on, within their limits
    refused = daemon.release(session)
    assert refused.status == 409 and str(child.pid) in refused.error["message"]
    daemon.restart()  # known for as long as they live
    assert sorted(daemon.show(session)["pids"]) == sorted([child.pid, other.pid])
    owner = Attached(daemon)  # keeps the one-off alive
    assert owner.ask(COMMAND, session)[0] == OK
    child.kill()
    wait_until(lambda: daemon.show(session)["pids"] == [other.pid])
    other.kill()
    wait_until(lambda: daemon.show(session)["pids"] == [])
    third = make_child(daemon, session)
    assert (third.status, third.slot) == (OK, 1)
    assert daemon.show(session)["ledger"] == "open" and daemon.show(session)["gpus"][0]["used_bytes"] == 0
    owner.close()


def test_processes_of_a_lost_ledger_are_ended_by_force(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    daemon.lose()
    daemon.start()
    assert daemon.release(session, force=True).status == 200
    assert child.process.wait(60) == -signal.SIGTERM


def test_a_ledger_whose_processes_died_with_everything_is_made_anew(daemon, make_child):
    session = daemon.request(vram="4", ephemeral=False).json["id"]
    child = make_child(daemon, session)
    child.say(f"charge {GIB}")
    daemon.lose()
    child.kill()
    daemon.start()
    assert daemon.show(session)["pids"] == [] and daemon.show(session)["ledger"] == "none"
    assert make_child(daemon, session).status == OK


def test_a_daemon_without_ledgers_leaves_nothing_behind(daemon):
    daemon.grant(vram="4")
    daemon.stop()
    assert keepers(daemon.runtime) == [] and not (daemon.runtime / "descriptors.sock").exists()
    daemon.start()


def test_descriptors_that_are_left_end_with_their_directory(daemon, make_child):
    attached(daemon, make_child)
    daemon.stop()
    wait_until(lambda: keepers(daemon.runtime))
    pid, = keepers(daemon.runtime)
    shutil.rmtree(daemon.runtime)
    wait_until(lambda: process_ended(pid))
    daemon.start()


@pytest.mark.parametrize("way", ["mapping", "descriptor"])
def test_descriptors_that_are_left_end_with_the_last_program_that_has_a_ledger(daemon, make_child, way):
    """Two have one. A descriptor that nobody has mapped counts, too."""
    session = daemon.request(vram="4", ephemeral=False).json["id"]
    child, other = make_child(daemon, session), Attached(daemon)
    assert other.ask(WORKLOAD, session)[0] == OK
    ledger = Ledger(other.fds[1]) if way == "mapping" else None
    if ledger:
        for fd in other.fds:
            os.close(fd)
        other.fds = []
    daemon.stop()
    wait_until(lambda: keepers(daemon.runtime))
    pid, = keepers(daemon.runtime)
    child.kill()
    with pytest.raises(subprocess.TimeoutExpired):  # it looks every two seconds
        subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=5)
    if ledger:
        ledger.map.close()
    other.close()
    wait_until(lambda: process_ended(pid))
    assert not (daemon.runtime / "descriptors.sock").exists()
    daemon.start()


def test_notices_of_other_processes_change_nothing(daemon, make_child):
    """Of the same user, even: the kernel says who sent them."""
    session, child, _ = attached(daemon, make_child)
    dice = random.Random(7)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.connect(str(daemon.runtime / "notify.sock"))
        for text in [b"STOPPING=1", b"READY=1", *(f"FDSTOREREMOVE=1\nFDNAME={n}".encode() for n in names_of(session))]:
            s.send(text)
        for name in (f"{session}.ledger", "s-nobody.ledger"):
            with open("/dev/null") as null:
                socket.send_fds(s, [f"FDSTORE=1\nFDNAME={name}".encode()], [null.fileno()])
        for i in range(50):
            socket.send_fds(s, [bytes(dice.randrange(256) for _ in range(dice.randint(1, 2000)))], [0, 1, 2][:i % 4])
    fds = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    daemon.restart()
    assert daemon.show(session)["pids"] == [child.pid] and daemon.show(session)["ledger"] == "open"
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= fds)


@pytest.mark.usefixtures("another_user")
def test_another_user_reaches_neither_notices_nor_what_was_left(daemon, make_child):
    attached(daemon, make_child)
    script = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))\n"
              "try: s.connect(sys.argv[1])\nexcept PermissionError: print('refused')\nelse: print('connected', s.recv(100))")

    def tries(name, kind):
        return subprocess.run(["/usr/bin/python3", "-c", script, daemon.runtime / name, kind], user=65534, group=65534,
                              capture_output=True, text=True, timeout=60).stdout.strip()

    for directory in (daemon.runtime, daemon.dir):
        directory.chmod(0o755)  # as a system daemon's is
    assert tries("notify.sock", "SOCK_DGRAM") == "refused"
    daemon.stop()
    assert tries("descriptors.sock", "SOCK_SEQPACKET") == "refused"
    daemon.runtime.chmod(0o700)
    daemon.start()


def test_a_worker_that_fails_at_its_start_is_told_of_and_tried_again(daemon):
    """Not the first one: whoever starts a daemon reads why it does not serve (test_damaged_database)."""
    daemon.grant(vram="4", ephemeral=False)
    (daemon.runtime / "carve.db").rename(daemon.runtime / "away")
    daemon.process.send_signal(signal.SIGSTOP)
    os.kill(daemon.pid, signal.SIGKILL)
    for name in ("carve.db", "carve.db-wal", "carve.db-shm"):
        (daemon.runtime / name).unlink(missing_ok=True)
    (daemon.runtime / "carve.db").write_text("no database")
    daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: daemon.log().count("worker.ended status=1") > 2)
    assert daemon.process.poll() is None
    (daemon.runtime / "carve.db").unlink()
    daemon.wait_for_worker()


# ---- systemd in its place ----

def end(daemon):
    """Here the process that was started is the worker."""
    daemon.process.kill()
    daemon.process.wait()
    daemon.worker = None


@pytest.fixture
def supervised(daemon, tmp_path):
    """A daemon whose supervisor keeps descriptors."""
    daemon.process.terminate()
    daemon.process.wait(60)
    (daemon.runtime / "carved.sock").unlink(missing_ok=True)
    supervisor = Systemd(tmp_path / "notify")
    supervisor.start(daemon)
    yield daemon, supervisor
    supervisor.stop()


def test_the_supervisor_keeps_ledgers_where_it_says_so(supervised, make_child):
    daemon, supervisor = supervised
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    child.say(f"charge {GIB}")
    wait_until(lambda: supervisor.names() == names_of(session))
    for _ in range(3):
        end(daemon)
        (daemon.runtime / "carved.sock").unlink()
        supervisor.start(daemon)
        shown = daemon.show(session)
        assert shown["pids"] == [child.pid] and shown["gpus"][0]["used_bytes"] == GIB and shown["ledger"] == "open"
        assert len([name for name, _ in supervisor.store if "claim" not in name]) == len(PARTS)
    assert daemon.release(session, force=True).status == 200
    wait_until(lambda: supervisor.names() == [])


def test_a_service_whose_state_directory_is_gone_for_good_starts_anew_with_its_sessions(supervised, make_child, tmp_path):
    """Its sandbox cannot make the directory anew; the next start can."""
    daemon, supervisor = supervised
    daemon.process.terminate()
    daemon.process.wait(60)
    state = tmp_path / "above" / "state"
    for file in daemon.runtime.glob("carve.db*"):
        file.unlink()
    supervisor.start(daemon, "--state-dir", state)
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    child.say(f"charge {GIB}")
    shutil.rmtree(state.parent)
    state.parent.symlink_to("/proc")
    assert daemon.process.wait(60) == 1
    state.parent.unlink()
    supervisor.start(daemon, "--state-dir", state)
    shown = daemon.show(session)
    assert shown["pids"] == [child.pid] and shown["gpus"][0]["used_bytes"] == GIB and shown["ledger"] == "open"
    assert "state.restored file=carve.db" in daemon.log() and "state.restored file=queue.db" in daemon.log()
    wait_until(lambda: supervisor.names() == names_of(session))


def test_an_upgrade_under_systemd_is_its_restart_and_stores_nothing_twice(supervised, make_child):
    daemon, supervisor = supervised
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    asked = subprocess.Popen([BUILD / "carved", "--runtime-dir", daemon.runtime, "--takeover"], env=daemon.env(),
                             stdout=subprocess.PIPE, text=True)
    assert daemon.process.wait(60) == 75
    supervisor.start(daemon)
    assert asked.communicate(timeout=60)[0].startswith("carved ") and asked.returncode == 0
    second = daemon.grant(vram="4")["id"]
    make_child(daemon, second)
    wait_until(lambda: supervisor.names() == names_of(session, second))
    assert len([name for name, _ in supervisor.store if "claim" not in name]) == 2 * len(PARTS)
    assert daemon.show(session)["pids"] == [child.pid]


def test_descriptors_under_the_right_names_are_checked(supervised, make_child):
    """Names and sizes are right; seals, or what is inside, are not. What belongs to no session is dropped."""
    daemon, supervisor = supervised
    for wrong in ("unsealed", "empty", "another"):
        session = daemon.grant(vram="4")["id"]
        child = make_child(daemon, session)
        wait_until(lambda: set(names_of(session)) <= set(supervisor.names()))
        end(daemon)
        for i, (name, held) in enumerate(supervisor.store):
            if name not in (f"{session}.limits", f"{session}.ledger"):
                continue
            size = os.fstat(held).st_size
            fd = os.memfd_create(name, os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            if wrong != "empty":
                os.pwrite(fd, os.pread(held, size, 0), 0)
            if wrong == "another":
                os.pwrite(fd, b"s-others\0", 16)
            if wrong != "unsealed":
                fcntl.fcntl(fd, 1033, 7)  # F_ADD_SEALS
            os.close(held)
            supervisor.store[i] = (name, fd)
        supervisor.store.append(("s-nobody.ledger", os.open("/dev/null", os.O_RDONLY)))
        supervisor.start(daemon)
        assert f"ledger.rejected id={session}" in daemon.log()
        assert daemon.show(session)["pids"] == [child.pid] and daemon.show(session)["ledger"] == "lost"
        wait_until(lambda: "s-nobody.ledger" not in supervisor.names())


def test_a_supervisor_that_is_slow_to_read_hears_that_the_daemon_serves(daemon, tmp_path):
    """The kernel queues few messages at a socket; a host of many GPUs fills that queue with their names."""
    daemon.kill()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        notify.bind(str(tmp_path / "notify"))
        other.connect(str(tmp_path / "notify"))
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.send(b"X=1")
        daemon.process = subprocess.Popen(
            ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", BUILD / "carved", "--runtime-dir", daemon.runtime, "--foreground"],
            env=dict(daemon.env(), NOTIFY_SOCKET=str(tmp_path / "notify"), FDSTORE="1000", LISTEN_FDS="0", LISTEN_FDNAMES=""),
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: Systemd.serves(daemon))
        notify.settimeout(60)
        wait_until(lambda: b"READY=1" in notify.recv(4096), timeout=30)
        daemon.process.terminate()
        assert daemon.process.wait(60) == 0
    daemon.start()
