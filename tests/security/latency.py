"""How long commands of one user take, while another does what it likes."""
import statistics

from .lab import ALICE

# Each request on a connection of its own, as a command makes it. Prints the times, and for how much of each the client or the
# daemon's loop waited for a processor (proc(5): schedstat), in milliseconds.
REQUESTS = """
import json, re, socket, struct, time
count, path = int(sys.argv[1]), sys.argv[2]
def waited(pid):
    try:
        return int(open(f'/proc/{pid}/task/{pid}/schedstat').read().split()[1]) / 1e6
    except FileNotFoundError:  # a kernel without
        return 0
def request(path):
    s = socket.socket(socket.AF_UNIX)
    # As the command connects: where too many wait to be accepted, the kernel lets it wait for so long.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 5, 0))
    s.connect(LAB['http'])
    s.settimeout(60)
    s.sendall(f'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'.encode())
    text = b''
    while part := s.recv(1 << 20):
        text += part
    assert text.startswith(b'HTTP/1.1 200'), text[:500]
    s.close()
    return text
daemon = int(re.search(rb'"pid": *([0-9]+)', request('/v1/version'))[1])
for i in range(count):
    before, begin = waited(os.getpid()) + waited(daemon), time.monotonic()
    request(path)
    took = (time.monotonic() - begin) * 1000
    print(took, max(0, took - (waited(os.getpid()) + waited(daemon) - before)))
    time.sleep(0.002)
"""


class Times:
    """Of commands, in milliseconds; `served`: without what the machine's processors did for others meanwhile."""

    def __init__(self, values, served):
        self.values, self.served = sorted(values), sorted(served)

    def p(self, percent):
        return at(self.values, percent)

    def served_p(self, percent):
        return at(self.served, percent)

    def __str__(self):
        return (f"median {statistics.median(self.values):.1f} ms, p99 {self.p(99):.1f} ms, worst {self.values[-1]:.1f} ms; "
                f"without waits for a processor p99 {self.served_p(99):.1f} ms")


def at(values, percent):
    return values[min(len(values) - 1, len(values) * percent // 100)]


def times(lab, uid=ALICE, count=300, path="/v1/gpus"):
    """Of `count` requests for the GPUs, one after the other."""
    done = lab.python(uid, REQUESTS, count, path, timeout=300)
    assert done.returncode == 0, done.stderr
    return Times(*zip(*(map(float, line.split()) for line in done.stdout.splitlines())))
