"""Attacks by what was copied out of a session: a container's nodes and files are of the GPUs that its session had when it was made, and
another user may have these now (docs/dev/security.md, "Copies of a session")."""
import json

import pytest

from conftest import rest_long, wait_until

from .lab import ALICE, MALLORY, ROOT
from .test_memory import CUDA
from .test_mig_attacks import mig_lab  # noqa: F401: fixture
from .test_slice_mounts import SLICE, hook, mounted

DOORS = {
    # The words of carve-hook, and whether the container has the slice's mounts.
    "spec": (["--register", "ID", "--stamp", "STAMP"], True),
    "file": (["--register", "ID"], True),
    "started again": ([], True),
    "configuration": (["--label", "carve.session=ID", "--stamp", "STAMP"], False),
    "older carve": (["--register", "ID"], False),
}


class Copy:
    """What a container of a session was given: mounts and the words of its hook."""

    def __init__(self, lab, id, directory, door):
        done = lab.carve(ROOT, "cdi", "generate", id, "--cdi-dir", directory)
        assert done.returncode == 0, done.stderr
        edits = json.loads((directory / f"carve.dev-slice_{id}.json").read_text())["devices"][0]["containerEdits"]
        words, has_mounts = DOORS[door]
        stamp = lab.carve_json(ROOT, "session", "show", id)["stamp"]
        self.words = [word.replace("ID", id).replace("STAMP", stamp) if word.isupper() or "=" in word else word for word in words]
        self.mounts = [{"destination": m["containerPath"], "source": m["hostPath"]} for m in edits["mounts"]
                       if m["containerPath"].startswith(SLICE) or m["containerPath"] == "/etc/ld.so.preload"] if has_mounts else []

    def start(self, lab):
        return hook(lab, {"mounts": self.mounts}, self.words, script=mounted(self.mounts))


def session(lab, user, *words):
    done = lab.carve(user, "session", "request", *words)
    assert done.returncode == 0, done.stderr
    [made] = [s for s in lab.carve_json(ROOT, "session", "list") if s["uid"] == user]
    return made


def unused(lab, id):
    wait_until(lambda: not lab.carve_json(ROOT, "session", "show", id)["command_pids"])


def refused(done, *said):
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert all(word in done.stderr for word in said), done.stderr


@pytest.mark.attack("5", "a container of a session that gave its MIG instance up, and another user has the instance now")
@pytest.mark.parametrize("door", rest_long(DOORS, 3))
@pytest.mark.parametrize("restart", rest_long([False, True], 1), ids=lambda r: "restart" if r else "")
def test_a_container_does_not_keep_an_instance_that_its_session_gave_up(mig_lab, door, restart):
    lab = mig_lab
    its = session(lab, ALICE, "--mig-profile", "1g.10gb")
    copy = Copy(lab, its["id"], lab.dir / "cdi", door)
    if door != "older carve":
        done = copy.start(lab)
        assert (done.returncode, done.stderr) == (0, ""), done
        unused(lab, its["id"])
    done = lab.carve(ALICE, "session", "resize", its["id"], "--vram", "20")
    assert done.returncode == 0, done.stderr
    others = session(lab, MALLORY, "--mig-profile", "1g.10gb")
    assert others["gpus"][0]["instance"] == its["gpus"][0]["instance"]
    if restart:
        lab.restart()
    refused(copy.start(lab), its["id"], "MIG instance" if door == "older carve" else others["gpus"][0]["instance"])
    # Neither of the two is in use by it.
    for id in (its["id"], others["id"]):
        unused(lab, id)
    # The instance is free, and Alice's again: the copy is right again.
    assert lab.carve(MALLORY, "session", "release", others["id"]).returncode == 0
    done = lab.carve(ALICE, "session", "resize", its["id"], "--vram", "9")
    assert done.returncode == 0, done.stderr
    now = lab.carve_json(ROOT, "session", "show", its["id"])
    assert (copy.start(lab).returncode == 0) == (door != "older carve" and now["stamp"] == its["stamp"])


