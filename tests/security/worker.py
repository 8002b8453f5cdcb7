"""A worker that was broken into: it says what it likes to a launcher, which is a service of its own (src/proto/launcher.h)."""
import array
import fcntl
import json
import os
import socket
import struct
import subprocess

from .lab import as_user

MAGIC, VERSION = 0x4E55414C, 2
VOUCH, START, END, FILES, REMOVE, OVER = range(1, 7)
JOB, HOOK, PODS = 1, 2, 3  # what a text is
TASK_JOB, TASK_HOOK, TASK_POD = 1, 2, 3
HEAD_MAGIC, GO_MAGIC = 0x44414548, 0x4D494853
WARRANT_SIZE = 1208
SEALS = 0xF  # all four
CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdout.write('c'); sys.stdout.flush(); sys.stdin.read()"


def run_of(job=1, array=0, index=-1, position=0, attempt=1, daemon=0, limit_ns=0, grace_ns=10**9, key=0, size=0, unit=0, grace_s=0, queue=b"half"):
    return struct.pack("<QQqQIiQQQQII64s", job, array, index, position, attempt, daemon, limit_ns, grace_ns, key, size, unit, grace_s, queue)


def head_of(warrant, text, run=None, task=TASK_JOB, owners=b"", owner_warrant=b"\0" * WARRANT_SIZE):
    return struct.pack("<IIII", HEAD_MAGIC, task, len(text), len(owners)) + (run or run_of()) + warrant + owner_warrant + text + owners


def memfd(data):
    fd = os.memfd_create("worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    return fd


class Worker:
    """Connected to the lab's launcher in the daemon's place. Its answers are (errno, PID)."""

    def __init__(self, lab):
        self.lab = lab
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.connect(str(lab.runtime / "launcher.sock"))
        self.got = None  # the descriptor that came with the last answer

    def close(self):
        self.drop()
        self.link.close()

    def drop(self):
        if self.got is not None:
            os.close(self.got)
        self.got = None

    def ask(self, op, job=0, attempt=0, kind=0, user=0, files=0, fds=()):
        self.drop()
        request = struct.pack("<IHHQQIIII24x", MAGIC, VERSION, op, 77, job, attempt, kind, user, files)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.link.sendmsg([request], rights)
        answer, ancillary, _, _ = self.link.recvmsg(64, socket.CMSG_SPACE(4))
        for _, _, data in ancillary:
            self.got, = array.array("i", data[:4])
        return struct.unpack("<IHHQii", answer[:24])[4:]

    def vouch(self, uid, text, kind=JOB, count=1, attempts=1):
        """The warrant for a text, as of a process of that user which is connected now."""
        path = self.lab.dir / f"client-{uid}"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o666)
            listener.listen(1)
            with subprocess.Popen([*as_user(uid), "/usr/bin/python3", "-c", CONNECT, path], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE) as client:
                connection, _ = listener.accept()
                assert client.stdout.read(1) == b"c"
                data = memfd(text)
                error, _ = self.ask(VOUCH, count, attempts, kind=kind, fds=(connection.fileno(), data))
                os.close(data)
                connection.close()
                client.stdin.close()
        assert error == 0, os.strerror(error)
        return os.pread(self.got, WARRANT_SIZE, 0)

    def start(self, data, job=1, attempt=1):
        """Has a shim started with what a head says: the errno value, or 0."""
        fd = memfd(data)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        error, _ = self.ask(START, job, attempt, fds=(fd,))
        os.close(fd)
        return error


def text_of(*argv, **more):
    return json.dumps({"argv": argv, "cwd": "/", "queue": "half", **more}).encode()
