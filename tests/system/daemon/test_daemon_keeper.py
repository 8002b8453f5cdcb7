"""Ledgers are kept where the daemon's death does not reach: by a keeper process, or by the supervisor."""
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from child import attached, make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, clean_env, run, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from takeover import upgrade

PARTS = ("ledger", "limits", "view", "wake")


def names_of(*sessions):
    return sorted(f"{session}.{part}" for session in sessions for part in PARTS)


def keeper_of(daemon):
    """The one; the process that starts it ends at once."""
    return wait_until(lambda: len(found := keepers(daemon.runtime)) == 1 and found[0])


def kept(daemon):
    """Names; None while no keeper answers."""
    try:
        keeper = Keeper(daemon.runtime)
        names = keeper.names()
    except (ConnectionError, FileNotFoundError, TypeError):
        return None
    keeper.close()
    return names


def test_a_keeper_runs_from_the_first_ledger_on_until_there_is_none(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    assert keepers(daemon.runtime) == []
    child = make_child(daemon, session)
    pid = keeper_of(daemon)
    assert pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "carve-keeper"  # `pkill carved` does not end it
    assert pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1] != str(daemon.process.pid)
    other = daemon.grant(vram="4")["id"]
    make_child(daemon, other)
    keeper = Keeper(daemon.runtime)
    assert keeper.names() == names_of(session, other) and keepers(daemon.runtime) == [pid]
    assert daemon.release(other, force=True).status == 200
    wait_until(lambda: keeper.names() == names_of(session))
    keeper.close()
    child.kill()
    assert daemon.release(session, force=True).status in (200, 404)  # the one-off ended with its process
    daemon.process.terminate()
    assert daemon.process.wait(60) == 0
    wait_until(lambda: keepers(daemon.runtime) == [])


def test_a_daemon_without_ledgers_has_no_keeper_and_needs_none(daemon):
    daemon.grant(vram="4")
    daemon.restart()
    daemon.restart()
    assert keepers(daemon.runtime) == [] and not (daemon.runtime / "keeper").exists()


def test_ledgers_outlive_a_daemon_that_ended_in_order(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    daemon.process.terminate()
    assert daemon.process.wait(60) == 0
    assert len(keepers(daemon.runtime)) == 1
    daemon.start()
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


def test_a_keeper_that_is_killed_is_replaced_and_has_all_again(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    for _ in range(3):
        before = keeper_of(daemon)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: keeper_of(daemon) != before and kept(daemon) == names_of(session))
        daemon.restart()
        assert daemon.show(session)["gpus"][0]["used_bytes"] == GIB and daemon.show(session)["pids"] == [child.pid]


@pytest.mark.long
def test_kills_of_daemon_and_keeper_in_any_order(daemon, make_child):
    """One at a time, whatever they are at: no ledger is lost."""
    dice, sessions = random.Random(20), {}
    for i in range(30):
        if i % 6 == 0:
            session = daemon.grant(vram="2")["id"]
            sessions[session] = make_child(daemon, session)
        dice.choice(list(sessions.values())).say(f"charge {MIB}")
        if dice.random() < 0.5:
            os.kill(keeper_of(daemon), signal.SIGKILL)
            wait_until(lambda: kept(daemon) == names_of(*sessions))
        else:
            daemon.restart()
    shown = {s["id"]: s for s in daemon.call("GET", "/v1/sessions").json}
    assert sum(s["gpus"][0]["used_bytes"] for s in shown.values()) == 30 * MIB
    assert {id: s["pids"] for id, s in shown.items()} == {id: [child.pid] for id, child in sessions.items()}


def lose(daemon):
    """Both at once."""
    keeper = keeper_of(daemon)
    os.kill(keeper, signal.SIGSTOP)
    daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: keepers(daemon.runtime) == [])


