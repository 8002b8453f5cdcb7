"""Attacks that take all that the daemon has of something: connections, descriptors, memory, history. Each user has a
budget of its own, with its subordinate user IDs, and only that user is refused."""
import json
import os
import pathlib

import pytest

from conftest import BUILD, wait_until

from .lab import ALICE, BOB, MALLORY, CARVE

# Few descriptors, so that an attack is short: 100 connections of each kind, 50 of them one user's.
FEW = ["prlimit", "--nofile=400:400", "--"]

COMMON = """
import ctypes, select, socket, struct, time
def child():
    ctypes.CDLL(None).prctl(1, 9)  # it ends with its parent
    for fd in range(3): os.dup2(os.open('/dev/null', os.O_RDWR), fd)
def http():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(LAB['http'])
    return s
def call(s, method, path, body=b''):
    s.sendall(f'{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n'.encode() + body)
def attach():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(60)
    s.connect(LAB['attach'])
    return s
def message(kind, session=b'', slot=0):
    return struct.pack('<IHH40sI12x', 0x48435441, 1, kind, session, slot)
def answer(s):
    text = b''
    while b'\\r\\n\\r\\n' not in text:
        part = s.recv(1 << 16)
        if not part: return text, b''
        text += part
    head, body = text.split(b'\\r\\n\\r\\n', 1)
    length = int([l for l in head.lower().split(b'\\r\\n') if l.startswith(b'content-length')][0].split(b':')[1])
    while len(body) < length:
        body += s.recv(1 << 16)
    return head, body
def held():
    print('sent', flush=True)
    sys.stdin.read()
"""

# Connections that stay open; each says something, so that the daemon has seen it.
CONNECTIONS = COMMON + """
count, kind, uids = int(sys.argv[1]), sys.argv[2], [int(u) for u in sys.argv[3].split(',')]
kept = []
for uid in uids:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        if uid != os.getuid():
            os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
        child()
        for i in range(count):
            try:
                s = http() if kind == 'http' else attach()
                if kind == 'http': call(s, 'GET', '/v1/gpus'); answer(s)
                else: s.send(message(4, b's-nobody')); s.recv(4096)
                kept.append(s)
            except OSError:
                pass
        os.write(write, b'x'); os.close(write)
        time.sleep(3600)
    os.close(write)
    os.read(read, 1)
held()
"""

# One process each, which says that it is a command in the user's slice, and lives on.
COMMANDS = COMMON + """
s = http()
call(s, 'POST', '/v1/sessions', b'{"vram": "1"}')
session = json.loads(answer(s)[1])['id']
refused = 0
for i in range(int(sys.argv[1])):
    read, write = os.pipe()
    if os.fork() == 0:
        child()
        s = attach(); s.send(message(2, session.encode())); said = s.recv(4096); s.close()
        os.write(write, b'n' if b'too many' in said else b'y'); os.close(write)
        time.sleep(3600)
    os.close(write)
    refused += os.read(read, 1) == b'n'
    os.close(read)
print(refused, flush=True)
held()
"""

# A long history of one's own, which is then asked for again and again and never read.
ENDED = COMMON + """
s = http()
for i in range(int(sys.argv[1])):
    call(s, 'POST', '/v1/sessions', b'{"vram": "1"}')
    id = json.loads(answer(s)[1])['id']
    call(s, 'DELETE', f'/v1/sessions/{id}'); answer(s)
"""
UNREAD = ENDED + """
kept = []
for i in range(int(sys.argv[2])):
    s = http()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    call(s, 'GET', '/v1/sessions?all=1' + ('&page=' if i % 2 else ''))
    s.recv(64)
    kept.append(s)
held()
"""


# Asks for a ledger again and again on each of many connections, and reads no answer. The kernel lets a user without
# privileges have only so many descriptors in messages that nobody has read: they count to the daemon's user.
UNREAD_LEDGERS = COMMON + """
s = http()
call(s, 'POST', '/v1/sessions', b'{"vram": "1"}')
session = json.loads(answer(s)[1])['id'].encode()
kept = [attach() for _ in range(int(sys.argv[1]))]
for s in kept:
    s.settimeout(0)
    try:
        for _ in range(int(sys.argv[2])): s.send(message(4, session))
    except OSError: pass
for s in kept:  # each has been heard: it has an answer, or has been closed
    while not select.select([s], [], [], 60)[0]: pass
held()
"""


def attack(lab, source, *arguments, uid=MALLORY, **kw):
    """Starts it, and returns what it says when it is under way."""
    kw.setdefault("method", lab.popen)
    attacker = lab.python(uid, source, *arguments, **kw)
    lines = []
    while (line := attacker.stdout.readline().strip()) != "sent":
        assert line, attacker.communicate()
        lines.append(line)
    return lines


