"""Attacks on containers of root's by a user of the host: on those who look after them (docs/user/containers.md)."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import time

import pytest

from cgroups import MOUNT, cgroup_of
from conftest import PATIENCE, wait_until

from .lab import BUILD, CARVE, MALLORY, ROOT
from .silent import SilentFileSystem
from .test_namespaces import INSIDE, JOIN, namespaces  # noqa: F401

CID = "c0ffee" + "0123456789" * 5 + "abcdef01"

# docker's client, as far as carve asks it. Its container is a process of the test's.
DOCKER = """#!/bin/sh
case $1 in
run) for word; do case $word in --cidfile=*) printf CID > "${word#*=}.new" && mv "${word#*=}.new" "${word#*=}"
        echo "${word#*=}" > DIR/cidfile;; esac; done
    exec sleep 600;;
container) cat DIR/pid;;
wait) exec sleep 600;;
ps) echo "Up 2 seconds";;
esac
"""


class Docker:
    """A host's docker, which a test plays, with cgroups of its own: root's, and one that was given to MALLORY as a login's is."""

    def __init__(self, lab):
        self.lab = lab
        self.place = lab.dir / "docker"
        self.place.mkdir()
        program = self.place / "docker"
        program.write_text(DOCKER.replace("CID", CID).replace("DIR", str(self.place)))
        program.chmod(0o755)
        self.top = cgroup_of("self") / f"carve-test-{os.getpid()}"
        self.roots, self.mallorys = self.top / f"docker-{CID}.scope", self.top / "user" / CID
        for path in (self.roots, self.mallorys):
            path.mkdir(parents=True)
        for path in (self.mallorys.parent, self.mallorys):
            os.chown(path, MALLORY, MALLORY)

    def run(self):
        return self.lab.popen(ROOT, CARVE, "docker", "run", "--vram", "2", "-d", "image", "sleep", "600",
                              env={"PATH": f"{self.place}:{os.environ['PATH']}"})

    def begin(self):
        """Its container's first process."""
        process = self.lab.popen(ROOT, "unshare", "--mount", "sleep", "600")
        (self.place / "pid").write_text(str(process.pid))
        (self.roots / "cgroup.procs").write_text(str(process.pid))
        return process

    def files(self):
        """The directory with what carve made for the container."""
        return pathlib.Path(wait_until(lambda: (p := self.place / "cidfile").exists() and p.read_text().strip())).parent

    def close(self):
        self.lab.end_left_behind()
        # Its watcher has just been killed.
        shutil.rmtree(self.files())
        for path in (self.roots, self.mallorys, self.mallorys.parent, self.top):
            wait_until(lambda: "populated 0" in (path / "cgroup.events").read_text())  # noqa: B023
            path.rmdir()


@pytest.fixture
def docker(lab):
    if not MOUNT or not os.access(cgroup_of("self"), os.W_OK):
        pytest.skip("no cgroup can be made here")
    made = Docker(lab)
    yield made
    made.close()


@pytest.mark.attack("3", "a cgroup of a user's own that is called as a container of root's is")
def test_a_users_cgroup_makes_nobody_a_container_of_roots(docker, namespaces):
    lab = docker.lab
    attack = lab.python(MALLORY, JOIN + "print('begun', flush=True)\nprint(join(input()))", method=lambda uid, *argv, **kw:
                        lab.popen(uid, *INSIDE["user and mount"], *argv, **kw))
    assert attack.stdout.readline() == "begun\n"
    (docker.mallorys / "cgroup.procs").write_text(str(attack.pid))
    docker.run()
    session = wait_until(lambda: lab.carve_json(ROOT, "session", "list"))[0]["id"]
    container = docker.begin()
    # Its watcher has looked through all processes by then. A session that still waits has no commands.
    commands = wait_until(lambda: (lambda pids: pids if {container.pid, attack.pid} & set(pids) else None)(
        lab.carve_json(ROOT, "session", "show", session).get("command_pids", [])))
    assert attack.pid not in commands
    assert "another user's" in attack.communicate(session + "\n")[0]


