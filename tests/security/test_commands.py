"""POST /v1/commands, by which a container's first process comes into a session: only one's own, into one's own."""
import json
import pathlib

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