def others_are_served(lab):
    done = lab.run(ALICE, CARVE, "gpu", "list")
    assert done.returncode == 0, done.stderr
    done = lab.run(ALICE, CARVE, "run", "--ephemeral", "--vram", "1", "--", "true")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["http", "attach"])
@pytest.mark.attack("9", "one user opens all connections")
def test_connections_of_one_user(make_lab, kind):
    lab = make_lab(before=FEW)
    attack(lab, CONNECTIONS, 120, kind, MALLORY)
    others_are_served(lab)


@pytest.mark.parametrize("kind", ["http", "attach"])
@pytest.mark.attack("9", "subordinate users open all connections")
def test_connections_of_subordinate_users(make_lab, kind, tmp_path):
    """13 IDs of one user's range, each as a user of its own."""
    if not pathlib.Path("/etc/subuid").exists():
        pytest.skip("there is no /etc/subuid to cover")
    ranges = tmp_path / "subuid"
    ranges.write_text(f"# ranges\n{MALLORY}:300000:65536\n")
    cover = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             'mount --bind "$0" /etc/subuid && exec "$@"', str(ranges)]
    lab = make_lab(before=cover + FEW)
    # Root plays them: what matters is what the daemon sees.
    attack(lab, CONNECTIONS, 120, kind, ",".join(str(300000 + i) for i in range(13)), uid=0)
    others_are_served(lab)


@pytest.mark.attack("9", "one user has all of the daemon's descriptors watch commands")
def test_descriptors_of_commands(make_lab):
    lab = make_lab(before=FEW)
    refused, = attack(lab, COMMANDS, 60)
    assert int(refused) >= 30
    others_are_served(lab)


def resident(lab):
    """Bytes of all the daemon's processes."""
    total = 0
    for pid in lab.daemon_pids():
        try:
            total += int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        except OSError:
            pass
    return total


@pytest.mark.once("an instrumented build keeps what is freed for a while")
@pytest.mark.attack("9", "long answers that nobody reads")
def test_answers_that_are_not_read(lab):
    before = resident(lab)
    attack(lab, UNREAD, 300, 400)
    assert resident(lab) - before < 96 << 20
    others_are_served(lab)


# Requests whose bodies never end. Each connection says something more every few seconds, so that it stays.
UNENDED = COMMON + """
import threading
kept, size = [], int(sys.argv[2])
head = f'POST /v1/jobs HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {size + 1000}\\r\\n\\r\\n'.encode()
for i in range(int(sys.argv[1])):
    s = http()
    s.sendall(head + b'x' * size)
    kept.append(s)
while any(struct.unpack('i', fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0] for s in kept): time.sleep(0.01)
held()
"""