@pytest.mark.attack("9", "a lock of a user's on the files of root's container, which are removed once nobody has them locked")
def test_nobody_else_locks_the_files_of_roots_container(docker):
    """A lock takes a descriptor that is open. Users of the container reach the files all the same."""
    lab = docker.lab
    docker.run()
    files = docker.files()
    attack = lab.python(MALLORY, """
import fcntl
print(open(sys.argv[1] + "/cid").read())
for way in (os.O_RDONLY, os.O_RDONLY | os.O_DIRECTORY, os.O_PATH):
    try:
        fcntl.flock(os.open(sys.argv[1], way), fcntl.LOCK_SH | fcntl.LOCK_NB)
        print("locked")
    except OSError as error:
        print(error.strerror)
""", files)
    assert attack.stdout.splitlines() == [CID, "Permission denied", "Permission denied", "Bad file descriptor"], attack


# ---- specs of CDI in a directory of another user's -------------------------------------------

@pytest.mark.attack("1", "root writes and removes specs of CDI in a directory whose owner put links there")
def test_root_follows_no_links_in_a_users_directory_of_specs(lab):
    cdi, victim = lab.home(MALLORY) / "cdi", lab.dir / "victim"
    session = lab.carve_json(ROOT, "session", "request", "--vram", "2")["id"]
    (victim / session).mkdir(parents=True)
    (victim / session / "file").write_text("root's")
    done = lab.python(MALLORY, """
cdi, victim, session = sys.argv[1:]
os.mkdir(cdi)
os.symlink(victim, cdi + "/carve")
open(f"{cdi}/carve.dev-slice_{session}.json", "w").write("{}")
""", cdi, victim, session)
    assert done.returncode == 0, done.stderr
    for words in (("generate", session), ("remove", session), ("remove", "--all")):
        done = lab.carve(ROOT, "cdi", *words, "--cdi-dir", cdi)
        assert done.returncode != 0 and "another user's directory" in done.stderr, (words, done)
    assert [p.name for p in victim.rglob("*")] == [session, "file"]
    # One that everybody writes to is as bad; one's own is not.
    shared = lab.dir / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "everybody writes to" in lab.carve(ROOT, "cdi", "generate", session, "--cdi-dir", shared).stderr
    shared.chmod(0o755)
    assert lab.carve(ROOT, "cdi", "generate", session, "--cdi-dir", shared).returncode == 0
    assert lab.carve(ROOT, "cdi", "remove", "--all", "--cdi-dir", shared).returncode == 0


# ---- file systems that do not answer ----------------------------------------------------------

LIMIT_S = 20  # of carve-hook


def mounted(place, takes):
    place.mkdir(parents=True, exist_ok=True)
    try:
        return SilentFileSystem(place, takes)
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")


class Hook:
    """carve-hook for a container of root's that has made its mounts and not started. Its output is pipes, as a runtime has it."""

    def __init__(self, lab, bundle, config=None):
        self.lab = lab
        self.container = lab.popen(ROOT, "unshare", "--mount", "sh", "-c", "echo; exec sleep 600")
        self.container.stdout.readline()
        if config:
            (bundle / "config.json").write_text(json.dumps(config))
        state = lab.dir / "state"
        state.write_text(json.dumps({"id": "x", "pid": self.container.pid, "bundle": str(bundle)}))
        self.begun = time.monotonic()
        with open(state) as text:
            self.process = lab.popen(ROOT, BUILD / "carve-hook", stdin=text)

    def helpers(self):
        """Its processes that have not ended, whoever is their parent now."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                status = (path / "status").read_text()
                if status.startswith("Name:\tcarve-hook\n") and "State:\tZ" not in status and int(path.name) != self.process.pid and \
                        f"={self.lab.runtime}/".encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    def output(self, patience):
        """The output as a runtime reads it: until nobody holds the pipes any more."""
        return self.process.communicate(timeout=patience)


@pytest.fixture
def place(lab):
    """A directory of MALLORY's."""
    made = lab.home(MALLORY) / "fs"
    made.mkdir()
    return made


