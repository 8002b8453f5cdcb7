"""Claims on GPUs: no user keeps the system daemon from one, and a user's own daemon gives way to it."""
import json
import os
import pathlib
import re

import pytest

from conftest import listens, rest_long, wait_until

from .lab import ALICE, CARVE, CARVED, GIB, MALLORY, PROGRAMS, ROOT

POINT = "10"
CLAIMS = pathlib.Path("/run/carve-claims")
REACH = PROGRAMS / "reach"

# Takes the names of GPUs in the abstract namespace, as a daemon does, and never answers.
SQUAT = """
import socket
squatted = []
for name in sys.argv[1:]:
    squatted.append(socket.socket(socket.AF_UNIX))
    squatted[-1].bind("\\0" + name)
    squatted[-1].listen(0)
print("up", flush=True)
sys.stdin.read()
"""


def uuid_of(lab):
    return json.loads(lab.carve(ROOT, "gpu", "list", "--json").stdout)[0]["uuid"]


def stop(lab):
    lab.daemon.terminate()
    assert lab.daemon.wait(60) == 0


class Private:
    """A user's own daemon on the lab's host."""

    def __init__(self, lab, uid=MALLORY):
        self.lab, self.uid = lab, uid
        self.runtime = lab.home(uid) / "run"
        read, write = os.pipe()
        self.log = lab.dir / "private-log"
        with open(self.log, "a") as log:
            self.process = lab.popen(uid, CARVED, "--runtime-dir", self.runtime, "--foreground", "--ready-fd", str(write),
                                     env={"CARVE_HOST": ""}, stderr=log, pass_fds=[write])
        os.close(write)
        assert os.read(read, 1) == b"R", self.log.read_text()
        os.close(read)
        self.env = {"CARVE_HOST": "", "CARVE_RUNTIME_DIR": str(self.runtime)}

    def carve(self, *argv, **kw):
        return self.lab.carve(self.uid, *argv, env=self.env, **kw)

    def gpu(self):
        return json.loads(self.carve("gpu", "list", "--json").stdout)[0]

    def sessions(self, *options):
        return json.loads(self.carve("session", "list", "--json", *options).stdout)


@pytest.mark.attack(POINT, "the names of GPUs are taken in the abstract namespace")
@pytest.mark.parametrize("how", rest_long(["answers", "silent", "stopped"]))
def test_a_squatted_name_keeps_the_system_daemon_from_nothing(lab, how):
    uuid = uuid_of(lab)
    stop(lab)
    source = SQUAT + ("while True: squatted[0].accept()\n" if how == "answers" else "")
    squatter = lab.python(MALLORY, source.replace("sys.stdin.read()\n", "" if how == "answers" else "sys.stdin.read()\n"),
                          f"carve-gpu-{uuid}", method=lab.popen)
    assert squatter.stdout.readline() == "up\n", squatter.communicate()[1]
    if how == "stopped":
        squatter.send_signal(19)
    lab.start()
    gpu, = lab.carve_json(ALICE, "gpu", "list")
    assert gpu["held_by"] is None and gpu["available_bytes"] > 70 * GIB
    assert lab.carve_json(ALICE, "session", "request", "--vram", "2")["vram_bytes"] == 2 * GIB
    squatter.send_signal(18)


@pytest.mark.attack(POINT, "a user files a claim, or keeps the daemon from filing one, in the claims' directory")
def test_nobody_else_writes_claims(lab):
    uuid = uuid_of(lab)
    assert any((directory / uuid).exists() for directory in CLAIMS.iterdir())
    done = lab.python(MALLORY, """
import fcntl
top, uuid = sys.argv[1:]
for directory, _, files in os.walk(top):
    for name in ["GPU-x", "4294967295", *files]:
        for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR):
            try:
                os.open(os.path.join(directory, name), flags)
                print("wrote", directory, name)
            except OSError:
                pass
    for call in (os.mkdir, os.unlink, os.rmdir):
        try:
            call(os.path.join(directory, uuid if call is os.unlink else "60103"))
            print("changed", directory)
        except OSError:
            pass
    for name in [".", *files]:
        try:  # a lock that others wait for
            fcntl.flock(os.open(os.path.join(directory, name), os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
print("locked", flush=True)
sys.stdin.read()
""", str(CLAIMS), uuid, method=lab.popen)
    assert done.stdout.readline() == "locked\n"
    lab.restart()
    assert lab.carve_json(ALICE, "session", "request", "--vram", "2")["vram_bytes"] == 2 * GIB
    done.communicate("", timeout=60)


