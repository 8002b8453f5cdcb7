"""Each file, socket and directory that the daemon makes, removed while it runs: it is made anew, and said."""
import json
import os
import pathlib
import shutil
import signal
import tempfile

import pytest

from conftest import BUILD, ON_GPU, Host, rest_long, wait_until

pytestmark = pytest.mark.skipif(ON_GPU, reason="needs a simulated host")

USER = str(os.getuid())
# The files to remove, by directory, and their names in the log. A state directory of its own, so that all there is exists.
RUNTIME = {"lock": "lock", "attach.sock": "attach.sock", "carved.sock": "carved.sock", "carved.log": "carved.log",
           "carve.db": "carve.db", "carved.json.last": "carved.json.last", "start": "start",
           "containers": "containers", "containers/attach.sock": "containers"}
# The supervisor's socket for notices, which its worker is connected to: nobody misses the file.
OF_SUPERVISOR = {"notify.sock"}
STATE = {"lock": "state_dir/lock", "carved.json.last": "carved.json.last",
         **{name: name for name in ("carve.db", "carve.db-wal", "carve.db-shm", "carve.db-ends",
                                    "queue.db", "queue.db-wal", "queue.db-shm")},
         "jobs": "jobs", f"jobs/{USER}": "jobs"}
# Of a file that is still there by its first name.
SECOND_NAMES = {"containers/attach.sock"}
# Of a job that runs: its shim makes the record anew when it ends; its program has the output open.
OF_JOBS = {f"jobs/{USER}/1.1.record", f"jobs/{USER}/1.1.log"}


class Served:
    """A daemon in the background with all that it can have: sessions that are kept, a job that runs, a configuration."""

    def __init__(self):
        self.host = Host("h100-80gb")
        self.runtime = pathlib.Path(self.host.env["CARVE_RUNTIME_DIR"])
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="carve-test-"))
        self.state = self.dir / "state"
        config = self.dir / "carved.json"
        config.write_text('{"history_sessions": 100}')
        done = self.host.run([BUILD / "carved", "--runtime-dir", self.runtime, "--state-dir", self.state, "--config", config])
        assert done.returncode == 0, done.stderr
        self.session = self.host.carve_json("session", "request", "--vram", "2", "--name", "kept")["id"]
        self.host.carve_json("agent", "--detached", "--gpus", "all", "--queue", "half")
        done = self.host.carve("enqueue", "--queue", "half", "--vram", "4", "--", "sleep", "infinity")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: OF_JOBS <= entries(self.state))

    def log(self):
        return (self.runtime / "carved.log").read_text() if (self.runtime / "carved.log").exists() else ""

    def sessions(self):
        return [s["id"] for s in self.host.carve_json("session", "list")]

    def finding(self):
        found, = [c for c in json.loads(self.host.carve("check", "--json").stdout)["conditions"] if c["name"] == "files"]
        return found

    def close(self):
        self.host.carve("job", "cancel", "1")
        self.host.close()
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture(scope="module")
def served():
    served = Served()
    yield served
    served.close()


def inode(path):
    try:
        return path.stat(follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def entries(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_the_lists_have_all_that_the_daemon_makes(served):
    assert entries(served.runtime) == set(RUNTIME) | OF_SUPERVISOR
    assert entries(served.state) - OF_JOBS == set(STATE)


@pytest.mark.parametrize("place, name", rest_long([("runtime", name) for name in RUNTIME], 5) + rest_long([("state", name) for name in STATE], 5))
def test_removed_files_are_made_anew_and_logged(served, place, name):
    path = getattr(served, place) / name
    told = f"runtime.vanished file={(RUNTIME if place == 'runtime' else STATE)[name]} made=anew"
    before, count = inode(path), served.log().count(told)
    assert before
    # The number of its inode is not to be given to the next file.
    held = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    if path.is_dir() and not path.is_symlink():
        # In one step: the daemon may make what is in it anew at any moment.
        shutil.rmtree(path.rename(served.dir / "removed"))
    else:
        path.unlink()
    wait_until(lambda: inode(path) if name in SECOND_NAMES else inode(path) not in (None, before))
    wait_until(lambda: served.log().count(told) > (0 if name == "carved.log" else count))
    os.close(held)
    assert served.session in served.sessions()
    found = served.finding()
    assert name.startswith("jobs") or found["state"] == "note" and told.split("=")[1].split()[0] in found["message"], found
    # The file in its place is the daemon's own, and at work.
    if name == "containers":
        wait_until(lambda: (path / "attach.sock").samefile(served.runtime / "attach.sock"))


def test_the_log_of_a_daemon_that_a_command_started_is_made_anew(host):
    host.carve_json("gpu", "list")
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log")
    log.unlink()
    wait_until(log.exists)
    wait_until(lambda: "file=carved.log made=anew" in log.read_text())
    granted = host.carve_json("session", "request", "--vram", "1")["id"]
    assert f"session.granted id={granted}" in log.read_text()
