"""carved alone, over a driver that says what a file says: what the tests of the daemon share."""
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from attach_client import *
from conftest import BUILD, clean_env, wait_until
from unix_http import UnixConnection

MIB = 1 << 20
GIB = 1 << 30


class Answer:
    def __init__(self, status, text):
        self.status = status
        self.json = json.loads(text) if text else None

    @property
    def error(self):
        return self.json["error"]


class Daemon:
    """A carved of its own, with a fake driver. `gpus`: [(total, reserved, outside, name)]."""

    def __init__(self, gpus=((80 * GIB, 0, 0, "Fake H100"),), args=(), dir=None):
        self.dir = pathlib.Path(dir or tempfile.mkdtemp(prefix="carved-test-"))
        self.runtime = self.dir / "run"
        self.gpus, self.processes, self.busy, self.failing = list(gpus), [], [], False
        self.modes = {}  # of GPUs: the driver's compute mode
        self.mig = {}  # of GPUs: their MIG mode, what is pending, and whether that hides their memory
        self.delay = 0  # of the driver's answers, ms
        self.args = list(args)
        if "--system" in self.args:
            self.dir.chmod(0o755)  # where root starts it, it becomes another user, who has to read the driver's state
        self.write_state()
        self.process = None
        self.start()

    def write_state(self):
        lines = [f"gpu {t} {r} {o} {n}" for t, r, o, n in self.gpus]
        lines += [f"process {g} {pid} {b}" for g, pid, b in self.processes]
        lines += [f"utilization {g} {percent}" for g, percent in self.busy]
        lines += [f"driver_mode {g} {mode}" for g, mode in self.modes.items()]
        lines += [f"mig {g} {now:d} {pending:d} {secret:d}" for g, (now, pending, secret) in self.mig.items()]
        lines += ["fail"] if self.failing else []
        lines += [f"delay {self.delay}"] if self.delay else []
        new = self.dir / "state.new"
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.dir / "state")

    def env(self):
        return clean_env({"FAKE_NVML": str(self.dir / "state"),
                          "LD_LIBRARY_PATH": str(BUILD / "tests/programs/fake_nvml")})

    def start(self, wait=True):
        log = open(self.dir / "log", "a")
        read, write = os.pipe()
        self.process = subprocess.Popen(
            [BUILD / "carved", "--runtime-dir", self.runtime, "--foreground", "--ready-fd",
             str(write), *self.args], env=self.env(), stdin=subprocess.DEVNULL, stderr=log,
            pass_fds=[write])
        os.close(write)
        log.close()
        if wait:
            assert os.read(read, 1) == b"R", self.log()
        os.close(read)

    def log(self):
        return (self.dir / "log").read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def restart(self):
        self.kill()
        self.start()

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                code = self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            assert code == 0, self.log()
        shutil.rmtree(self.dir, ignore_errors=True)

    def call(self, method, path, body=None, timeout=60):
        connection = UnixConnection(self.runtime / "carved.sock", timeout)
        text = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        connection.request(method, path, text)
        response = connection.getresponse()
        answer = Answer(response.status, response.read())
        connection.close()
        return answer

    def request(self, **body):
        """A slice; one-off unless said otherwise."""
        return self.call("POST", "/v1/sessions", {"ephemeral": True, **body})

    def grant(self, **body):
        answer = self.request(**body)
        assert answer.status == 201, answer.json
        return answer.json

    def release(self, id, force=False):
        return self.call("DELETE", f"/v1/sessions/{id}" + ("?force=1" if force else ""))

    def all_sessions(self):
        """Ended ones, too: the history comes in parts."""
        sessions, page = [], ""
        while page is not None:
            answer = self.call("GET", f"/v1/sessions?all=1&page={page}")
            assert answer.status == 200, answer.json
            sessions += answer.json["sessions"]
            page = answer.json["next"]
        return sessions

    def show(self, id):
        answer = self.call("GET", f"/v1/sessions/{id}")
        assert answer.status == 200, answer.json
        return answer.json

    def gpu(self, index=0):
        return self.call("GET", "/v1/gpus").json[index]


class Keeper:
    """The keeper of a daemon's directory (src/proto/keep.h), as another program of the same user may speak to it."""

    MAGIC, PUT, DROP, LIST, HELD, END, REFUSED = 0x5045454b, 1, 2, 3, 4, 5, 6

    def __init__(self, runtime):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(str(pathlib.Path(runtime) / "keeper" / "socket"))

    def send(self, op, name="", fds=(), version=1):
        message = struct.pack("<IHHiI48s", self.MAGIC, version, op, 0, 0, name.encode())
        socket.send_fds(self.socket, [message], fds)

    def receive(self):
        """(op, error, name, descriptors); None where it hung up."""
        data, fds, _, _ = socket.recv_fds(self.socket, 128, 4)
        if not data:
            return None
        _, _, op, error, _, name = struct.unpack("<IHHiI48s", data)
        return op, error, name.rstrip(b"\0").decode(), fds

    def held(self):
        """Names and descriptors, which are the caller's."""
        self.send(self.LIST)
        found = {}
        while (answer := self.receive())[0] != self.END:
            found[answer[2]] = answer[3][0]
        return found

    def names(self):
        held = self.held()
        for fd in held.values():
            os.close(fd)
        return sorted(held)

    def close(self):
        self.socket.close()


def keepers(runtime):
    """PIDs of the keepers of a directory, without processes that are about to become one's parent and end."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if line[0].endswith(b"carve-keeper") and line[1].decode() == f"{runtime}/keeper" and \
                    os.getsid(int(entry.name)) == int(entry.name):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_gone(pid):
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists())


__all__ = ["Daemon", "Attached", "Ledger", "UnixConnection", "attach_message", "MIB", "GIB", "WORKLOAD", "COMMAND", "SETTLE",
           "OBSERVE", "RESUME", "SWEEP", "OK", "NO_SESSION", "NOT_PERMITTED", "FULL", "VERSION", "MALFORMED",
           "FAILED", "Keeper", "keepers", "signal", "wait_until", "wait_gone"]