@pytest.mark.once("an instrumented build keeps what is freed for a while")
@pytest.mark.attack("9", "long requests that do not end")
def test_bodies_that_do_not_end(lab):
    before = resident(lab)
    attack(lab, "import fcntl, termios\n" + UNENDED, 600, 500000)
    assert resident(lab) - before < 96 << 20
    others_are_served(lab)
    done = lab.python(ALICE, COMMON + """
s = http()
call(s, 'POST', '/v1/jobs', b'x' * 400000)
assert b' 400 ' in answer(s)[0].split(b'\\r\\n')[0]  # it was read whole
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.attack("9", "descriptors in answers that nobody reads")
def test_ledgers_that_are_not_read(make_lab):
    lab = make_lab(before=FEW)
    attack(lab, UNREAD_LEDGERS, 45, 20)
    done = lab.run(ALICE, CARVE, "run", "--ephemeral", "--vram", "1", "--", BUILD / "examples" / "hog")
    assert done.returncode == 0 and "this GPU has 1024 MiB" in done.stdout, done.stderr


@pytest.mark.attack("9", "one user's sessions push others' out of the history")
def test_a_history_that_one_user_fills(make_lab, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "carved.json").write_text(json.dumps({"history_sessions": 40}))
    lab = make_lab(args=["--config", str(tmp_path / "carved.json")])
    for _ in range(5):
        assert lab.run(ALICE, CARVE, "run", "--ephemeral", "--vram", "1", "--", "true").returncode == 0
    assert lab.python(MALLORY, ENDED, 600).returncode == 0
    listed = json.loads(lab.run(ALICE, CARVE, "session", "list", "--all", "--json").stdout)
    assert len([session for session in listed if session["owner"] == str(ALICE)]) == 5


# Sessions that live as long as this process does. Prints how many were granted, and the last refusal.
LIVING = COMMON + """
count, body = int(sys.argv[1]), sys.argv[2].encode()
s, granted, refusal = http(), 0, ''
for i in range(count):
    call(s, 'POST', '/v1/sessions', body)
    head, text = answer(s)
    if b' 201 ' in head.split(b'\\r\\n')[0]: granted += 1
    else: refusal = json.loads(text)['error']['message']
print(granted, refusal, flush=True)
held()
"""

# As LIVING, by subordinate users.
LIVING_OF_RANGE = LIVING.replace("s, granted", """uid = int(sys.argv[3])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
s, granted""", 1)

SMALL = '{"vram_bytes": 600000000, "ephemeral": true}'


def settings(tmp_path, **values):
    """The daemon's options for a configuration file."""
    tmp_path.chmod(0o755)
    (tmp_path / "carved.json").write_text(json.dumps(values))
    return ["--config", str(tmp_path / "carved.json")]


@pytest.mark.attack("9", "one user has all sessions")
def test_living_sessions_of_one_user(make_lab, tmp_path):
    lab = make_lab(args=settings(tmp_path, living_sessions=40))
    said, = attack(lab, LIVING, 60, SMALL)
    assert said.split()[0] == "20" and "as many sessions as one user may have" in said
    others_are_served(lab)
    lab.restart()  # they are counted again
    said, = attack(lab, LIVING, 5, SMALL)
    assert said.split()[0] == "0"
    said, = attack(lab, LIVING, 30, SMALL, uid=ALICE)
    assert said.split()[0] == "10"


@pytest.mark.attack("9", "one user's subordinate users have all sessions")
def test_living_sessions_of_subordinate_users(make_lab, tmp_path):
    if not pathlib.Path("/etc/subuid").exists():
        pytest.skip("there is no /etc/subuid to cover")
    ranges = tmp_path / "subuid"
    ranges.write_text(f"{MALLORY}:300000:65536\n")
    cover = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             'mount --bind "$0" /etc/subuid && exec "$@"', str(ranges)]
    lab = make_lab(before=cover, args=settings(tmp_path, living_sessions=40))
    granted = [int(attack(lab, LIVING_OF_RANGE, 8, SMALL, 300000 + i, uid=0)[0].split()[0]) for i in range(4)]
    assert sum(granted) == 20, granted
    others_are_served(lab)


@pytest.mark.attack("9", "a session that ends makes room for no more than one")
def test_living_sessions_that_come_and_go(make_lab, tmp_path):
    lab = make_lab(args=settings(tmp_path, living_sessions=8))
    said, = attack(lab, LIVING, 8, SMALL)
    assert said.split()[0] == "4"
    assert lab.run(MALLORY, CARVE, "session", "release", "--all", "--force").returncode == 0
    said, = attack(lab, LIVING, 8, SMALL)
    assert said.split()[0] == "4"


# One process asks for a session and releases it, again and again; it goes on all the time.
COME_AND_GO = COMMON + """
s, served, refusal = http(), 0, ''
for turn in range(int(sys.argv[1])):
    call(s, 'POST', '/v1/sessions', sys.argv[2].encode())
    text = json.loads(answer(s)[1])
    if 'id' not in text:
        refusal = text['error']['message']
        break
    call(s, 'DELETE', '/v1/sessions/' + text['id'])
    served += answer(s)[0].startswith(b'HTTP/1.1 200')
print(served, refusal, flush=True)
held()
"""


@pytest.mark.attack("9", "sessions that end before the process that asked for them keep its descriptors")
def test_sessions_that_end_before_their_process(make_lab):
    lab = make_lab(before=FEW)
    said, = attack(lab, "import json\n" + COME_AND_GO, 150, SMALL)
    assert said.split()[0] == "150", said


@pytest.mark.attack("9", "more sessions than one answer has")
def test_a_list_of_many_sessions_is_whole(make_lab):
    """Parts follow each other without a gap, and nobody's own sessions are pushed out of a short answer."""
    lab = make_lab(gpus="h100-80gb:3")
    mine = lab.carve_json(ALICE, "session", "request", "--vram", "1")["id"]
    said, = attack(lab, LIVING, 330, SMALL)
    granted = int(said.split()[0])
    assert granted > 256
    listed = lab.carve_json(0, "session", "list")
    assert len({session["id"] for session in listed}) == granted + 1 == len(listed)
    assert [session["created"] for session in listed] == sorted(session["created"] for session in listed)
    assert len(lab.carve_json(0, "session", "list", "--all")) == granted + 1
    short = lab.python(ALICE, COMMON + """
s = http(); call(s, 'GET', '/v1/sessions'); print(answer(s)[1].decode())
for page in ('living=x', 'living=l', 'living=l5', 'living=l5.UP', 'living=w1', 'living=w1.2.3', 'page=l1.a%20b'):
    call(s, 'GET', '/v1/sessions?' + page); head, body = answer(s)
    assert b' 400 ' in head.split(b'\\r\\n')[0], (page, head)
""")
    assert short.returncode == 0, short.stderr
    rows = json.loads(short.stdout)
    assert len(rows) == 256 and rows[0]["id"] == mine