@pytest.mark.attack(POINT, "a user's own daemon keeps the system daemon from a GPU")
def test_a_users_daemon_gives_way(lab):
    """It grants nothing more and says why; what runs in its sessions goes on, and the rest of them end."""
    stop(lab)
    private = Private(lab)
    granted = json.loads(private.carve("session", "request", "--vram", "10", "--json").stdout)
    running = lab.popen(MALLORY, CARVE, "run", "--ephemeral", "--vram", "4", REACH, "path", "libcuda.so.1", str(GIB),
                        env=private.env)
    assert [running.stdout.readline() for _ in range(2)] == [f"{4 * GIB}\n", "holds\n"], running.communicate()[1]
    lab.start()
    wait_until(lambda: private.gpu()["held_by"])
    holder = private.gpu()["held_by"]
    assert (holder["pid"], holder["system"]) == (lab.worker(), True)
    assert private.gpu()["available_bytes"] == 0
    done = private.carve("run", "--ephemeral", "--vram", "1", "true")
    assert done.returncode == 125 and f"the system daemon has it (process {lab.worker()} of " in done.stderr
    assert "use the system daemon" in done.stderr
    assert re.search(rf"GPU 0 is the system daemon's \(process {lab.worker()} of \w+\): leave out",
                     private.carve("gpu", "list").stdout)
    assert "gpu.left" in private.log.read_text()
    # The session without processes has ended with its reason.
    wait_until(lambda: [s["vram_bytes"] for s in private.sessions()] == [4 * GIB])
    ended, = [s for s in private.sessions("--all") if s["id"] == granted["id"]]
    assert ended["reason"] == "its GPU is the system daemon's"
    # The system daemon serves, beside what is held.
    gpu, = lab.carve_json(ALICE, "gpu", "list")
    assert gpu["held_by"] is None
    assert 70 * GIB < gpu["available_bytes"] < gpu["memory_bytes"] - GIB
    assert lab.carve_json(ALICE, "session", "request", "--vram", "70")["vram_bytes"] == 70 * GIB
    assert running.poll() is None
    done = private.carve("session", "resize", private.sessions()[0]["id"], "8")
    assert done.returncode == 3 and "cannot grow: GPU 0: the system daemon has it" in done.stderr
    running.communicate("", timeout=60)
    assert running.returncode == 0
    wait_until(lambda: private.sessions() == [])


@pytest.mark.attack(POINT, "a user's own daemon is asked before it has noticed the system daemon")
def test_a_users_daemon_gives_way_before_it_grants(lab):
    """A request that comes right after the claim is refused: it does not go by what was seen a second ago."""
    for _ in range(3):
        stop(lab)
        private = Private(lab)
        assert private.carve("run", "--ephemeral", "--vram", "1", "true").returncode == 0
        lab.start()
        done = private.carve("run", "--ephemeral", "--vram", "1", "true")
        assert done.returncode == 125 and "the system daemon has it" in done.stderr
        private.process.terminate()
        private.process.wait(60)


def test_a_gpu_comes_back_to_a_users_daemon(lab):
    """When the system daemon is gone: it gave the GPU up, or was killed."""
    stop(lab)
    private = Private(lab)
    for end in (stop, type(lab).kill_daemon):
        lab.start()
        wait_until(lambda: private.gpu()["held_by"])
        end(lab)
        wait_until(lambda: private.gpu()["held_by"] is None)
        assert private.carve("run", "--ephemeral", "--vram", "1", "true").returncode == 0
    lab.start()


