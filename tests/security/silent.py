"""A FUSE file system of MALLORY's that others may enter, as `fusermount3 -o allow_other` mounts one, and that answers nothing."""
import ctypes
import os
import struct
import subprocess
import threading

from .lab import MALLORY

# struct fuse_in_header, of which the first three; FUSE_INIT and the answer to it.
HEAD = struct.Struct("=IIQ")
INIT = 26
INIT_ANSWER = struct.Struct("=IIIIHHIIHHI28x")


class SilentFileSystem:
    """With `takes` it takes each request, and then its caller cannot even be killed until the file system is closed."""

    def __init__(self, place, takes=False):
        self.place = str(place)
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        self.taken = threading.Event()  # somebody waits for good
        options = f"fd={self.fd},rootmode=40000,user_id={MALLORY},group_id={MALLORY},allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"silent", self.place.encode(), b"fuse", 0, options.encode()) < 0:
            os.close(self.fd)
            raise OSError(ctypes.get_errno(), "mount")
        if takes:
            threading.Thread(target=self.take, daemon=True).start()

    def take(self):
        try:
            while request := os.read(self.fd, 1 << 17):
                _, op, unique = HEAD.unpack_from(request)
                if op == INIT:
                    answer = INIT_ANSWER.pack(7, 31, 0, 0, 16, 12, 4096, 1, 0, 0, 0)
                    os.write(self.fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
                else:
                    self.taken.set()
        except OSError:
            pass  # it was closed

    def close(self):
        subprocess.run(["umount", "--lazy", "--force", self.place], check=True)
        os.close(self.fd)  # all that wait for it fail now
