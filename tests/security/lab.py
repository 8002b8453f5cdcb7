"""The lab: a simulated host, a system daemon, and separate users who do not trust each other.

Users are plain numeric IDs, so nothing on the machine is changed. A test plays each user by setpriv(1), which gives a
process exactly that user's rights: no capabilities, no supplementary groups but those that are named."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import socket
import sys
import tempfile
import time

from cgroups import MOUNT, cgroup_of, pids_cgroup
from conftest import BUILD, clean_env, process_ended, run, wait_until
from unit import rights_of_the_unit

CARVE = BUILD / "carve"
CARVED = BUILD / "carved"
PROGRAMS = BUILD / "tests" / "programs"
EXAMPLES = BUILD / "examples"
SYSTEM = pathlib.Path(__file__).resolve().parents[1] / "system"
MIB = 1 << 20
GIB = 1 << 30

ROOT, ALICE, BOB, MALLORY = 0, 60101, 60102, 60103
NAMES = {ROOT: "root", ALICE: "alice", BOB: "bob", MALLORY: "mallory"}


def as_user(uid, groups=(), bounding=True):
    """The words before a command that make it another user's. Without `bounding` it may use set-user-ID programs."""
    if uid == ROOT:
        return []
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}",
             "--groups=" + ",".join(map(str, groups)) if groups else "--clear-groups"]
    return words + (["--inh-caps=-all", "--bounding-set=-all"] if bounding else [])


