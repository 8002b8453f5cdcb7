"""Plays systemd for one daemon: it starts the daemon's process itself, with the descriptors that the daemon before had stored."""
import fcntl
import os
import socket
import subprocess
import threading

from conftest import BUILD, wait_until


class Systemd:
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
            return sorted({name for name, _ in self.store if not name.startswith(("claim.", "files."))})

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