def test_a_lost_ledger_is_nobodys_until_its_processes_have_ended(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    other = make_child(daemon, session)
    child.say(f"charge {GIB}")
    lose(daemon)
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
    lose(daemon)
    daemon.start()
    assert daemon.release(session, force=True).status == 200
    assert child.process.wait(60) == -signal.SIGTERM


def test_a_ledger_whose_processes_died_with_everything_is_made_anew(daemon, make_child):
    session = daemon.request(vram="4", ephemeral=False).json["id"]
    child = make_child(daemon, session)
    child.say(f"charge {GIB}")
    lose(daemon)
    child.kill()
    daemon.start()
    assert daemon.show(session)["pids"] == [] and daemon.show(session)["ledger"] == "none"
    assert make_child(daemon, session).status == OK


def test_a_descriptor_that_another_program_gave_the_keeper_is_checked(daemon, make_child):
    """Names and sizes are right; seals, or what is inside, are not."""
    for wrong in ("unsealed", "empty", "another"):
        session, child, _ = attached(daemon, make_child)
        keeper = Keeper(daemon.runtime)
        held = keeper.held()
        for part in ("limits", "ledger"):
            size = os.fstat(held[f"{session}.{part}"]).st_size
            fd = os.memfd_create(part, os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            if wrong != "empty":
                os.pwrite(fd, os.pread(held[f"{session}.{part}"], size, 0), 0)
            if wrong == "another":
                os.pwrite(fd, b"s-others\0", 16)
            if wrong != "unsealed":
                fcntl.fcntl(fd, 1033, 7)  # F_ADD_SEALS
            keeper.send(Keeper.PUT, f"{session}.{part}", [fd])
            os.close(fd)
        for fd in held.values():
            os.close(fd)
        keeper.close()
        daemon.restart()
        assert f"ledger.rejected id={session}" in daemon.log()
        assert daemon.show(session)["pids"] == [child.pid] and daemon.show(session)["ledger"] == "lost"


def test_a_ledger_kept_for_no_session_is_dropped(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    keeper = Keeper(daemon.runtime)
    with open("/dev/null") as null:
        for name in ("s-nobody.ledger", f"{session}.other", "x"):
            keeper.send(Keeper.PUT, name, [null.fileno()])
    daemon.restart()
    wait_until(lambda: keeper.names() == names_of(session))
    keeper.close()


def test_messages_that_no_daemon_sends_end_that_connection_alone(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    pid, dice = keeper_of(daemon), random.Random(7)
    for i in range(100):
        keeper = Keeper(daemon.runtime)
        message = bytes(dice.randrange(256) for _ in range(dice.randint(0, 100)))
        socket.send_fds(keeper.socket, [message], [0, 1, 2][:i % 4])
        assert keeper.receive() is None
        keeper.close()
    keeper = Keeper(daemon.runtime)
    keeper.send(Keeper.PUT, "name.without", [])
    op, error, name, _ = keeper.receive()
    assert (op, name) == (Keeper.REFUSED, "name.without") and error
    keeper.send(Keeper.PUT, "../Name", [0])
    assert keeper.receive() is None
    keeper.close()
    # More connections than there is room for: those who are there stay.
    many = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(12)]
    for s in many:
        s.settimeout(5)
        s.connect(str(daemon.runtime / "keeper" / "socket"))
    for s in many:
        s.close()
    assert keeper_of(daemon) == pid and daemon.show(session)["ledger"] == "open"
    daemon.restart()
    assert daemon.show(session)["pids"] == [child.pid]


def test_another_user_is_turned_away(daemon, make_child):
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    session, _, _ = attached(daemon, make_child)
    place = daemon.runtime / "keeper"
    assert place.stat().st_mode & 0o777 == 0o700
    for directory in (place, daemon.runtime, daemon.dir):
        directory.chmod(0o755)  # what an administrator should not do
    (place / "socket").chmod(0o777)
    script = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\n"
              "print(s.recv(64))")
    done = subprocess.run(["/usr/bin/python3", "-c", script, place / "socket"], user=65534, group=65534,
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "b''", done.stderr
    place.chmod(0o700)


def test_a_keeper_that_hangs_is_replaced(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    hung = keeper_of(daemon)
    os.kill(hung, signal.SIGSTOP)
    try:
        daemon.restart()
        assert daemon.show(session)["ledger"] == "lost" and "keeper.silent" in daemon.log()
        other = daemon.grant(vram="2")["id"]
        make_child(daemon, other)
        assert kept(daemon) == names_of(other)
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_until(lambda: hung not in keepers(daemon.runtime))


def test_a_keeper_ends_with_its_directory(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    pid = keeper_of(daemon)
    daemon.kill()
    assert keeper_of(daemon) == pid
    shutil.rmtree(daemon.runtime)
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    daemon.start()


def test_a_keeper_ends_when_a_directory_above_it_has_another_name(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    pid = keeper_of(daemon)
    daemon.kill()
    moved = daemon.dir.with_name(daemon.dir.name + "-moved")
    daemon.dir.rename(moved)
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    moved.rename(daemon.dir)
    daemon.start()


def test_a_simulated_host_leaves_no_keeper_behind(tmp_path, examples):
    """One that is killed, too."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        script = f'{BUILD}/carve run --vram 2 -- {examples}/hog 600 > /dev/null & sleep 0.1; echo $CARVE_RUNTIME_DIR; exec cat'
        host = subprocess.Popen([BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", "sh", "-c", script],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_env(), text=True, start_new_session=True)
        runtime = host.stdout.readline().strip()
        wait_until(lambda: keepers(runtime))
        host.send_signal(number)
        host.stdin.close()
        host.wait(60)
        wait_until(lambda: keepers(runtime) == [])
        host.stdout.close()
        try:
            os.killpg(host.pid, signal.SIGKILL)  # the command, which works on
        except ProcessLookupError:
            pass


def test_upgrades_keep_the_keeper(daemon, make_child):
    session, child, _ = attached(daemon, make_child)
    pid = keeper_of(daemon)
    for _ in range(3):
        upgrade(daemon)
    assert keeper_of(daemon) == pid and kept(daemon) == names_of(session)
    child.say(f"charge {MIB}")
    daemon.restart()
    assert daemon.show(session)["gpus"][0]["used_bytes"] == MIB and daemon.show(session)["pids"] == [child.pid]


def test_help_and_wrong_usage():
    done = run([BUILD / "carve-keeper", "--help"])
    assert done.returncode == 0 and "usage: carve-keeper DIR" in done.stdout
    assert run([BUILD / "carve-keeper", "--version"]).stdout.startswith("carve-keeper ")
    for wrong in ([], ["relative"], ["/tmp"], ["/tmp", "x"]):
        done = run([BUILD / "carve-keeper", *wrong])
        assert done.returncode == 2 and "--help" in done.stderr


# ---- the supervisor ----

class Supervisor:
    """Plays systemd with FDSTORE=1: keeps descriptors by name, and hands them to the next start of the service."""

    def __init__(self, path):
        self.store = []  # (name, descriptor), in order
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 16)
            said = dict(line.split("=", 1) for line in data.decode().splitlines())
            with self.lock:
                if said.get("FDSTORE") == "1":
                    assert said["FDPOLL"] == "0"
                    for fd in fds:
                        same = [f for n, f in self.store if n == said["FDNAME"] and os.path.sameopenfile(f, fd)]
                        self.store += [] if same else [(said["FDNAME"], fd)]
                if said.get("FDSTOREREMOVE") == "1":
                    for name, fd in [e for e in self.store if e[0] == said["FDNAME"]]:
                        self.store.remove((name, fd))
                        os.close(fd)
            if said.get("TEST") == "stop":
                return

    def names(self):
        with self.lock:
            return sorted({name for name, _ in self.store})

    def start(self, daemon, *options):
        """As descriptors from 3 on, with the process's own PID."""
        with self.lock:
            store = list(self.store)
        log = open(daemon.dir / "log", "a")

        def become():
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 500) for _, fd in store]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)

        env = dict(daemon.env(), NOTIFY_SOCKET=self.path, FDSTORE="1000", LISTEN_FDS=str(len(store)),
                   LISTEN_FDNAMES=":".join(name for name, _ in store))
        shell = 'export LISTEN_PID=$$; exec "$@"'
        daemon.process = subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", BUILD / "carved", "--runtime-dir", daemon.runtime, "--foreground", *options], env=env,
            stdin=subprocess.DEVNULL, stderr=log, preexec_fn=become, close_fds=False)
        log.close()
        wait_until(lambda: self.serves(daemon))

    @staticmethod
    def serves(daemon):
        try:
            return daemon.call("GET", "/v1/version").json["ready"]
        except (FileNotFoundError, ConnectionRefusedError):  # it is not bound yet, or does not listen yet
            return False

    def stop(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"TEST=stop", self.path)
        self.thread.join(10)
        self.socket.close()
        for _, fd in self.store:
            os.close(fd)


@pytest.fixture
def supervised(daemon, tmp_path):
    """A daemon whose supervisor keeps descriptors."""
    daemon.process.terminate()
    daemon.process.wait(60)
    (daemon.runtime / "carved.sock").unlink(missing_ok=True)
    supervisor = Supervisor(tmp_path / "notify")
    supervisor.start(daemon)
    yield daemon, supervisor
    supervisor.stop()


def test_the_supervisor_keeps_ledgers_where_it_says_so(supervised, make_child):
    daemon, supervisor = supervised
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    child.say(f"charge {GIB}")
    wait_until(lambda: supervisor.names() == names_of(session))
    assert keepers(daemon.runtime) == []
    for _ in range(3):
        daemon.kill()
        (daemon.runtime / "carved.sock").unlink()
        supervisor.start(daemon)
        shown = daemon.show(session)
        assert shown["pids"] == [child.pid] and shown["gpus"][0]["used_bytes"] == GIB and shown["ledger"] == "open"
        assert len(supervisor.store) == len(PARTS)
    assert daemon.release(session, force=True).status == 200
    wait_until(lambda: supervisor.names() == [])


def test_a_service_whose_state_directory_is_gone_for_good_starts_anew_with_its_sessions(supervised, make_child, tmp_path):
    """Its sandbox cannot make the directory anew; the next start can."""
    daemon, supervisor = supervised
    daemon.process.terminate()
    daemon.process.wait(60)
    state = tmp_path / "above" / "state"
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


def test_an_upgrade_under_a_supervisor_stores_nothing_twice(supervised, make_child):
    daemon, supervisor = supervised
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    for _ in range(2):
        upgrade(daemon)
    second = daemon.grant(vram="4")["id"]
    make_child(daemon, second)
    wait_until(lambda: supervisor.names() == names_of(session, second))
    assert len(supervisor.store) == 2 * len(PARTS)
    daemon.kill()
    (daemon.runtime / "carved.sock").unlink()
    supervisor.start(daemon)
    assert daemon.show(session)["pids"] == [child.pid]


def listening(path, kind):
    made = socket.socket(socket.AF_UNIX, kind)
    path.unlink(missing_ok=True)
    made.bind(str(path))
    made.listen()
    return made


def test_sockets_made_in_place_of_the_supervisors_outlive_the_daemon(supervised):
    """The files of its sockets are removed. Clients of a daemon that is killed wait at the new ones for the next one."""
    daemon, supervisor = supervised
    daemon.kill()
    http = listening(daemon.runtime / "carved.sock", socket.SOCK_STREAM)
    attach = listening(daemon.runtime / "attach.sock", socket.SOCK_SEQPACKET)
    supervisor.store += [("http", os.dup(http.fileno())), ("attach", os.dup(attach.fileno()))]
    supervisor.start(daemon)
    assert supervisor.names() == ["attach", "http"]
    log = daemon.dir / "log"
    for _ in range(2):
        count = log.read_text().count("made=anew")
        for name in ("carved.sock", "attach.sock"):
            (daemon.runtime / name).unlink()
        wait_until(lambda: log.read_text().count("made=anew") == count + 2)
        wait_until(lambda: supervisor.names() == ["anew-attach", "anew-http", "attach", "http"])
        inode = (daemon.runtime / "carved.sock").stat().st_ino
        for _ in range(2):
            daemon.kill()
            waits = socket.socket(socket.AF_UNIX)
            waits.connect(str(daemon.runtime / "carved.sock"))  # not refused
            waits.sendall(b"GET /v1/version HTTP/1.1\r\nHost: carve\r\nConnection: close\r\n\r\n")
            supervisor.start(daemon)
            waits.settimeout(60)
            assert waits.recv(12) == b"HTTP/1.1 200"
            waits.close()
            assert (daemon.runtime / "carved.sock").stat().st_ino == inode
            told = wait_until(lambda: daemon.call("GET", "/v1/version").json["vanished"])
            assert told["made_anew"] == 2 and told["file"] == "carved.sock"
    # The supervisor's are bound anew: those of the daemon are of no use any more.
    daemon.kill()
    supervisor.store = [(name, fd) for name, fd in supervisor.store if name not in ("attach", "http")]
    again = listening(daemon.runtime / "carved.sock", socket.SOCK_STREAM)
    too = listening(daemon.runtime / "attach.sock", socket.SOCK_SEQPACKET)
    supervisor.store += [("http", os.dup(again.fileno())), ("attach", os.dup(too.fileno()))]
    supervisor.start(daemon)
    wait_until(lambda: supervisor.names() == ["attach", "http"])
    assert daemon.call("GET", "/v1/version").json["vanished"] is None
    for made in (http, attach, again, too):
        made.close()