def peer_of(path):
    """(pid, uid, gid) of the process that listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))


def listens(path):
    sockets = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()]
    return any(socket[-1] == str(path) and int(socket[3], 16) & 0x10000 for socket in sockets[1:])


def fnv(data):
    """As src/base/fnv.h has it."""
    number = 0xcbf29ce484222325
    for byte in data:
        number = (number ^ byte) * 0x100000001b3 % (1 << 64)
    return number


class Lab:
    """One simulated host with `carved --system`. lab.run(user, argv...) runs a command as a user."""

    def __init__(self, host, args=(), before=(), daemon_env=None):
        self.host = host
        self.daemon_env = dict(daemon_env or {})  # beside the host's
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="carve-lab-"))
        self.dir.chmod(0o755)
        self.runtime = self.dir / "run"
        self.args = list(args)
        self.before_daemon = list(before)  # words that go before the daemon's command, as of setpriv
        self.started = []
        self.daemon = None
        for uid in (ALICE, BOB, MALLORY):
            home = self.home(uid)
            home.mkdir(mode=0o700)
            os.chown(home, uid, uid)
        host_dir = pathlib.Path(host.env["SIMGPU_HOST"])
        host_dir.chmod(0o755)
        for entry in host_dir.iterdir():
            if entry.is_socket():
                entry.chmod(0o666)
        self.start()

    def loner(self):
        """A user that no other test has at the same time, for attacks on all processes of their own user."""
        uid = 62000 + os.getpid() % 3000
        NAMES[uid] = f"user{uid}"
        self.home(uid).mkdir(mode=0o700, exist_ok=True)
        os.chown(self.home(uid), uid, uid)
        return uid

    def home(self, uid):
        """A directory that only this user may enter."""
        return self.dir / NAMES[uid]

    def env(self, uid, extra=None):
        env = dict(self.host.env)
        env.pop("CARVE_RUNTIME_DIR", None)
        env.pop("XDG_RUNTIME_DIR", None)
        env["CARVE_HOST"] = str(self.runtime / "carved.sock")
        env["HOME"] = str(self.home(uid)) if uid != ROOT else "/root"
        env.update(extra or {})
        return env

    # ---- the daemon

    def start(self):
        env = dict(self.host.env, **self.daemon_env)
        env.pop("CARVE_RUNTIME_DIR", None)
        log = open(self.dir / "log", "a")
        read, write = os.pipe()
        self.daemon = subprocess.Popen(
            [*self.before_daemon, str(CARVED), "--system", "--runtime-dir", str(self.runtime), "--foreground", "--ready-fd", str(write),
             *self.args], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[write])
        os.close(write)
        log.close()
        assert os.read(read, 1) == b"R", self.log()
        os.close(read)
        self.first = self.worker()

    def as_the_unit(self):
        """From the next start on the daemon is carved.service's: tests/system/unit.py is systemd. The warden is another unit's."""
        self.before_daemon = [sys.executable, SYSTEM / "unit.py", self.runtime, *rights_of_the_unit()]

    def start_warden(self, before=()):
        """What carve-warden.service is. `before`: words that go before its command, as of strace."""
        env = dict(self.host.env)
        env.pop("CARVE_RUNTIME_DIR", None)
        warden = subprocess.Popen([*before, CARVED, "--system", "--runtime-dir", self.runtime, "--warden", *self.args], env=env)
        self.started.append(warden)
        wait_until(lambda: listens(self.runtime / "warden.sock"))
        return warden

    def serves_still(self):
        """Whether the process that served first does: no other one had to follow on it."""
        return self.daemon.poll() is None and self.worker() == self.first

    def log(self):
        return (self.dir / "log").read_text()

    def daemon_pids(self):
        """The daemon's processes, its keeper and helpers among them: all that run its programs in its directory."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word == str(self.runtime) or word.startswith(f"{self.runtime}/") for word in line):
                found.append(int(entry.name))
        return found

    def worker(self):
        """The process that serves, which the kernel names for the socket."""
        def listening():
            pid = peer_of(self.runtime / "carved.sock")[0]
            if pid == self.daemon.pid:  # systemd listens for the service
                pid = next(iter(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), pid)
            return int(pid) if int(pid) != self.daemon.pid and not process_ended(int(pid)) else None

        return wait_until(listening)

    def supervisor(self):
        """The process that starts the other one again."""
        return self.daemon.pid

    def kill_daemon(self):
        """kill -9 of the process that serves; its supervisor is told to end before it starts another one."""
        pid = self.worker()
        self.daemon.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
        self.daemon.terminate()
        self.daemon.send_signal(signal.SIGCONT)
        self.daemon.wait()

    def kill_supervisor(self):
        """kill -9 of the process that has root's rights; the one that serves ends with it."""
        self.daemon.kill()
        self.daemon.wait()
        wait_until(self.can_lock)

    def restart(self):
        self.kill_daemon()
        wait_until(self.can_lock)
        self.start()

    def can_lock(self):
        """Nobody holds the directory any more."""
        return run(["flock", "--nonblock", self.runtime / "lock", "true"]).returncode == 0

    # ---- what users do

    def argv(self, uid, argv, groups=(), bounding=True):
        return [*as_user(uid, groups, bounding), *map(str, argv)]

    def run(self, uid, *argv, env=None, groups=(), bounding=True, **kw):
        kw.setdefault("cwd", "/")
        return run(self.argv(uid, argv, groups, bounding), env=self.env(uid, env), **kw)

    def popen(self, uid, *argv, env=None, groups=(), bounding=True, **kw):
        for name in ("stdin", "stdout", "stderr"):
            kw.setdefault(name, subprocess.PIPE)
        kw.setdefault("cwd", "/")
        process = subprocess.Popen(self.argv(uid, argv, groups, bounding), env=self.env(uid, env), text=True, **kw)
        self.started.append(process)
        return process

    def carve(self, uid, *argv, **kw):
        return self.run(uid, CARVE, *argv, **kw)

    def carve_json(self, uid, *argv, **kw):
        done = self.carve(uid, *argv, "--json", **kw)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def python(self, uid, source, *arguments, method=None, **kw):
        """Runs an attack written in Python as a user. LAB has the paths that it needs."""
        head = f"import json, os, sys; LAB = json.loads({json.dumps(json.dumps(self.paths(uid)))})\n"
        return (method or self.run)(uid, "/usr/bin/python3", "-c", head + source, *map(str, arguments), **kw)

    def paths(self, uid):
        return {"http": str(self.runtime / "carved.sock"), "attach": str(self.runtime / "attach.sock"),
                "home": str(self.home(uid)) if uid != ROOT else "/root", "programs": str(PROGRAMS),
                "runtime": str(self.runtime), "build": str(BUILD), "tests": str(SYSTEM)}

    def left_behind(self):
        """Processes of users whose environment names this lab, but for its daemon and the simulated host."""
        found, mine = [], f"{self.runtime}/".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mine in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass  # it has just ended
        return [pid for pid in found if pid != os.getpid()]

    def end_left_behind(self):
        """Programs start others, which hold their output open. One that is ended may just have started another one."""
        for _ in range(20):
            left = self.left_behind()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not left:
                return
            time.sleep(0.05)

    def terminate_daemon(self):
        """Asks all of its processes: what was started may be strace, which passes nothing on, and loses a signal as it lets go."""
        for _ in range(12):
            if self.daemon.poll() is not None:
                return
            for pid in self.daemon_pids():
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
            try:
                self.daemon.wait(5)
            except subprocess.TimeoutExpired:
                pass
        self.daemon.kill()
        self.daemon.wait()

    def remove_cgroups(self):
        """Those that the launcher made, which is killed with its daemon."""
        for jobs in self.runtime.rglob("*-jobs"):
            name = f"carve-jobs-{fnv(str(jobs).encode()):x}"
            for parent in filter(None, (MOUNT and cgroup_of("self"), pids_cgroup())):
                top = parent / name
                wait_until(lambda: not any(p.read_text() for p in top.rglob("cgroup.procs")))  # noqa: B023
                for path in sorted(top.rglob("*/"), reverse=True):
                    path.rmdir()
                if top.exists():
                    top.rmdir()

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
        self.end_left_behind()
        for process in self.started:
            process.communicate()
        self.terminate_daemon()
        for pid in self.daemon_pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        # A job that the daemon started as the others were ended goes on without it, as jobs do.
        self.end_left_behind()
        self.remove_cgroups()
        shutil.rmtree(self.dir, ignore_errors=True)
