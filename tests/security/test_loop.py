"""Attacks on the daemon's loop: nothing that one user sends, holds or names makes another user's command wait."""

import pytest

from conftest import rest_long, wait_until

from .latency import times
from .lab import ALICE, CARVED, MALLORY, PROGRAMS, ROOT
from .test_memory import IN_SESSION

# As in the issue: while another does it, no command takes longer by more than this.
MORE_MS = 50

# A TCP connection whose other end reads nothing, so that its close lingers for as long as it was told to.
LINGER = """
import array, select, socket, struct, time
def lingering(seconds=20):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind(('127.0.0.1', 0))
    server.listen(1)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    s.connect(server.getsockname())
    s.setblocking(False)
    while select.select([], [s], [], 0.1)[1]:  # until its window is shut
        s.send(bytes(65536))
    s.setblocking(True)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, seconds))
    KEPT.append(server)
    return s
KEPT = []
def send_with(to, data, descriptors):
    try:
        to.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [d.fileno() for d in descriptors]))])
    except (PermissionError, BrokenPipeError):  # where the daemon takes none, or hung up: these are the last ones
        for d in descriptors:
            d.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 0, 0))
    for d in descriptors:
        d.close()
def http():
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB['http'])
    return s
def attach():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(LAB['attach'])
    return s
def message(kind, session=b'', slot=0):
    return struct.pack('<IHH40sI12x', 0x48435441, 1, kind, session, slot)
"""

ON_ATTACH = LINGER + """
for kind in (1, 2, 4, 5, 99):
    s = lingering()
    to = attach()
    send_with(to, message(kind, b's-nobody'), [s])
"""
ON_HTTP = LINGER + """
for text in (b'GET /v1/gpus HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', b'x'):
    s = lingering()
    to = http()
    send_with(to, text, [s])
"""
MANY_ON_BOTH = LINGER + """
to = [http(), attach()]
for i in range(16):
    some = [lingering() for _ in range(4)]
    send_with(to[i % 2], b'x' if i % 2 == 0 else message(4, b's-nobody'), some)
    if i % 2:
        to[1] = attach()
"""
HALF_READ_BODY = LINGER + """
to = http()
to.sendall(b'POST /v1/sessions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 60000\\r\\n\\r\\n{')
time.sleep(0.2)
for i in range(8):
    s = lingering()
    send_with(to, b'"' * 100, [s])
"""
NEVER_READ = LINGER + """
for to in (http(), attach()):
    # Ends before the daemon has looked at it: what it closes then, nobody has received.
    for i in range(4):
        s = lingering()
        send_with(to, b'x' if to.type == socket.SOCK_STREAM else b'', [s])
    to.close()
"""
SENT_AND_SAID = """
import socket, time
print('sent', flush=True)
sys.stdin.read()
"""

LINGERING = {"attach": ON_ATTACH, "http": ON_HTTP, "many": MANY_ON_BOTH, "half-read": HALF_READ_BODY,
             "unread": NEVER_READ}


@pytest.fixture
def old_kernel_lab(make_lab):
    """A lab whose daemon sees a kernel that cannot refuse descriptors."""
    return make_lab(daemon_env={"LD_PRELOAD": str(PROGRAMS / "libold_kernel.so")})


def attack_beside(lab, source, *arguments, uid=MALLORY, count=300, **kw):
    """The times of Alice's commands while an attack goes on, which says "sent" when it is under way."""
    attacker = lab.python(uid, source + SENT_AND_SAID, *arguments, method=lab.popen, **kw)
    assert attacker.stdout.readline() == "sent\n", attacker.communicate()
    under = times(lab, count=count)
    assert attacker.poll() is None, attacker.communicate()
    attacker.kill()
    return under


@pytest.mark.parametrize("kind", rest_long(LINGERING, 2))
@pytest.mark.attack("6", "a descriptor whose close lingers")
def test_a_lingering_descriptor_delays_nobody(lab, kind):
    assert attack_beside(lab, LINGERING[kind]).values[-1] < 5000


@pytest.mark.parametrize("kind", rest_long(LINGERING))
@pytest.mark.attack("6", "a descriptor whose close lingers, on a kernel that cannot refuse it")
def test_a_lingering_descriptor_delays_nobody_on_an_older_kernel(old_kernel_lab, kind):
    assert attack_beside(old_kernel_lab, LINGERING[kind]).values[-1] < 5000


