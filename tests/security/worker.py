"""A worker that was broken into: it says what it likes of jobs to a warden that is a service of its own (src/proto/warden_jobs.h)."""
import array
import fcntl
import json
import os
import socket
import struct
import subprocess

from .broken_worker import HEAD, MAGIC, VERSION
from .lab import as_user

VOUCH, START, END, FILES, REMOVE, OVER = range(15, 21)
JOB, PODS = 1, 3  # what a text is
TASK_JOB, TASK_POD = 1, 3
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
    """Connected to the lab's warden in the daemon's place. Its answers are (errno, PID)."""

    def __init__(self, lab):
        self.lab = lab
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.connect(str(lab.runtime / "warden.sock"))
        _, ancillary, _, _ = self.link.recvmsg(8192, socket.CMSG_SPACE(4 * 8))  # what the worker has (src/daemon/separate.h)
        for _, _, got in ancillary:
            for fd in array.array("i", got):
                os.close(fd)
        self.got = None  # the descriptor that came with the last answer, and what that said:
        self.said = b""

    def close(self):
        self.drop()
        self.link.close()

    def drop(self):
        if self.got is not None:
            os.close(self.got)
        self.got = None

    def ask(self, op, job=0, attempt=0, kind=0, user=0, files=0, fds=()):
        self.drop()
        data = {VOUCH: struct.pack("<IIII", kind, job % 2**32, attempt, 0), START: struct.pack("<QII", job, attempt, 0),
                END: struct.pack("<QII", job, attempt, 0), FILES: struct.pack("<II", user, 0),
                REMOVE: struct.pack("<QIIII", job, attempt, user, files, 0), OVER: struct.pack("<QII", job, attempt, 0)}[op]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.link.sendmsg([HEAD.pack(MAGIC, VERSION, op, 77, len(data), 0, 0, 0) + data], rights)
        answer, ancillary, _, _ = self.link.recvmsg(8192, socket.CMSG_SPACE(4))
        for _, _, got in ancillary:
            self.got, = array.array("i", got[:4])
        self.said = answer[HEAD.size:]
        error = HEAD.unpack_from(answer)[6]
        return error, struct.unpack_from("<Qi", self.said)[1] if op == START and not error else 0

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
        assert len(self.said) == WARRANT_SIZE
        return self.said

    def start(self, data, job=1, attempt=1):
        """Has a shim started with what a head says: the errno value, or 0."""
        fd = memfd(data)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        error, _ = self.ask(START, job, attempt, fds=(fd,))
        os.close(fd)
        return error


def text_of(*argv, **more):
    return json.dumps({"argv": argv, "cwd": "/", "queue": "half", **more}).encode()