@pytest.mark.attack("9", "sessions that end by the hundred within a minute")
def test_history_rows_within_a_minute(make_lab, tmp_path):
    lab = make_lab(args=settings(tmp_path, history_per_minute=30))
    for _ in range(3):
        assert lab.run(ALICE, CARVE, "run", "--ephemeral", "--vram", "1", "--", "true").returncode == 0
    assert lab.python(MALLORY, ENDED, 200).returncode == 0

    def owners():
        return [session["owner"] for session in lab.carve_json(0, "session", "list", "--all")]

    assert owners().count(str(MALLORY)) == 30 and owners().count(str(ALICE)) == 3
    assert lab.log().count(f"history.dropped uid={MALLORY}") == 1
    # Those that are kept are the newest, and root has no such bound.
    kept = [s for s in lab.carve_json(0, "session", "list", "--all") if s["owner"] == str(MALLORY)]
    assert lab.python(MALLORY, ENDED, 1).returncode == 0
    now = [s for s in lab.carve_json(0, "session", "list", "--all") if s["owner"] == str(MALLORY)]
    assert [s["id"] for s in now[:-1]] == [s["id"] for s in kept[1:]] and now[-1]["id"] not in {s["id"] for s in kept}
    assert lab.python(0, ENDED, 40).returncode == 0
    assert owners().count("root") == 40


@pytest.mark.attack("9", "a group's quota, by users of whom it is a supplementary group")
def test_supplementary_groups_have_their_quota(lab):
    """As on Debian, where each user has a primary group of its own."""
    students = 60200
    assert lab.run(0, CARVE, "quota", "set", "--group", students, "--vram", "10").returncode == 0

    def request(uid, size, groups):
        return lab.run(uid, CARVE, "session", "request", "--vram", size, groups=groups)

    assert request(ALICE, 6, [60201, students]).returncode == 0
    refused = request(BOB, 5, [students])
    assert refused.returncode == 5 and "your group 60200's quota is 10 GiB" in refused.stderr
    assert request(MALLORY, 5, []).returncode == 0
    lab.restart()
    assert request(BOB, 5, [students]).returncode == 5
    assert lab.run(ALICE, CARVE, "session", "release").returncode == 0
    assert request(BOB, 5, [students]).returncode == 0


# As another user, so many connections, each of which reads a long answer once, and closes when it is told to.
CHANGING = COMMON + """
count, uid, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
kept = []
for i in range(count):
    s = http()
    call(s, 'GET', path)
    head, body = answer(s)
    assert b' 200 ' in head.split(b'\\r\\n')[0], head
    kept.append(s)
print(len(body), flush=True)
for line in sys.stdin:
    for s in kept:
        call(s, 'GET', path)
        assert b' 200 ' in answer(s)[0]
    for s in kept: s.close()
    print('closed', flush=True)
"""


@pytest.mark.long
@pytest.mark.attack("9", "a user whose subordinate range is given while connections are open")
def test_connections_leave_as_whom_they_came(make_lab, tmp_path):
    """Else each leaves its place taken for ever, until nobody is served."""
    if not pathlib.Path("/etc/subuid").exists():
        pytest.skip("there is no /etc/subuid to cover")
    ranges = tmp_path / "subuid"
    ranges.write_text("# none yet\n")
    cover = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             'mount --bind "$0" /etc/subuid && exec "$@"', str(ranges)]
    lab = make_lab(before=cover + FEW)
    assert lab.python(MALLORY, ENDED, 120).returncode == 0
    attacker = lab.python(0, CHANGING, 45, 300000, "/v1/sessions?all=1", method=lab.popen)
    assert int(attacker.stdout.readline()) > 16384, attacker.communicate()
    ranges.write_text(f"{MALLORY}:300000:65536\n")
    # The file is read again for an unknown ID, 5 s after it was read last.
    assert lab.python(0, "import time; time.sleep(5.5)\n" + CHANGING, 1, 500000, "/v1/gpus").returncode == 0
    wait_until(lambda: lab.python(0, CHANGING, 1, 300001, "/v1/gpus").returncode == 0)
    attacker.stdin.write("on\n")
    attacker.stdin.flush()
    assert attacker.stdout.readline() == "closed\n", attacker.communicate()
    attacker.kill()
    after = lab.python(MALLORY, CHANGING.replace("os.set", "0 and os.set"), 45, MALLORY, "/v1/gpus")
    assert after.returncode == 0, after.stderr
