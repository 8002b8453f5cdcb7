"""Attacks by namespaces, as every user may make them: entering root's session by a mount namespace, PIDs that mean another
process inside, file systems that are gone or are another's, and user IDs that are root's or another user's inside."""
import json
import os
import pathlib
import re
import signal

import pytest

from conftest import rest_long, wait_until

from .lab import ALICE, BOB, CARVE, CARVED, MALLORY, ROOT, as_user
from .test_budgets import COMMON

# Asks for a slot in a session, once. Prints "in" or the refusal.
JOIN = """
import pathlib, time
sys.path.insert(0, LAB["tests"])
from attach_client import Attached, BUSY, COMMAND, OBSERVE, WORKLOAD, OK
class D: runtime = pathlib.Path(LAB["runtime"])
def join(session, kind=WORKLOAD):
    while True:
        a = Attached(D)
        answer = a.ask(kind, session)
        a.close()
        if not answer or answer[0] != BUSY: break  # the daemon did not hear from its warden in time
        time.sleep(0.1)
    return "in" if answer and answer[0] == OK else answer[2] if answer else "hung up"
"""
ONCE = JOIN + """
for kind in (WORKLOAD, OBSERVE, COMMAND): print(join(sys.argv[1], kind))
"""

USER = ["unshare", "--user", "--map-root-user"]
INSIDE = {
    "user": USER,
    "user and mount": [*USER, "--mount", "--propagation", "private"],
    "PID": [*USER, "--mount", "--pid", "--fork", "--mount-proc"],
    "all": [*USER, "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--cgroup"],
}