@pytest.mark.attack("8", "a file system of a user's own that takes a request of the hook of containers and never answers it")
@pytest.mark.parametrize("victim", ["hook", "helper"])
def test_nobody_waits_for_a_hook_that_a_file_system_keeps(lab, place, victim):
    """The kernel ends no process that such a file system has a request of: not the hook is that process, and nothing of its output is there."""
    silent = mounted(place, takes=True)
    try:
        hook = Hook(lab, place)
        assert silent.taken.wait(PATIENCE)
        helper, = wait_until(hook.helpers)
        os.kill(hook.process.pid if victim == "hook" else helper, signal.SIGKILL)
        if victim == "helper":
            # The hook's limit is another test's.
            assert hook.process.poll() is None
            os.kill(hook.process.pid, signal.SIGTERM)
        hook.output(PATIENCE)
        assert hook.helpers() == [helper]
        assert "SigPnd:\t0000000000000000" not in pathlib.Path(f"/proc/{helper}/status").read_text()
        open_files = [os.readlink(path) for path in pathlib.Path(f"/proc/{helper}/fd").iterdir()]
        assert all(path == "/dev/null" or path.startswith("pipe:") for path in open_files) and len(open_files) == 4, open_files
    finally:
        silent.close()
    wait_until(lambda: not hook.helpers())


@pytest.mark.attack("8", "a file system of a user's own that answers nothing, where the hook of containers looks")
@pytest.mark.parametrize("takes", [False, True], ids=["silent", "takes"])
@pytest.mark.parametrize("where", ["bundle", "root/lib64", "root/run"])
@pytest.mark.long
def test_a_hook_ends_in_time_though_a_file_system_is_silent(lab, place, where, takes):
    """As its bundle, where the image's C library is looked for, and where the slice is mounted. Its session ends with its container."""
    bundle = lab.dir / "bundle"
    silent = mounted(place if where == "bundle" else bundle / where, takes)
    try:
        (bundle / "root").mkdir(parents=True, exist_ok=True)
        hook = Hook(lab, place) if where == "bundle" else \
            Hook(lab, bundle, {"root": {"path": "root"}, "annotations": {"carve.vram": "2GiB"}})
        _, said = hook.output(LIMIT_S + PATIENCE)
        took = time.monotonic() - hook.begun
        assert hook.process.returncode == 1 and said == f"carve-hook: gave up after {LIMIT_S} s\n", said
        assert LIMIT_S - 0.1 <= took < LIMIT_S + 1, took
        assert not takes or hook.helpers()
        sessions = lab.carve_json(ROOT, "session", "list")
        assert len(sessions) == (where == "root/run"), sessions
        hook.container.kill()
        hook.container.wait()
        wait_until(lambda: lab.carve_json(ROOT, "session", "list") == [])
    finally:
        silent.close()
    wait_until(lambda: not hook.helpers())


def test_a_hook_whose_helper_is_killed_says_so(lab):
    """At its first question to the daemon, which is stopped."""
    bundle = lab.dir / "bundle"
    (bundle / "root").mkdir(parents=True)
    os.kill(lab.worker(), signal.SIGSTOP)
    try:
        hook = Hook(lab, bundle, {"root": {"path": "root"}, "annotations": {"carve.vram": "2GiB"}})
        helper, = wait_until(hook.helpers)
        os.kill(helper, signal.SIGKILL)
        _, said = hook.output(PATIENCE)
    finally:
        os.kill(lab.worker(), signal.SIGCONT)
    assert hook.process.returncode == 1 and said == "carve-hook: the process that does its work was ended\n", said
