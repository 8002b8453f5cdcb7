"""A port of this machine that leads to a Unix socket, as `ssh -L` makes it. scripts/page-picture uses it, too."""
import socket
import threading


class Port:
    """Each connection to the port goes on to the socket."""

    def __init__(self, path):
        self.path, self.listener = str(path), socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.number = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            try:
                there.connect(self.path)
            except OSError:
                here.close()
                continue
            for ends in ((here, there), (there, here)):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    @staticmethod
    def pump(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