@pytest.fixture
def namespaces():
    """Users may make user namespaces here."""
    import subprocess
    if subprocess.run([*as_user(MALLORY), *USER, "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("this kernel lets users make no user namespaces")


def within(lab, uid, words, source, *arguments, method=None, **kw):
    """A program in Python, as a user, started by these words (as of unshare)."""
    head = f"import json, os, sys; LAB = json.loads({json.dumps(json.dumps(lab.paths(uid)))})\n"
    return (method or lab.run)(uid, *words, "/usr/bin/python3", "-c", head + source, *arguments, **kw)


def refused(done, lines=None):
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said and (lines is None or len(said) == lines), (done.stdout, done.stderr)
    assert all("another user's" in line for line in said), said


class RootsCommand:
    """A command of root's in a slice, with a mount namespace of its own. `run` starts others in there."""

    def __init__(self, lab, *command):
        self.lab = lab
        self.process = lab.popen(ROOT, CARVE, "run", "--ephemeral", "--vram", "2", "--isolation", "mount", "--",
                                 *(command or ("sh", "-c", "echo $$ $CARVE_SESSION; exec sleep 600")))
        said = self.process.stdout.readline().split()
        assert len(said) == 2, self.process.communicate()
        self.pid, self.session = int(said[0]), said[1]

    def namespace(self):
        return os.stat(f"/proc/{self.pid}/ns/mnt").st_ino

    def enter(self, uid):
        """The words that make a user's process there, which root alone may do."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", *as_user(uid)]

    def lets_in(self, uid):
        done = within(self.lab, ROOT, self.enter(uid), JOIN + "print(join(sys.argv[1]))", self.session)
        assert done.returncode == 0, done.stderr
        return done.stdout == "in\n"


# ---- root's session ------------------------------------------------------------------------

@pytest.mark.parametrize("how", rest_long(INSIDE, 2))
@pytest.mark.attack("3", "root's session is entered from a user's own namespaces")
def test_own_namespaces_enter_no_session_of_root(lab, namespaces, how):
    command = RootsCommand(lab)
    assert command.lets_in(ALICE)  # whom root put there
    refused(within(lab, MALLORY, INSIDE[how], ONCE, command.session), 3)
    refused(within(lab, MALLORY, [], ONCE, command.session), 3)


# Joins the mount namespace of root's command by every way there is.
SETNS = ONCE.split("for kind")[0] + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
pid, session = int(sys.argv[2]), sys.argv[1]
ways = 0
for name in ('ns/mnt', 'root', 'cwd'):
    try:
        fd = os.open(f'/proc/{pid}/{name}', os.O_RDONLY)
    except OSError:
        continue
    ways += libc.setns(fd, 0x20000) == 0
    try:
        os.fchdir(fd); os.chroot('.'); ways += 1
    except OSError:
        pass
pidfd = libc.syscall(434, pid, 0)
for flags in (0x20000, 0x10000000 | 0x20000): ways += pidfd >= 0 and libc.setns(pidfd, flags) == 0
print(join(session))
assert not ways, ways
"""


@pytest.mark.parametrize("how", rest_long(["user", "plain", "PID"]))
@pytest.mark.attack("3", "setns() into the mount namespace of root's command")
def test_setns_enters_no_session_of_root(lab, namespaces, how):
    command = RootsCommand(lab)
    refused(within(lab, MALLORY, INSIDE.get(how, []), SETNS, command.session, command.pid), 1)


# A new mount namespace each time: the kernel gives a number that nobody has any more to the next one.
NUMBERS = JOIN + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
said, numbers = set(), set()
for i in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        assert libc.unshare(0x10000000 | 0x20000) == 0, os.strerror(ctypes.get_errno())
        print(os.stat('/proc/self/ns/mnt').st_ino, join(sys.argv[1]), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("when", rest_long(["at once", "restart", "upgrade"]))
@pytest.mark.attack("3", "the number of a mount namespace that root's command has left")
def test_the_number_of_a_namespace_lets_nobody_in(lab, namespaces, when):
    # The command leaves the namespace that was made for it, and goes on in another one.
    command = RootsCommand(lab, "unshare", "--mount", "sh", "-c", "echo $$ $CARVE_SESSION; exec sleep 600")
    if when == "restart":
        lab.restart()
    if when == "upgrade":
        done = lab.run(ROOT, CARVED, "--system", "--runtime-dir", lab.runtime, "--takeover")
        assert done.returncode == 0, done.stderr
    done = within(lab, MALLORY, [], NUMBERS, command.session, 300)
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert len(lines) == 300, done.stderr
    assert all("another user's" in said for _, said in lines), lines
    # Numbers do come again, so that this test would find it.
    assert len({number for number, _ in lines}) < 300


@pytest.mark.attack("3", "a mount namespace of a command that has ended")
def test_a_namespace_is_of_its_session_only(lab, namespaces):
    """A process in one of root's sessions is in no other one, and a command's end ends that."""
    first, second = RootsCommand(lab), RootsCommand(lab)
    done = within(lab, ROOT, first.enter(MALLORY), JOIN + "for s in sys.argv[1:]: print(join(s))", first.session, second.session)
    assert done.stdout.splitlines()[0] == "in" and "another user's" in done.stdout.splitlines()[1], done
    late = within(lab, ROOT, first.enter(MALLORY), JOIN + """
print('up', flush=True)
sys.stdin.readline()
print(join(sys.argv[1]))
""", second.session, method=lab.popen)
    assert late.stdout.readline() == "up\n", late.communicate()
    first.process.terminate()
    first.process.wait()
    late.stdin.write("on\n")
    late.stdin.flush()
    assert "another user's" in late.stdout.readline()


# ---- PIDs ----------------------------------------------------------------------------------

# Takes a PID in its own PID namespace, and asks what it can with it.
COLLIDES = COMMON + JOIN + """
def child_with(pid):
    open('/proc/sys/kernel/ns_last_pid', 'w').write(str(pid - 1))
    read, write = os.pipe()
    child = os.fork()
    if child: os.close(write); return child, read
    os.close(read)
    assert os.getpid() == pid, os.getpid()
    ctypes.CDLL(None).prctl(1, 9)
    a = Attached(D)
    os.write(write, str(a.ask(WORKLOAD, sys.argv[1])[0]).encode()); os.close(write)
    time.sleep(3600)
victim = int(sys.argv[2])
child, read = child_with(victim)
assert child == victim and os.read(read, 9) == b'0'
s = http()
call(s, 'POST', '/v1/commands', json.dumps({'session': sys.argv[1], 'pid': victim}).encode())
print(json.loads(answer(s)[1]).get('error', {}).get('message', 'in'), flush=True)
held()
"""


@pytest.mark.parametrize("victim", [ALICE, ROOT])
@pytest.mark.attack("4", "a process with a victim's PID in a PID namespace of its own, and a release by force")
def test_a_pid_in_another_namespace_names_nobody_else(lab, namespaces, victim):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    bystander = lab.popen(victim, "sleep", "600")
    wait_until(lambda: pathlib.Path(f"/proc/{bystander.pid}/comm").read_text() == "sleep\n")
    attacker = within(lab, MALLORY, INSIDE["PID"], COLLIDES, session, bystander.pid, method=lab.popen)
    said = attacker.stdout.readline()
    if not said and "ns_last_pid" in attacker.stderr.read():
        pytest.skip("no PID can be chosen in a PID namespace here")
    assert "another user's" in said, said
    pids = lab.carve_json(MALLORY, "session", "show", session)["pids"]
    assert len(pids) == 1 and pids[0] != bystander.pid
    done = lab.carve(MALLORY, "session", "release", session, "--force")
    assert done.returncode == 0, done.stderr
    assert bystander.poll() is None
    bystander.send_signal(signal.SIGKILL)


@pytest.mark.attack("4", "the first process of a PID namespace ends, and with it all in there")
def test_a_pid_namespace_that_ends_gives_all_back(lab, namespaces):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    attacker = within(lab, MALLORY, INSIDE["PID"], JOIN + """
kept = []
for i in range(20):
    if os.fork() == 0:
        a = Attached(D); a.ask(WORKLOAD, sys.argv[1]); time.sleep(3600)
time.sleep(3600)
""", session, method=lab.popen)
    wait_until(lambda: len(lab.carve_json(MALLORY, "session", "show", session)["pids"]) == 20)
    lab.run(ROOT, "pkill", "-KILL", "-P", str(attacker.pid))
    wait_until(lambda: not lab.carve_json(MALLORY, "session", "show", session)["pids"])
    assert lab.carve(MALLORY, "session", "release", session).returncode == 0


# ---- file systems --------------------------------------------------------------------------

# In a mount namespace of its own: what the daemon's clients read is covered or gone.
COVERED = {
    "runtime directory covered": "mount -t tmpfs none {runtime}",
    "runtime directory unmounted": "mount --bind {runtime} {runtime} && cd {runtime} && umount --lazy {runtime}",
    "proc covered": "mount -t tmpfs none /proc",
    "proc bound elsewhere, and unmounted": "mount --bind {home} /proc; umount --lazy /proc || true",
    "root changed": "mkdir -p {home}/root && mount -t tmpfs none {home}/root && cd {home}/root",
}


@pytest.mark.parametrize("how", rest_long(COVERED, 2))
@pytest.mark.attack("3", "the runtime directory, or /proc, is covered or unmounted in a namespace of the user's own")
def test_mounts_of_a_user_affect_that_user_alone(lab, namespaces, how):
    root = RootsCommand(lab)
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    mount = COVERED[how].format(runtime=lab.runtime, home=lab.home(MALLORY))
    # Connected before, so that only the daemon's own look is left: it must not go by the caller's file systems.
    source = JOIN + """
import subprocess
connections = [Attached(D) for i in range(3)]
done = subprocess.run(['sh', '-ec', sys.argv[3]])
assert done.returncode == 0
if 'root' in sys.argv[4]: os.chroot('.')
for a, session in zip(connections, (sys.argv[1], sys.argv[2], sys.argv[1])):
    print(a.ask(WORKLOAD, session)[2] or 'in', flush=True)
    if a is connections[1]:
        try: os.chdir('/')
        except OSError: pass
time.sleep(3600)
"""
    attacker = within(lab, MALLORY, [*INSIDE["user and mount"][:-2], "--propagation", "slave"], source, session, root.session,
                      mount, how, method=lab.popen)
    said = [attacker.stdout.readline() for _ in range(3)]
    assert said[0] == "in\n" and "another user's" in said[1] and said[2] == "in\n", (said, attacker.poll())
    assert len(lab.carve_json(ALICE, "gpu", "list")) == 1
    done = lab.carve(MALLORY, "session", "release", session, "--force")
    assert done.returncode == 0, done.stderr
    assert root.lets_in(ALICE) and attacker.wait(60) != 0


# ---- subordinate users ---------------------------------------------------------------------

def lab_with_ranges(make_lab, tmp_path, **kw):
    """Mallory has user IDs from 300000 on, Alice from 400000 on."""
    if not pathlib.Path("/etc/subuid").exists():
        pytest.skip("there is no /etc/subuid to cover")
    ranges = tmp_path / "subuid"
    # Ranges that name root or another user are nobody's.
    ranges.write_text(f"{MALLORY}:300000:65536\n{ALICE}:400000:65536\n")
    return make_lab(before=["unshare", "--mount", "--propagation", "private", "sh", "-c",
                            'mount --bind "$0" /etc/subuid && exec "$@"', str(ranges)], **kw)


@pytest.fixture
def ranges_lab(make_lab, tmp_path):
    return lab_with_ranges(make_lab, tmp_path)


AS = """
os.setgroups([]); os.setresgid(*[int(sys.argv[3])] * 3); os.setresuid(*[int(sys.argv[3])] * 3)
"""


def ask(lab, uid, session, method, path, body=""):
    """The daemon's answer to a subordinate user, whom root plays."""
    done = lab.python(ROOT, COMMON + AS + """
s = http()
call(s, sys.argv[1], sys.argv[2], sys.argv[4].encode())
print(answer(s)[1].decode())
""", method, path.format(session=session), uid, body)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("uid", rest_long([300001, 300000, 365535]))
@pytest.mark.attack("9", "a subordinate user acts as another user, or as its owner")
def test_a_subordinate_user_is_nobody_else(ranges_lab, uid):
    lab = ranges_lab
    sessions = {user: lab.carve_json(user, "session", "request", "--vram", "2")["id"] for user in (ALICE, BOB, MALLORY)}
    assert lab.carve(ROOT, "quota", "set", MALLORY, "--vram", "3").returncode == 0

    def join(session):
        return lab.python(ROOT, JOIN + AS + "print(join(sys.argv[1]))", session, "-", uid).stdout

    assert join(sessions[MALLORY]) == "in\n"
    for user in (ALICE, BOB):
        assert "another user's" in join(sessions[user])
        for method, path, body in (("DELETE", "/v1/sessions/{session}?force=1", ""), ("PATCH", "/v1/sessions/{session}", '{"vram": "1"}'),
                                   ("GET", "/v1/sessions/{session}", ""), ("GET", "/v1/explain/{session}", "")):
            assert "another user's" in ask(lab, uid, sessions[user], method, path, body)["error"]["message"]
    rows = ask(lab, uid, "", "GET", "/v1/sessions")
    assert not any(row["id"] in (sessions[ALICE], sessions[BOB]) for row in rows)
    # Its memory counts as its owner's.
    assert "quota is 3 GiB" in ask(lab, uid, "", "POST", "/v1/sessions", '{"vram": "2"}')["error"]["message"]
    assert "for root and members" in ask(lab, uid, "", "POST", "/v1/sessions", '{"vram": "1", "priority": 5}')["error"]["message"]


@pytest.mark.attack("9", "a subordinate user as one user more, where each user has a quota")
def test_the_quota_of_everyone_counts_subordinate_users_as_their_owner(ranges_lab):
    lab = ranges_lab
    assert lab.carve(ROOT, "quota", "set", "--everyone", "--vram", "3", "--gpu-hours", "0.00005").returncode == 0
    assert "id" in ask(lab, MALLORY, "", "POST", "/v1/sessions", '{"vram": "2"}')
    assert "quota of each user is 3 GiB" in ask(lab, 300001, "", "POST", "/v1/sessions", '{"vram": "2"}')["error"]["message"]
    for uid, path in ((300001, "everyone"), (MALLORY, f"user/{MALLORY}"), (MALLORY, f"each/{MALLORY}")):
        said = ask(lab, uid, "", "PATCH", f"/v1/quotas/{path}", '{"vram": "unlimited", "gpu_hours": null}')
        assert "quotas are set by root" in said["error"]["message"]
    assert "only root and members" in ask(lab, 300001, "", "GET", f"/v1/limits?uid={ALICE}")["error"]["message"]
    # The hours are the owner's, whoever holds the slice.
    assert "id" in ask(lab, 300001, "", "POST", "/v1/sessions", '{"vram": "1"}')
    wait_until(lambda: "used up" in ask(lab, 300002, "", "POST", "/v1/explain", '{"vram": "1"}')["message"])
    assert "id" in ask(lab, ALICE, "", "POST", "/v1/sessions", '{"vram": "1"}')


@pytest.mark.parametrize("uid", rest_long([299999, 365536, 400000, BOB], 2))
@pytest.mark.attack("9", "a user ID just outside a range, or of another one's range")
def test_a_range_ends_where_it_ends(ranges_lab, uid):
    lab = ranges_lab
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    said = lab.python(ROOT, JOIN + AS + "print(join(sys.argv[1]))", session, "-", uid).stdout
    assert "another user's" in said
    assert re.search("another user's", ask(lab, uid, session, "DELETE", "/v1/sessions/{session}?force=1")["error"]["message"])


STUDENTS = 60200
COVER = 'for f in subuid passwd group; do mount --bind "$0/$f" /etc/$f || exit 1; done; exec "$@"'


@pytest.fixture
def students_lab(make_lab, tmp_path):
    """Mallory and Bob are students by the files of the machine: Mallory by name, Bob by his primary group."""
    (tmp_path / "subuid").write_text(f"{MALLORY}:300000:65536\n")
    (tmp_path / "passwd").write_text(pathlib.Path("/etc/passwd").read_text() + f"mallory:x:{MALLORY}:{MALLORY}::/:/bin/sh\n"
                                     f"bob:x:{BOB}:{STUDENTS}::/:/bin/sh\nalice:x:{ALICE}:{ALICE}::/:/bin/sh\n")
    (tmp_path / "group").write_text(pathlib.Path("/etc/group").read_text() + f"students:x:{STUDENTS}:nobody-at-all,mallory\n")
    lab = make_lab(before=["unshare", "--mount", "--propagation", "private", "sh", "-c", COVER, str(tmp_path)])
    assert lab.carve(ROOT, "quota", "set", "--group", STUDENTS, "--vram", "3").returncode == 0
    return lab


@pytest.mark.parametrize("uid", rest_long([MALLORY, 300000, BOB, 300001], 2))
@pytest.mark.attack("9", "a user leaves a group for its quota, as root of an own user namespace can")
def test_a_groups_quota_is_for_those_who_left_it(students_lab, uid):
    lab = students_lab

    def request(uid, size):
        return ask(lab, uid, "", "POST", "/v1/sessions", json.dumps({"vram": size}))

    assert "id" in request(ALICE, "8")
    assert "quota is 3 GiB" in request(uid, "4")["error"]["message"]
    assert "id" in request(uid, "2")
    other = MALLORY if uid == BOB else BOB
    assert "quota is 3 GiB" in request(other, "2")["error"]["message"]
    assert "id" in request(other, "1")


@pytest.mark.attack("9", "a user who was put into a group, or taken out of it, while the daemon runs")
def test_a_groups_quota_is_for_those_who_are_in_it_now(students_lab, tmp_path):
    lab, group = students_lab, tmp_path / "group"
    before = group.read_text()
    group.write_text(before.replace(",mallory", ",alice"))
    assert "quota is 3 GiB" in ask(lab, ALICE, "", "POST", "/v1/sessions", '{"vram": "4"}')["error"]["message"]
    id = ask(lab, MALLORY, "", "POST", "/v1/sessions", '{"vram": "4"}')["id"]
    assert lab.carve(ROOT, "session", "release", id).returncode == 0
    group.write_text(before)
    assert "id" in ask(lab, ALICE, "", "POST", "/v1/sessions", '{"vram": "4"}')
    assert "quota is 3 GiB" in ask(lab, MALLORY, "", "POST", "/v1/sessions", '{"vram": "4"}')["error"]["message"]