@pytest.mark.attack("5", "a container of a session that has ended, and another user has the instance now")
@pytest.mark.parametrize("door", rest_long(DOORS, 3))
def test_a_container_does_not_keep_an_instance_of_a_session_that_has_ended(mig_lab, door):
    lab = mig_lab
    its = session(lab, ALICE, "--mig-profile", "1g.10gb")
    copy = Copy(lab, its["id"], lab.dir / "cdi", door)
    assert lab.carve(ALICE, "session", "release", its["id"]).returncode == 0
    others = session(lab, MALLORY, "--mig-profile", "1g.10gb")
    assert others["gpus"][0]["instance"] == its["gpus"][0]["instance"]
    refused(copy.start(lab), its["id"])
    unused(lab, others["id"])


@pytest.mark.attack("3", "another user's session under the name of the one that a container was made for")
@pytest.mark.parametrize("door", ["spec", "configuration"])
def test_a_container_is_in_no_session_of_another_user(lab, door):
    """As after an ID that was forgotten, and given again: on the same GPU, and of the same size."""
    its = session(lab, ALICE, "--vram", "2")
    others = session(lab, MALLORY, "--vram", "2")
    copy = Copy(lab, others["id"], lab.dir / "cdi", door)
    assert its["stamp"].partition(":")[2] == others["stamp"].partition(":")[2]
    assert copy.start(lab).returncode == 0
    unused(lab, others["id"])
    copy.words[copy.words.index("--stamp") + 1] = its["stamp"]
    refused(copy.start(lab), others["id"], its["stamp"], others["stamp"])
    unused(lab, others["id"])


@pytest.mark.attack("3", "a stamp that a user makes up, to have a process in a session of another's, or a long one for the daemon's room")
def test_a_stamp_gives_nobody_a_right(mig_lab):
    lab = mig_lab
    its = session(lab, ALICE, "--mig-profile", "1g.10gb")
    attack = lab.python(MALLORY, """
import socket

def post(body):
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB["http"])
    text = json.dumps(body)
    s.sendall(f"POST /v1/commands HTTP/1.0\\r\\nContent-Length: {len(text)}\\r\\n\\r\\n{text}".encode())
    return s.makefile().readline().split()[1]
id, stamp = sys.argv[1:]
for value in (stamp, "", 1, None, "x" * 5000, "a b", "\\n"):
    print(post({"session": id, "pid": os.getpid(), "stamp": value}))
""", its["id"], its["stamp"])
    assert attack.returncode == 0, attack
    codes = attack.stdout.split()
    assert codes[0] in ("403", "404") and set(codes[1:]) <= {"400", "403", "404"} and len(codes) == 7, attack
    assert lab.serves_still()
    unused(lab, its["id"])


LEFT = CUDA + r"""
r = cuda.cuInit(0)
context = c.c_void_p()
print(r or cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0), flush=True)
"""


@pytest.mark.attack("5", "a program that a command left behind, with the environment of an instance that another user has now")
@pytest.mark.parametrize("isolation", ["preload", "mount"])
def test_a_program_that_a_command_left_behind_does_not_keep_its_instance(mig_lab, isolation):
    lab = mig_lab
    its = session(lab, ALICE, "--mig-profile", "1g.10gb")
    home = lab.home(ALICE)
    (home / "left.py").write_text(LEFT)
    script = f"(exec > {home}/out 2> {home}/err < /dev/null; until [ -e {home}/go ]; do sleep 0.05; done; /usr/bin/python3 {home}/left.py; mv {home}/out {home}/end) &"
    done = lab.carve(ALICE, "run", "--session", its["id"], "--isolation", isolation, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    unused(lab, its["id"])
    assert lab.carve(ALICE, "session", "resize", its["id"], "--vram", "20").returncode == 0
    others = session(lab, MALLORY, "--mig-profile", "1g.10gb")
    assert others["gpus"][0]["instance"] == its["gpus"][0]["instance"]
    (home / "go").touch()
    wait_until(lambda: (home / "end").exists())
    assert (home / "end").read_text().strip() not in ("", "0")
    said = (home / "err").read_text()
    assert said.count("another GPU or MIG instance now") == 1 and len(said.splitlines()) == 1, said
    for id in (its["id"], others["id"]):
        unused(lab, id)
