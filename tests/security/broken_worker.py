"""Acts as a system daemon's worker that was broken into: it has the worker's link to the warden, and sends what it likes."""
import array
import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import struct

HEAD = struct.Struct("<IHHQIIiI")  # proto/warden.h: magic, version, operation, number, size, owner, error, reserved
MAGIC, VERSION = 0x44524157, 1
SIGNAL, NAMESPACE_LOOK, NAMESPACE_HOLD = range(1, 4)
MIG_KINDS, MIG_LIST, MIG_MAKE, MIG_REMOVE, MIG_MODE = range(6, 11)
LIMIT_PROBE, LIMIT_PUT, LIMIT_ENTER, LIMIT_LEAVE = range(11, 15)
SIGNAL_ON_GPU, SIGNAL_PEER, SLICE_LOOK, SIGNAL_OUTSIDE, DEVICE_ACCESS = 21, 24, 25, 26, 27
PIDFD_GETFD = 438
SOCK_DIAG_BY_FAMILY, UDIAG_SHOW_PEER, UNIX_DIAG_PEER = 20, 4, 2


def birth(pid):
    """The birth of a process as struct process_id has it, without the kernel's own number for it."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[19])


def signal_of(pid, number, uid):
    return struct.pack("<QiiII", birth(pid), pid, number, uid, 0)


def socket_peers():
    """{inode of a Unix socket: that of its other end}."""
    peers = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as s:  # NETLINK_SOCK_DIAG
        asked = struct.pack("<BBHIIIII", socket.AF_UNIX, 0, 0, 0xffffffff, 0, UDIAG_SHOW_PEER, 0xffffffff, 0xffffffff)
        s.send(struct.pack("<IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, 0x301, 1, 0) + asked)
        while True:
            data = s.recv(1 << 20)
            while len(data) >= 16:
                length, kind = struct.unpack_from("<IH", data)
                if kind != SOCK_DIAG_BY_FAMILY:
                    return peers
                inode, = struct.unpack_from("<I", data, 20)
                at = 32
                while at + 4 <= length:
                    size, name = struct.unpack_from("<HH", data, at)
                    if name == UNIX_DIAG_PEER:
                        peers[inode], = struct.unpack_from("<I", data, at + 4)
                    at += (size + 3) & ~3
                data = data[(length + 3) & ~3:]


def inodes(pid):
    """{descriptor: inode} of a process's sockets."""
    links = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed just now
            links[int(entry.name)] = os.readlink(entry)
    return {fd: int(link[8:-1]) for fd, link in links.items() if link.startswith("socket:[")}


def is_packets(inode):
    """The link is; the socket of notices, which leads to the supervisor, too, is not."""
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return any(int(words[6]) == inode and int(words[4], 16) == socket.SOCK_SEQPACKET for words in lines)


class BrokenWorker:
    """Stops the worker, so that answers come here, and has its end of the link."""

    def __init__(self, lab, warden):
        self.worker = lab.worker()
        os.kill(self.worker, signal.SIGSTOP)
        peers, ends = socket_peers(), set(inodes(warden).values())
        at, = [fd for fd, inode in inodes(self.worker).items() if peers.get(inode) in ends and is_packets(inode)]
        pidfd = os.pidfd_open(self.worker)
        fd = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, at, 0)
        os.close(pidfd)
        assert fd >= 0, os.strerror(ctypes.get_errno())
        self.socket = socket.socket(fileno=fd)
        self.socket.setblocking(True)
        self.socket.settimeout(30)
        self.number = 1 << 62  # far above the worker's own

    def send(self, operation, data=b"", owner=0, fds=(), **head):
        self.number += 1
        values = {"magic": MAGIC, "version": VERSION, "size": len(data), "error": 0, **head}
        message = HEAD.pack(values["magic"], values["version"], operation, self.number, values["size"], owner, values["error"], 0)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([message + data], rights)
        return self.number

    def receive(self):
        """(number, error, data, descriptors), or None where the warden hung up."""
        data, rights, _, _ = self.socket.recvmsg(8192, 64)
        if not data:
            return None
        fds = array.array("i")
        for _, _, part in rights:
            fds.frombytes(part)
        head = HEAD.unpack_from(data)
        return head[3], head[6], data[HEAD.size:], list(fds)

    def ask(self, *words, **kw):
        """(error, data, descriptors)."""
        number = self.send(*words, **kw)
        while (answer := self.receive())[0] != number:
            pass  # one of the worker's own
        return answer[1:]

    def signal(self, pid, number, uid, owner=0, operation=SIGNAL):
        return self.ask(operation, signal_of(pid, number, uid), owner=owner)[0]

    def mig(self, operation, gpu=0, profile=0, start=0, size=0):
        """(error, data)."""
        return self.ask(operation, struct.pack("<IIBBHI", gpu, profile, start, size, 0, 0))[:2]

    def end(self):
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):  # it has ended with its warden
            os.kill(self.worker, signal.SIGCONT)