@pytest.mark.attack(POINT, "the claim of a daemon that was killed is held by whoever has its PID now")
def test_a_claim_is_of_the_process_that_filed_it(lab):
    """A file that names a living process which did not file it, and files that name none."""
    uuid = uuid_of(lab)
    stop(lab)
    other = lab.popen(MALLORY, "sleep", "600")
    directory = CLAIMS / "0"
    directory.mkdir(mode=0o755, exist_ok=True)
    for text in (f"{other.pid} 1\n", f"{other.pid}\n", "x\n", "", "-1 5\n", f"{1 << 40} 5\n", "0 0\n", "9" * 400):
        (directory / uuid).write_text(text)
        lab.start()
        assert lab.carve_json(ALICE, "gpu", "list")[0]["held_by"] is None
        assert lab.carve(ALICE, "run", "--ephemeral", "--vram", "1", "true").returncode == 0
        stop(lab)
    (directory / uuid).unlink(missing_ok=True)
    lab.start()


def test_a_claim_that_was_cleaned_away_is_filed_again(lab):
    uuid = uuid_of(lab)
    path, = [directory / uuid for directory in CLAIMS.iterdir() if (directory / uuid).exists()]
    path.unlink()
    wait_until(path.exists)
    assert int(path.read_text().split()[0]) == lab.worker()


def test_two_system_daemons_do_not_share_a_gpu(lab):
    """The second says whose it is, and has it when the first is gone."""
    second = lab.popen(ROOT, CARVED, "--system", "--runtime-dir", lab.dir / "second", "--foreground")
    path = lab.dir / "second" / "carved.sock"
    wait_until(path.exists)
    env = {"CARVE_HOST": str(path)}
    gpu, = lab.carve_json(ALICE, "gpu", "list", env=env)
    assert (gpu["held_by"]["pid"], gpu["held_by"]["system"]) == (lab.worker(), False)
    done = lab.carve(ALICE, "run", "--vram", "1", "true", env=env)
    assert done.returncode == 125 and f"held by another daemon (process {lab.worker()} of " in done.stderr
    lab.kill_daemon()
    wait_until(lambda: lab.carve_json(ALICE, "gpu", "list", env=env)[0]["held_by"] is None)
    second.terminate()
    second.wait(60)
    lab.start()


def test_claims_stay_over_an_upgrade(lab):
    stop(lab)
    private = Private(lab)
    lab.start()
    wait_until(lambda: private.gpu()["held_by"])
    done = lab.run(ROOT, CARVED, "--system", "--runtime-dir", lab.runtime, "--takeover")
    assert done.returncode == 0, done.stderr
    uuid = uuid_of(lab)
    assert [int((d / uuid).read_text().split()[0]) for d in CLAIMS.iterdir() if (d / uuid).exists()] == [lab.worker()]
    assert private.gpu()["held_by"]["pid"] == lab.worker()
    assert lab.carve(ALICE, "run", "--vram", "1", "true").returncode == 0


@pytest.mark.attack(POINT, "a user's daemon is kept from a GPU by a claim in a directory that others may write to")
def test_claims_that_others_may_have_written_do_not_count(lab):
    """In a mount namespace where /run/carve-claims is open to all: the user's daemon passes it over."""
    uuid = uuid_of(lab)
    stop(lab)
    fake = lab.dir / "claims"
    (fake / "0").mkdir(parents=True)
    other = lab.popen(MALLORY, "sleep", "600")
    ticks = pathlib.Path(f"/proc/{other.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    (fake / "0" / uuid).write_text(f"{other.pid} {ticks}\n")
    for mode, system in ((0o755, True), (0o777, False)):
        fake.chmod(mode)
        script = f'mount --bind {fake} {CLAIMS} && exec "$@"'
        runtime = lab.dir / f"private-{mode}"
        daemon = lab.popen(ROOT, "unshare", "-m", "sh", "-c", script, "sh", CARVED, "--runtime-dir", runtime,
                           "--foreground", env={"CARVE_HOST": ""})
        wait_until(lambda: listens(runtime / "carved.sock"))
        gpu, = lab.carve_json(ROOT, "gpu", "list", env={"CARVE_HOST": str(runtime / "carved.sock")})
        assert bool(gpu["held_by"]) == system
        daemon.terminate()
        daemon.wait(60)
    lab.start()
