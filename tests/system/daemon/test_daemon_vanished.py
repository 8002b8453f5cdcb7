"""Files of the daemon that somebody removes while it runs, as cleaners of /tmp do."""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from child import make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, rest_long, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from takeover import upgrade


def living(daemon):
    return {s["id"]: s["vram_bytes"] for s in daemon.call("GET", "/v1/sessions").json}


def told(daemon, name):
    return f"runtime.vanished file={name} made=anew" in daemon.log()


def test_the_attach_socket_is_made_anew(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    first = make_child(daemon, session)
    for round in (1, 2):
        (daemon.runtime / "attach.sock").unlink()
        wait_until(lambda: (daemon.runtime / "attach.sock").exists())
        wait_until(lambda: daemon.log().count("file=attach.sock made=anew") == round)
        other = make_child(daemon, session)
        wait_until(lambda: sorted(daemon.show(session)["pids"]) == sorted([first.pid, other.pid]))
        os.kill(other.pid, signal.SIGKILL)
        wait_until(lambda: daemon.show(session)["pids"] == [first.pid])
    assert (daemon.runtime / "attach.sock").samefile(daemon.runtime / "containers/attach.sock")


def test_the_socket_of_commands_is_made_anew(daemon):
    session = daemon.grant(vram="4")["id"]
    for _ in range(2):
        pid = daemon.pid
        (daemon.runtime / "carved.sock").unlink()
        wait_until(lambda: (daemon.runtime / "carved.sock").exists())
        daemon.wait_for_worker(pid)
        assert session in living(daemon)
    assert told(daemon, "carved.sock")
    # Connections to the new socket are taken for those of TCP by the library that answers them.
    subprocess.run([BUILD / "carve", "session", "list", "--host", daemon.runtime / "carved.sock"], check=True, capture_output=True)
    assert "TCP" not in daemon.log() and " http " not in daemon.log()
    daemon.restart()
    assert session in living(daemon)


@pytest.mark.parametrize("names", rest_long([["carve.db", "carve.db-wal", "carve.db-shm", "queue.db"], ["carve.db"], ["carve.db-wal"]]))
def test_the_database_is_written_anew(daemon, make_child, names):
    kept = daemon.grant(vram="4")["id"]
    child = make_child(daemon, kept)
    for name in names:
        (daemon.runtime / name).unlink()
    pid = daemon.worker
    wait_until(lambda: told(daemon, names[0]))
    daemon.wait_for_worker(pid)
    after = daemon.grant(vram="2", ephemeral=True, kept=False)["id"]
    make_child(daemon, after)
    daemon.restart()
    assert {kept, after} == set(living(daemon)) and daemon.show(kept)["pids"] == [child.pid]
    assert (daemon.runtime / "carve.db").stat().st_mode & 0o777 == 0o600


def test_a_directory_that_is_removed_is_made_anew(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    shutil.rmtree(daemon.runtime)
    wait_until(lambda: (daemon.runtime / "carved.sock").exists() and (daemon.runtime / "carve.db").exists())
    wait_until(lambda: living(daemon).get(session))
    assert daemon.runtime.stat().st_mode & 0o777 == 0o700
    # Its lock keeps a second daemon out.
    second = subprocess.run([BUILD / "carved", "--runtime-dir", daemon.runtime, "--foreground"], capture_output=True,
                            text=True, env=daemon.env(), timeout=60)
    assert second.returncode == 1 and "already" in second.stderr
    daemon.restart()
    assert daemon.show(session)["pids"] == [child.pid]


def its_name(daemon):
    inodes = set()
    for fd in os.listdir(f"/proc/{daemon.process.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}"))
    sockets = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {s[7] for s in sockets if len(s) > 7 and f"socket:[{s[6]}]" in inodes and s[7].startswith("@carve-directory-")}


def ask_second_daemon_for_sessions(daemon):
    """`rm -rf` of the directory, and a command before the daemon has noticed; the IDs that it lists."""
    names = its_name(daemon)
    daemon.process.send_signal(signal.SIGSTOP)
    shutil.rmtree(daemon.runtime)
    command = subprocess.Popen([BUILD / "carve", "session", "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=dict(daemon.env(), CARVE_RUNTIME_DIR=str(daemon.runtime)))
    try:
        # It waits until the first one has looked at its files.
        wait_until(lambda: sum(line.split()[-1] in names for line in pathlib.Path("/proc/net/unix").read_text().splitlines()) > 1)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 0, err
    return [s["id"] for s in json.loads(out)]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["state-in-it", "state-elsewhere"])
def test_a_second_daemon_leaves_a_removed_directory_to_the_first(make_daemon, make_child, tmp_path, elsewhere):
    daemon = make_daemon(args=["--state-dir", str(tmp_path / "state")] if elsewhere else [])
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    assert ask_second_daemon_for_sessions(daemon) == [session]
    upgrade(daemon)
    assert ask_second_daemon_for_sessions(daemon) == [session]
    daemon.restart()
    assert daemon.show(session)["pids"] == [child.pid]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_daemon_in_another_root_directory_serves_its_own_directory_of_the_same_path(make_daemon, tmp_path):
    """A chroot: the same path is another directory there."""
    daemon = make_daemon()
    root = tmp_path / "root"
    root.mkdir()
    script = f"""set -e
        trap 'kill $first $second 2> /dev/null; wait' EXIT
        mount --rbind / {root}
        mount -t tmpfs none {root}{daemon.dir}
        cp {daemon.dir}/state {root}{daemon.dir}/
        chroot {root} {BUILD}/carved --runtime-dir {daemon.runtime} --ready-fd 3 3>{tmp_path}/second & second=$!
        {BUILD}/carved --runtime-dir {daemon.runtime} --ready-fd 3 3>{tmp_path}/first & first=$!
        while [ ! -s {tmp_path}/first ] || [ ! -s {tmp_path}/second ]; do
            kill -0 $first && kill -0 $second || exit 1; sleep 0.05; done"""
    daemon.kill()
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script], env=daemon.env(), timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_user_who_took_the_name_keeps_no_daemon_from_starting(daemon, another_user):
    session = daemon.grant(vram="4")["id"]
    name = its_name(daemon).pop().replace("@", "\\0", 1)
    daemon.kill()
    thief = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                              "import socket; s = socket.socket(socket.AF_UNIX); "
                              f"s.bind('{name}'); s.listen(0); print('up', flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert thief.stdout.readline() == "up\n"
    daemon.start()
    assert session in living(daemon) and not its_name(daemon)
    thief.communicate("\n", timeout=60)


def test_another_daemon_in_its_place_is_left_alone(daemon):
    lock = daemon.runtime / "lock"
    lock.rename(daemon.runtime / "away")
    lock.write_text("")
    with open(lock) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert daemon.process.wait(60) == 1
    assert "supervisor.gives_up" in daemon.log() and f"serves {daemon.runtime} already" in daemon.log()


def test_the_directory_is_locked_against_cleaners(daemon):
    held = os.open(daemon.runtime, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(held)