# ---- wake descriptors ----------------------------------------------------------------------

# The session's wake descriptor, an open file that the daemon has, too, in a thread of the attacker's.
WAKES = IN_SESSION + """
import threading
a, ledger, slot = attach(sys.argv[1])
wake = a.fds[2]
def read():
    while True: os.read(wake, 8)
def fill():
    while True: os.write(wake, ((1 << 64) - 2).to_bytes(8, 'little'))
def storm():
    while True:
        os.write(wake, (1).to_bytes(8, 'little'))
        if time.monotonic_ns() % 7 == 0: os.read(wake, 8)
fcntl.fcntl(wake, fcntl.F_SETFL, 0)
threading.Thread(target=globals()[sys.argv[2]], daemon=True).start()
"""


@pytest.mark.parametrize("how", rest_long(["storm", "read", "fill"]))
@pytest.mark.attack("7", "a wake descriptor that blocks and is emptied, filled or written to all the time")
def test_a_wake_descriptor_that_blocks_stops_no_lease(lab, how):
    assert lab.carve(ROOT, "timeslicing", "--mode", "fair").returncode == 0
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    attacker = lab.python(MALLORY, WAKES + SENT_AND_SAID, session, how, method=lab.popen)
    assert attacker.stdout.readline() == "sent\n", attacker.communicate()
    assert times(lab, count=50).values[-1] < 5000
    # Both need the thread of leases.
    for mode in ("strict", "fair"):
        assert lab.carve(ROOT, "timeslicing", "--mode", mode).returncode == 0
    done = lab.carve(ALICE, "run", "--vram", "1", "--", "true")
    assert done.returncode == 0, done.stderr
    assert attacker.poll() is None


# ---- what is read ---------------------------------------------------------------------------

