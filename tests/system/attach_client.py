"""The attach protocol (src/proto/attach.h), and a ledger as docs/dev/ledger.md has it. Processes that tests start to attach import
this and unix_http.py alone: pytest, which daemon_client.py needs, takes several times as long to import as all they do."""
import array
import mmap
import os
import socket
import struct

WORKLOAD, COMMAND, SETTLE, OBSERVE, RESUME, SWEEP = 1, 2, 3, 4, 5, 6
STOPPED = 8  # a flag of COMMAND's
OK, NO_SESSION, NOT_PERMITTED, FULL, VERSION, MALFORMED, FAILED, BUSY = range(8)


def attach_message(kind, session, slot=0, magic=0x48435441, version=1, flags=0):
    return struct.pack("<IHH40sII8x", magic, version, kind, session.encode(), slot, flags)


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

    def ask(self, kind, session="", slot=0, flags=0):
        self.send(attach_message(kind, session, slot, flags=flags))
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
    """A mapped ledger, seen through its specification (docs/dev/ledger.md) and not through carve's code."""

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


__all__ = ["Attached", "Ledger", "attach_message", "WORKLOAD", "COMMAND", "STOPPED", "SETTLE", "OBSERVE", "RESUME", "SWEEP", "OK", "NO_SESSION",
           "NOT_PERMITTED", "FULL", "VERSION", "MALFORMED", "FAILED", "BUSY"]
