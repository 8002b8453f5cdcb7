"""What systemd does for carved.service: sockets, user and rights of the unit, a store of descriptors, and a new start after each failure.

Run as a program by root: unit.py DIRECTORY WORD... The words are the daemon's command. Its end is the daemon's, SIGTERM and SIGHUP
are passed on, SIGUSR1 has its sockets bound anew, and `--ready-fd N` behind the command is told. The warden is another unit's."""
import array
import contextlib
import os
import pathlib
import pwd
import re
import selectors
import signal
import socket
import subprocess
import sys
import time

BUILD = pathlib.Path(os.environ.get("CARVE_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build")
RESTART_S = 0.1
FREE_USER = 60706  # where there is no user of the unit's, the warden takes this one


def directive(name, unit="carved.service"):
    return re.findall(rf"^{name}=(.*)$", (BUILD / "systemd" / unit).read_text(), re.M)


def user_of_the_unit(name=None):
    """Its user and group."""
    try:
        entry = pwd.getpwnam(name or directive("User")[0])
        return entry.pw_uid, entry.pw_gid
    except KeyError:
        return FREE_USER, FREE_USER


def limit_of_niceness():
    """The words that raise it as the unit does; none where that is not permitted."""
    words = ["prlimit", f"--nice={20 - int(directive('LimitNICE')[0])}"]
    return words if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode == 0 else []


def rights_of_the_unit(name=None):
    """The words that start a command as the unit does: its user, no group and no capability beside, and its limit of niceness."""
    uid, gid = user_of_the_unit(name)
    assert directive("CapabilityBoundingSet") == [""] and directive("NoNewPrivileges") == ["yes"]
    words = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    return [*limit_of_niceness(), "setpriv", *words]


class Unit:
    def __init__(self, place, argv, ready_fd=None):
        self.place, self.argv, self.ready_fd = pathlib.Path(place), argv, ready_fd
        self.stored, self.worker, self.stopping = {}, 0, False
        self.place.mkdir(exist_ok=True)
        self.place.chmod(0o755)
        self.sockets = [self.listen("attach.sock", socket.SOCK_SEQPACKET), self.listen("carved.sock", socket.SOCK_STREAM)]
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.address = f"@carve-unit-{os.getpid()}"
        self.notify.bind("\0" + self.address[1:])

    def listen(self, name, kind):
        path = self.place / name
        path.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX, kind)
        made.bind(str(path))
        path.chmod(0o666)
        made.listen(128)
        return made

    def listen_anew(self):
        """As `systemctl restart carved.socket carved-attach.socket` does, which starts the service anew, too."""
        for made in self.sockets:
            made.close()
        self.sockets = [self.listen("attach.sock", socket.SOCK_SEQPACKET), self.listen("carved.sock", socket.SOCK_STREAM)]
        os.kill(self.worker, signal.SIGKILL)

    def start(self):
        given = [("attach", self.sockets[0].fileno()), ("http", self.sockets[1].fileno()), *self.stored.items()]
        self.worker = os.fork()
        if self.worker:
            return
        above = [os.dup2(fd, 1000 + i, inheritable=False) for i, (_, fd) in enumerate(given)]
        for i, fd in enumerate(above):
            os.dup2(fd, 3 + i)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)), LISTEN_FDNAMES=":".join(name for name, _ in given),
                          NOTIFY_SOCKET=self.address, FDSTORE=directive("FileDescriptorStoreMax")[0])
        try:
            os.execvp(self.argv[0], self.argv)
        finally:
            os._exit(127)

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                text, rights, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4 * 8))
                fds = array.array("i")
                for _, _, data in rights:
                    fds.frombytes(data[:len(data) - len(data) % 4])
                self.obey(dict(line.split("=", 1) for line in text.decode().splitlines()), list(fds))

    def obey(self, notice, fds):
        name = notice.get("FDNAME")
        if "FDSTOREREMOVE" in notice and name in self.stored:
            os.close(self.stored.pop(name))
        if "FDSTORE" in notice and fds:
            if name in self.stored:
                os.close(self.stored.pop(name))
            self.stored[name] = fds.pop()
        for fd in fds:
            os.close(fd)
        if notice.get("READY") and self.ready_fd is not None:
            os.write(self.ready_fd, b"R")
            os.close(self.ready_fd)
            self.ready_fd = None

    def ended(self):
        """The daemon's status, once it has ended for good."""
        pid, status = os.waitpid(self.worker, os.WNOHANG)
        if not pid:
            return None
        self.hear()
        code = os.waitstatus_to_exitcode(status)
        if code == 0 or self.stopping:
            return max(code, 0)
        time.sleep(RESTART_S)
        self.start()
        return None

    def run(self):
        signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD}
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write)
        for number in signals:
            signal.signal(number, lambda *_: None)
        self.start()
        with selectors.DefaultSelector() as events:
            events.register(read, selectors.EVENT_READ)
            events.register(self.notify, selectors.EVENT_READ)
            while True:
                events.select()
                self.hear()
                with contextlib.suppress(BlockingIOError):
                    for number in os.read(read, 256):
                        self.stopping |= number in (signal.SIGTERM, signal.SIGINT)
                        if number == signal.SIGUSR1:
                            self.listen_anew()
                        elif number != signal.SIGCHLD:
                            os.kill(self.worker, number)
                code = self.ended()
                if code is not None:
                    return code


if __name__ == "__main__":
    place, *words = sys.argv[1:]
    ready = None
    if "--ready-fd" in words:
        at = words.index("--ready-fd")
        ready = int(words[at + 1])
        os.set_inheritable(ready, False)
        del words[at:at + 2]
    sys.exit(Unit(place, words, ready).run())
