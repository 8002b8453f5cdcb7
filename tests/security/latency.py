"""How long commands of one user take, while another does what it likes."""
import statistics

from .lab import ALICE

# Each request on a connection of its own, as a command makes it. Prints the times, in milliseconds.
REQUESTS = """
import socket, time
count, path = int(sys.argv[1]), sys.argv[2]
for i in range(count):
    begin = time.monotonic()
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(LAB['http'])
    s.sendall(f'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'.encode())
    text = b''
    while part := s.recv(1 << 20):
        text += part
    assert text.startswith(b'HTTP/1.1 200'), text[:500]
    print((time.monotonic() - begin) * 1000)
    s.close()
    time.sleep(0.002)
"""


class Times:
    """Of commands, in milliseconds."""

    def __init__(self, values):
        self.values = sorted(values)

    def p(self, percent):
        return self.values[min(len(self.values) - 1, len(self.values) * percent // 100)]

    def __str__(self):
        return f"median {statistics.median(self.values):.1f} ms, p99 {self.p(99):.1f} ms, worst {self.values[-1]:.1f} ms"


def times(lab, uid=ALICE, count=300, path="/v1/gpus"):
    """Of `count` requests for the GPUs, one after the other."""
    done = lab.python(uid, REQUESTS, count, path, timeout=300)
    assert done.returncode == 0, done.stderr
    return Times([float(line) for line in done.stdout.split()])
