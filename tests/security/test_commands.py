"""POST /v1/commands, by which a container's first process comes into a session: only one's own, into one's own."""
import json
import pathlib

from conftest import wait_until

from .lab import ALICE, MALLORY, ROOT


def post(lab, uid, session, pid, **more):
    done = lab.run(uid, "curl", "-s", "--unix-socket", lab.paths(uid)["http"], "-d", json.dumps({"session": session, "pid": pid, **more}),
                   "http://localhost/v1/commands")
    return json.loads(done.stdout)


def test_a_command_is_the_callers_own_in_a_session_of_the_caller(lab):
    alices = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    mallorys = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    sleeps = {uid: lab.popen(uid, "sleep", "600") for uid in (ALICE, MALLORY)}
    try:
        assert "another user's" in post(lab, MALLORY, mallorys, sleeps[ALICE].pid)["error"]["message"]
        assert "another user's" in post(lab, MALLORY, alices, sleeps[MALLORY].pid)["error"]["message"]
        assert "another user's" in post(lab, MALLORY, mallorys, 1)["error"]["message"]
        assert post(lab, ALICE, alices, sleeps[ALICE].pid) == {"session": alices, "pid": sleeps[ALICE].pid}
        assert post(lab, ROOT, mallorys, sleeps[MALLORY].pid)["pid"] == sleeps[MALLORY].pid
        for pid in (0, -1, "1", None, 1 << 40):
            assert post(lab, ALICE, alices, pid)["error"]["message"] == "'pid' takes a process ID"
        # One that is named by its birth, too, is not mistaken for the next process that has its PID.
        pid = sleeps[ALICE].pid
        born = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        assert post(lab, ALICE, alices, pid, birth=born)["pid"] == pid
        assert post(lab, ALICE, alices, pid, birth=born - 1)["error"]["message"] == f"there is no process {pid}"
        assert post(lab, ALICE, alices, pid, birth="1")["error"]["message"] == "'birth' takes a process's birth"
        assert "there is no session" in post(lab, ALICE, "s-nosuch", sleeps[ALICE].pid)["error"]["message"]
    finally:
        for process in sleeps.values():
            process.kill()
            process.wait()


ASKS = """
import socket

def call(path, body):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(LAB["http"])
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(text)}", "", ""
        s.sendall("\\r\\n".join(head).encode() + text)
        return json.loads(b"".join(iter(lambda: s.recv(65536), b"")).partition(b"\\r\\n\\r\\n")[2])

session = call("/v1/sessions", {"vram_bytes": 2 << 30, "ephemeral": True})["id"]
print(session, call("/v1/commands", {"session": session, "pid": int(sys.argv[1]), "instead": json.loads(sys.argv[2])})["pid"], flush=True)
input()
"""


def test_a_session_is_the_commands_alone_where_its_asker_says_so(lab):
    """A process that asked for a session, and that is never to end, keeps it no longer than the container lives."""
    for instead in (True, False):
        command = lab.popen(ALICE, "sleep", "600")
        asker = lab.python(ALICE, ASKS, command.pid, json.dumps(instead), method=lab.popen)
        session = asker.stdout.readline().split()[0]
        # Another than the asker may not say it of the asker.
        assert post(lab, ALICE, session, command.pid, instead=True)["pid"] == command.pid
        assert lab.carve_json(ALICE, "session", "show", session)["state"] == "active"
        command.kill()
        command.wait()
        if instead:
            wait_until(lambda: not lab.carve_json(ALICE, "session", "list"))
        else:
            wait_until(lambda: not lab.carve_json(ALICE, "session", "show", session)["command_pids"])
            assert lab.carve_json(ALICE, "session", "show", session)["state"] == "active"
        assert asker.poll() is None
        asker.communicate("\n")
        wait_until(lambda: not lab.carve_json(ALICE, "session", "list"))
