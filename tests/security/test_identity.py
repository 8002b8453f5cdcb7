"""Attacks by being somebody else: identity is who connected, as the kernel noted it then, at both sockets."""
import json
import pathlib

import pytest

from conftest import wait_until
from .lab import ALICE, MALLORY, PROGRAMS, ROOT
from .test_memory import IN_SESSION
from .test_setuid import place, set_user_id  # noqa: F401

# Requests that this connection's user may not make: a quota, root's session, a job.
SAYS = r"""
import json, os, socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
def ask(method, path, body):
    text = json.dumps(body).encode()
    try:
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        said = s.recv(65536).decode()
    except ConnectionError:  # the daemon has ended it
        said = ""
    return int(said.split()[1]) if said else 0
answers = [ask("PUT", "/v1/quotas/user/60101", {"vram": "1"}), ask("DELETE", f"/v1/sessions/{sys.argv[2]}", {}),
           ask("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "hold": True})]
print(json.dumps([os.getuid(), answers]), flush=True)
"""
CONNECTS = r"""
import ctypes, socket, subprocess, time
s = socket.socket(socket.AF_UNIX)
s.connect(LAB["http"])
s.set_inheritable(True)
says, session = sys.argv[1:3]
words = ["/usr/bin/python3", "-c", says, str(s.fileno()), session]
"""
HOWS = {
    # It asks as root, by a connection that its caller made.
    "set-user-ID": CONNECTS + "os.execv(sys.argv[3], sys.argv[3:4] + words)\n",
    # Root of a user namespace connects.
    "user namespace": CONNECTS.replace("s.connect", r"""
libc = ctypes.CDLL(None, use_errno=True)
uid = os.getuid()
if libc.unshare(0x10000000) < 0: print("none"), sys.exit(0)
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
open("/proc/self/gid_map", "w").write(f"0 {uid} 1")
assert os.getuid() == 0
s.connect""", 1) + "os.execv(words[0], words)\n",
    # Says that it is root's PID 1, beside its request.
    "SCM_CREDENTIALS": CONNECTS + r"""
import struct
for claimed in ((1, 0, 0), (os.getpid(), 0, 0), (os.getpid(), os.getuid(), 0)):
    try:
        s.sendmsg([b""], [(socket.SOL_SOCKET, 2, struct.pack("3i", *claimed))])
        print("forged")
    except PermissionError:
        pass
s.sendmsg([b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"], [(socket.SOL_SOCKET, 2, struct.pack("3i", os.getpid(), os.getuid(), os.getgid()))])
s.recv(65536)
os.execv(words[0], words)
""",
    # The process that connected has ended, and its child asks.
    "dead": "import os\nchild = os.fork()\nif child: os.waitpid(child, 0), sys.exit(0)\n" + CONNECTS + r"""
connected = os.getpid()
if os.fork(): os._exit(0)
while os.path.exists(f"/proc/{connected}"): time.sleep(0.001)
os.execv(words[0], words)
""",
}


@pytest.mark.attack("2", "a connection whose process is another user by now, says that it is, or has ended")
@pytest.mark.parametrize("how", HOWS)
def test_a_connection_is_of_the_user_who_made_it(lab, place, how):  # noqa: F811
    program = set_user_id(place, PROGRAMS / "become_root")
    session = lab.carve_json(ROOT, "session", "request", "--vram", "1")["id"]
    done = lab.python(MALLORY, HOWS[how], SAYS, session, program, bounding=False)
    if done.stdout == "none\n":
        pytest.skip("no user namespace can be made here")
    assert done.returncode == 0 and "forged" not in done.stdout, done
    uid, (quota, release, job) = json.loads(done.stdout)
    assert uid == (MALLORY if how in ("SCM_CREDENTIALS", "dead") else 0)
    assert (quota, release) == ((0, 0) if how == "dead" else (403, 403)), done.stdout
    owners = [j["user"] for j in lab.carve_json(ROOT, "job", "list")]
    assert owners == ([str(MALLORY)] if job == 201 else []) and (how != "dead" or not job), (owners, job)
    assert lab.carve_json(ROOT, "session", "list")


# Asks at the attach socket by a connection whose process has ended, and says its PID before it asks.
DEAD = IN_SESSION + r"""
from attach_client import COMMAND, OBSERVE, RESUME
a = Attached(D)
parent = os.getpid()
if os.fork(): os._exit(0)
while os.getppid() == parent: time.sleep(0.001)
print(parent, flush=True)
sys.stdin.readline()
print(json.dumps([(a.ask(kind, sys.argv[1]) or (None,))[0] for kind in (COMMAND, WORKLOAD)]), flush=True)
sys.stdin.read()
"""


@pytest.mark.alone
@pytest.mark.attack("4", "a connection whose process has ended, and whose PID is a process of root's by now")
def test_a_pid_that_was_given_again_is_in_no_session(lab):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    attack = lab.python(MALLORY, DEAD, session, method=lab.popen)
    pid = int(attack.stdout.readline())
    attack.wait()
    victim = None
    for _ in range(200):  # somebody else may get it first
        try:
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"PIDs cannot be chosen here: {error}")
        victim = lab.popen(ROOT, "sleep", "1000")
        if victim.pid == pid:
            break
        victim.kill()
        victim.wait()
    assert victim.pid == pid
    attack.stdin.write("\n")
    attack.stdin.flush()
    said = json.loads(attack.stdout.readline())
    assert 0 not in said, said
    assert lab.carve_json(MALLORY, "session", "show", session)["command_pids"] == []
    assert lab.carve(MALLORY, "session", "release", session, "--force").returncode == 0
    assert victim.poll() is None


def test_nobody_takes_another_users_place_in_the_line_by_its_id(lab):
    """A request that waits is known by its ID, which lists of an administrator show, and by who asked."""
    whole = lab.carve_json(ROOT, "session", "request", "--gpu", "1", "--name", "whole")
    asks = ("import socket\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(LAB['http'])\n"
            "body = '{\"id\": \"s-wanted\", \"vram\": \"4\", \"wait_for\": 600, \"name\": \"%s\"}' % sys.argv[1]\n"
            "s.sendall(f'POST /v1/sessions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}'.encode())\n"
            "print('asked', flush=True)\nprint(s.recv(65536).decode(), flush=True)\n")
    line = lambda: {s["name"]: s["id"] for s in lab.carve_json(ROOT, "session", "list") if s["state"] == "waiting"}  # noqa: E731
    alice = lab.python(ALICE, asks, "alices", method=lab.popen)
    wait_until(lambda: "alices" in line())
    mallory = lab.python(MALLORY, asks, "mallorys", method=lab.popen)
    wait_until(lambda: len(line()) == 2)
    assert line()["alices"] == "s-wanted" != line()["mallorys"]
    # Over a crash, too: the row has the owner, and Mallory is the first to come back.
    lab.restart()
    again = lab.python(MALLORY, asks, "mallorys", method=lab.popen)
    wait_until(lambda: list(line()) == ["alices", "mallorys"] and line()["mallorys"] != "s-wanted")
    assert line()["alices"] == "s-wanted"
    for process in (alice, mallory, again):
        process.kill()
        process.wait()
    assert lab.carve(ROOT, "session", "release", whole["id"]).returncode == 0
