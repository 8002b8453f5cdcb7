"""A daemon that answers as a test says, for the command line tool."""
import contextlib
import http.server
import json
import os
import pty
import select
import signal
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import BUILD, clean_env, wait_until

CARVE = str(BUILD / "carve")
GIB = 1 << 30
ATTACH_COMMAND = 2
GPU = {"index": 0, "uuid": "GPU-0", "name": "Test GPU", "memory_bytes": 80 * GIB,
       "available_bytes": 76 * GIB, "sessions": 1, "backend": "front", "compute_mode": "off",
       "mig": False}


def session(**changes):
    base = {"id": "s-abc123", "state": "active", "owner": str(os.getuid()),
            "created": "2026-01-02T03:04:05Z", "vram_bytes": 4 * GIB, "requested_bytes": 4 * GIB,
            "tolerance_applied": False, "backend": "front", "pids": [],
            "gpus": [{"index": 0, "uuid": "GPU-0", "name": "Test GPU", "vram_bytes": 4 * GIB,
                      "used_bytes": 0, "busy_ns": 0, "peak_bytes": 3 * GIB, "refused": 0}]}
    return dict(base, **changes)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        fake = self.server.fake
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        if self.command == "POST" and self.path == "/v1/sessions":
            fake.ids.append(body.pop("id"))
        fake.requests.append((self.command, self.path, body))
        found = fake.answers.get((self.command, self.path.split("?")[0]), (404, {}))
        status, content = found(body) if callable(found) else found
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PATCH = answer

    def address_string(self):
        return "client"

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Fake:
    """Answers by a table, and notes what it was asked."""

    def __init__(self, directory):
        self.dir = directory
        self.requests = []
        self.ids = []  # that session requests chose
        self.commands = []  # (session, pid) of ATTACH_COMMAND
        self.answers = {("GET", "/v1/gpus"): (200, [GPU]), ("GET", "/v1/sessions"): (200, []),
                        ("GET", "/v1/sessions/s-abc123"): (200, session()),
                        ("GET", "/v1/sessions/current"):
                            (404, {"error": {"code": 1, "message": "you have no current session",
                                             "hint": "request one: carve session request --vram 4"}}),
                        ("POST", "/v1/sessions"): (201, session()),
                        ("DELETE", "/v1/sessions/s-abc123"):
                            (200, {"id": "s-abc123", "state": "released"})}
        self.server = Server(directory + "/carved.sock", Handler)
        self.server.fake = self
        self.attach = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.attach.bind(directory + "/attach.sock")
        self.attach.listen(8)
        self.attach_status = 0
        self.before_attach = lambda pid: None  # called before a command is told that it is taken up
        for target, args in ((self.server.serve_forever, [0.02]), (self.attach_serve, [])):
            threading.Thread(target=target, args=args, daemon=True).start()

    def attach_serve(self):
        while True:
            try:
                peer, _ = self.attach.accept()
            except OSError:
                return
            with peer:
                data = peer.recv(4096)
                pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET,
                                                                socket.SO_PEERCRED, 12))
                magic, version, kind, name = struct.unpack_from("<IHH40s", data)
                if kind == ATTACH_COMMAND:
                    self.commands.append((name.rstrip(b"\0").decode(), pid))
                self.before_attach(pid)
                message = b"it is not known" if self.attach_status else b""
                peer.send(struct.pack("<IHHI12x232s", magic, version, self.attach_status, 0,
                                      message))

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.attach.close()

    def sent(self, method):
        return [(path, body) for m, path, body in self.requests if m == method]


@pytest.fixture
def fake():
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        daemon = Fake(directory)
        yield daemon
        daemon.close()


def carve(fake, *argv, env=None, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([CARVE, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60,
                          env=clean_env(dict({"CARVE_RUNTIME_DIR": fake.dir}, **(env or {}))), **kw)


def fails(done, code, *words):
    """It failed as a program should: the code, and one line that says what was wrong and what is right."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("carve: ") and len(lines) == 1
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""


@contextlib.contextmanager
def terminal(argv, fake):
    """The command as the foreground job of a terminal; read(marker) returns what was shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, clean_env({"CARVE_RUNTIME_DIR": fake.dir}))
    shown = b""

    def read(marker, timeout=60):
        nonlocal shown
        end = time.monotonic() + timeout
        while marker not in shown:
            assert time.monotonic() < end, shown
            if not select.select([fd], [], [], 0.1)[0]:
                continue
            try:
                shown += os.read(fd, 4096)
            except OSError:
                break
        return shown.decode(errors="replace")

    class Process:
        terminal = fd
        number = pid

        @staticmethod
        def wait():
            done, status = wait_until(lambda: (r := os.waitpid(pid, os.WNOHANG))[0] and r)
            return os.waitstatus_to_exitcode(status)

    try:
        yield Process(), read
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        os.close(fd)
