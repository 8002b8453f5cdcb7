"""carved alone, over a driver that says what a file says: what the tests of the daemon share."""
import array
import http.client
import json
import mmap
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from conftest import BUILD, clean_env, wait_until

MIB = 1 << 20
GIB = 1 << 30


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


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


# ---- the attach protocol (src/proto/attach.h) ----

WORKLOAD, COMMAND, SETTLE, OBSERVE, RESUME, SWEEP = 1, 2, 3, 4, 5, 6
OK, NO_SESSION, NOT_PERMITTED, FULL, VERSION, MALFORMED, FAILED = range(7)


def attach_message(kind, session, slot=0, magic=0x48435441, version=1):
    return struct.pack("<IHH40sI12x", magic, version, kind, session.encode(), slot)


class Attached:
    """One connection of this process to the attach socket."""

    def __init__(self, daemon):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        self.socket.connect(str(daemon.runtime / "attach.sock"))
        self.fds = []

    def send(self, data):
        self.socket.send(data)

    def receive(self):
        """(status, slot, message); descriptors are kept in .fds. None where the daemon hung up."""
        data, control, _, _ = self.socket.recvmsg(512, socket.CMSG_SPACE(8 * 4))
        if not data:
            return None
        for level, kind, payload in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(payload)
                self.fds += list(fds)
        magic, _, status, slot, message = struct.unpack("<IHHI12x232s", data)
        assert magic == 0x48435441
        return status, slot, message.rstrip(b"\0").decode()

    def ask(self, kind, session="", slot=0):
        self.send(attach_message(kind, session, slot))
        return self.receive()

    def leave(self, size, gpu=0):
        """Says that so many bytes that it charged were given back: (status, whether they are charged elsewhere now)."""
        self.send(struct.pack("<IHH40sIIII", 0x48435441, 1, SETTLE, b"", 0, 2 | 4, gpu + 1, size // Ledger.GRANULE))
        _, _, status, _, _, _, taken_over, _ = struct.unpack("<IHHIIII232s", self.socket.recv(512))
        return status, taken_over

    def close(self):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


class Ledger:
    """A mapped ledger, seen through its specification (docs/ledger.md) and not through carve's code."""

    GRANULE = 512

    def __init__(self, fd):
        self.map = mmap.mmap(fd, os.fstat(fd).st_size)
        (self.magic, self.version, _, self.size, self.gpus, self.slots, self.gpu_offset,
         self.slot_offset, self.stride) = struct.unpack_from("<IHHQIIIII", self.map)

    def _slot(self, slot):
        return self.slot_offset + slot * self.stride

    def committed(self, gpu=0):
        word, = struct.unpack_from("<Q", self.map, self.gpu_offset + gpu * 128)
        return (word & (1 << 38) - 1) * self.GRANULE

    def state(self, slot):
        return ["free", "live", "dead"][struct.unpack_from("<I", self.map, self._slot(slot))[0]]

    def pid(self, slot):
        return struct.unpack_from("<i", self.map, self._slot(slot) + 4)[0]

    def set_calls(self, slot, begun, done):
        struct.pack_into("<II", self.map, self._slot(slot) + 16, begun, done)

    def set_exported(self, slot):
        struct.pack_into("<I", self.map, self._slot(slot) + 56, 1)

    def set_managed(self, slot, managed=1):
        struct.pack_into("<I", self.map, self._slot(slot) + 100, managed)

    def set_managed_unlisted(self, slot, bytes_, gpu=0):
        gpus, = struct.unpack_from("<I", self.map, 16)
        start, = struct.unpack_from("<I", self.map, 44)
        struct.pack_into("<Q", self.map, start + 8 * (slot * gpus + gpu), bytes_)

    def add_used(self, slot, bytes_, gpu=0):
        at = self._slot(slot) + 128 + gpu * 32
        used, = struct.unpack_from("<q", self.map, at)
        struct.pack_into("<q", self.map, at, used + bytes_)

    def books(self, slot, gpu=0):
        """(used, settled)"""
        return struct.unpack_from("<qq", self.map, self._slot(slot) + 128 + gpu * 32)

    def charge(self, slot, delta, gpu=0):
        """The work of a front, where nobody else is at it."""
        at = self._slot(slot) + 128 + gpu * 32
        used, settled, helped, applied = struct.unpack_from("<qqQQ", self.map, at)
        units = self.committed(gpu) // self.GRANULE + delta // self.GRANULE
        struct.pack_into("<Q", self.map, self.gpu_offset + gpu * 128,
                         units | slot << 38 | (applied & 0xffff) << 48)
        struct.pack_into("<qqQQ", self.map, at, used + delta, settled, helped, applied + 1)


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