# Input that is looked at piece by piece, on each of 400 connections, as fast as the daemon reads it.
READING = {
    "chunks": (b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 10000),
    "empty lines": (b"", b"\r\n" * 30000),
    "fields": (b"", b"GET /v1/gpus HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 3500 + b"\r\n"),
}
READ = """
import socket, threading, time
head, more = (bytes.fromhex(text) for text in sys.argv[1:3])
def connected():
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB['http'])
    s.setblocking(False)
    return [s, head + more]
def go_on(c):
    try:
        while True: c[1] = c[1][c[0].send(c[1]):] or more
    except BlockingIOError: pass
    try:
        while c[0].recv(1 << 18): pass
        raise BrokenPipeError
    except BlockingIOError: pass
def again():
    while True:
        for i, c in enumerate(connections):
            try:
                go_on(c)
            except OSError:  # the daemon ended it
                c[0].close()
                try:
                    connections[i] = connected()
                except BlockingIOError: pass  # as many wait to be accepted as may
connections = [connected() for _ in range(400)]
threading.Thread(target=again, daemon=True).start()
time.sleep(1)
"""


@pytest.mark.parametrize("kind", rest_long(READING, 1))
@pytest.mark.attack("8", "much to be looked at on many connections")
def test_reading_from_many_connections_delays_nobody(lab, kind):
    under = attack_beside(lab, READ, *(text.hex() for text in READING[kind]), count=60)
    print(under)
    assert under.served_p(50) < MORE_MS, str(under)


# ---- names ---------------------------------------------------------------------------------

@pytest.fixture
def slow_names_lab(make_lab):
    """A lab whose daemon asks a server for names, which takes 2 s for each."""
    return make_lab(daemon_env={"LD_PRELOAD": str(PROGRAMS / "libslow_names.so"), "SLOW_NAMES": "2000"})


# Each user ID of another one's is a name that nobody has asked for, and each name likewise.
ASKS_NAMES = """
import socket
def ask(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB['http'])
    s.sendall(f'GET {path} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'.encode())
    KEPT.append(s)
KEPT = []
if os.getuid() == 0:
    for uid in range(300000, 300040):
        if os.fork() == 0:
            os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
            for path in ('/v1/sessions?all=1', '/v1/gpus'): ask(path)
            os._exit(0)
        os.wait()
else:
    for i in range(40):
        ask(f'/v1/quotas/user/slow{i}')
        ask(f'/v1/quotas/group/slow{i}')
"""


@pytest.mark.parametrize("uid", [MALLORY, 0])
@pytest.mark.attack("8", "names that a server has to be asked for")
def test_names_delay_nobody(slow_names_lab, uid):
    under = attack_beside(slow_names_lab, ASKS_NAMES, uid=uid, count=100)
    assert under.values[-1] < 1000, str(under)


@pytest.mark.attack("8", "users' names, where the answer itself waits for a server")
def test_an_administrator_gets_the_name_that_a_server_has(slow_names_lab):
    lab = slow_names_lab
    found = lab.carve_json(0, "quota", "show", "slow-61234")
    assert found["id"] == 61234
    lost = lab.carve(0, "quota", "show", "slow-nobody")
    assert lost.returncode == 2 and "there is no user slow-nobody" in lost.stderr


# ---- an upgrade ----------------------------------------------------------------------------

# Each connection is full of answers that nobody reads, so that one more does not fit; then it asks for a slice and waits.
FULL = """
import fcntl, socket, struct, termios, time
def request(method, path, body=b''):
    return f'{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n'.encode() + body
def unread(s):
    return struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]
def connected():
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB['http'])
    return s
def fill(s, most):
    "How many answers come, which are all of one size."
    got = 0
    for i in range(most):
        before = unread(s)
        s.sendall(request('GET', '/v1/nothing'))
        until = time.monotonic() + 1
        while unread(s) == before and time.monotonic() < until: time.sleep(0.0002)
        if unread(s) == before: return i
    return most
trial = connected()
count = fill(trial, 100000)
trial.close()
kept = []
for i in range(int(sys.argv[1])):
    s = connected()
    assert fill(s, count) == count
    s.sendall(request('POST', '/v1/sessions', b'{"vram": "79", "wait_for": 4}'))
    kept.append(s)
"""


@pytest.mark.long
@pytest.mark.attack("8", "clients that take no answer, over an upgrade")
def test_full_clients_delay_nobody_after_an_upgrade(lab):
    lab.carve_json(ALICE, "session", "request", "--vram", "78")
    attacker = lab.python(MALLORY, FULL + SENT_AND_SAID, 20, method=lab.popen)
    assert attacker.stdout.readline() == "sent\n", attacker.communicate()
    wait_until(lambda: len(lab.carve_json(ROOT, "session", "list")) == 21)
    done = lab.run(ROOT, CARVED, "--system", "--runtime-dir", lab.runtime, "--takeover")
    assert done.returncode == 0, done.stderr
    under = []
    while len(lab.carve_json(ROOT, "session", "list")) > 1:
        under += times(lab, count=20).values
    under += times(lab, count=20).values
    assert max(under) < 800
    attacker.kill()


# ---- locks ---------------------------------------------------------------------------------

# Each is a line of /proc/locks, for which the kernel takes the longer the more there are; in a session that exports.
LOCKS = """
import fcntl, mmap, pathlib, resource, struct, time
sys.path.insert(0, LAB['tests'])
from attach_client import Attached, Ledger, WORKLOAD, OK
class D: runtime = pathlib.Path(LAB['runtime'])
a = Attached(D)
status, slot, message = a.ask(WORKLOAD, sys.argv[1])
ledger = Ledger(a.fds[1])
ledger.set_exported(slot)
struct.pack_into('<Q', ledger.map, ledger._slot(slot) + 72, 1 << 40)  # exported_fd_bytes: so it looks again and again
def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data: h = (h ^ byte) * 0x100000001b3 % (1 << 64)
    return h ^ h >> 32
session = fnv(sys.argv[1].encode()) % (1 << 17)
fd = os.memfd_create('locks')
for i in range(int(sys.argv[2])):
    fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, session << 45 | slot << 35 | i << 4, 1, 0))
"""


@pytest.mark.timed
@pytest.mark.parametrize("count", [4000, 20000])
@pytest.mark.attack("8", "a list of locks that is long in the reading")
def test_many_locks_delay_nobody(lab, count):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    under = attack_beside(lab, LOCKS, session, count, count=1500)
    print(under)
    assert under.served_p(99) < 100 and under.served[-1] < 400, str(under)


# ---- threads -------------------------------------------------------------------------------

@pytest.mark.attack("8", "a process with thousands of threads that ended and that its tracer keeps, whose last one asks for their memory")
def test_threads_that_are_kept_delay_nobody(lab):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    attacker = lab.popen(MALLORY, PROGRAMS / "ended_threads", lab.runtime / "attach.sock", session, 3000)
    assert attacker.stdout.readline() == "asking\n", attacker.communicate()
    assert times(lab, count=30).values[-1] < 5000
    assert attacker.poll() is None
