"""Attacks on root who removes carve: by what a user's process says of itself, and by what users and a broken worker put into a daemon's
directories (docs/dev/daemon.md)."""
import hashlib
import os
import shutil

import pytest

from conftest import ROOT as TREE, clean_env, rest_long, run, wait_until

from .lab import ALICE, CARVED, MALLORY, ROOT, peer_of
from .silent import SilentFileSystem
from .test_jobs import Jobs

POINT = "1"


# ---- scripts/uninstall -----------------------------------------------------------------------

NAMES = ("carve.db", "queue.db-wal", "lock", "carved.log", "jobs/1/report", "containers/attach.sock")


def victim_make(place):
    """A directory of root's with files that are called as carve's are."""
    for name in NAMES:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("root's")
    return place


def untouched(place):
    assert sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()) == sorted(NAMES)


@pytest.fixture
def prefix(lab):
    """An installation with the daemon's program, as scripts/uninstall finds it by its manifest."""
    made = lab.dir / "prefix"
    for name in ("bin", "lib/carve"):
        (made / name).mkdir(parents=True)
    shutil.copy(CARVED, made / "bin/carved")
    sum = hashlib.sha256((made / "bin/carved").read_bytes()).hexdigest()
    (made / "lib/carve/manifest").write_text(f"file {sum} {made}/bin/carved\n")
    return made


def uninstall(prefix, *options, before=()):
    return run([*before, TREE / "scripts/uninstall", "--prefix", prefix, *options], cwd="/", env=clean_env({"HOME": "/root"}))


HOSTILE = "{victim}\x1b]0;owned\x07\r\nuninstall: all is well"


def speaker(lab, prefix, how, victim, uid=MALLORY, before=()):
    """A daemon of a user's that runs the installed program in a directory of its own, and says what the user likes."""
    own = (lab.home(uid) if uid else lab.dir) / "own"
    words, env = {
        "arguments": (["--runtime-dir", victim], {}),
        "several words": (["--runtime-dir", f"{lab.dir}/nothing {victim}"], {}),
        "lines": (["--runtime-dir", HOSTILE.format(victim=victim)], {}),
        "environment": ([], {"CARVE_RUNTIME_DIR": str(victim)}),
        "simulated": (["--runtime-dir", victim], {"SIMGPU_HOST": "x"}),
    }[how]
    process = lab.popen(uid, *before, prefix / "bin/carved", *words, f"--runtime-dir={own}", "--foreground", env={"CARVE_HOST": "", **env})
    wait_until(lambda: (own / "carved.sock").exists())
    return process


@pytest.mark.parametrize("how", rest_long(["arguments", "several words", "environment", "lines"], 3))
@pytest.mark.attack(POINT, "a user's process that runs the installed program names directories to root who purges carve")
def test_a_purge_removes_nothing_that_a_users_process_names(lab, prefix, how):
    victim = victim_make(lab.dir / "victim")
    speaker(lab, prefix, how, victim)
    done = uninstall(prefix, "--purge", "--force")
    assert done.returncode == 0 and not (prefix / "bin/carved").exists(), done
    untouched(victim)
    assert not any(ord(c) < 32 and c != "\n" for c in done.stdout + done.stderr) and "all is well" not in done.stdout + done.stderr, done


@pytest.mark.parametrize("how", rest_long(["lines", "environment", "simulated"], 2))
@pytest.mark.attack(POINT, "words of a user's process in what root's uninstall prints")
def test_an_uninstall_names_a_users_process_by_its_number(lab, prefix, how):
    process = speaker(lab, prefix, how, lab.dir / "victim")
    done = uninstall(prefix)
    assert done.returncode == 1 and (prefix / "bin/carved").exists(), done
    assert done.stderr == (f"uninstall: carved (process {process.pid}) is user {MALLORY}'s, who alone can say which sessions it has; have the "
                           "user end it, or use --force\n") and done.stdout == "", done


@pytest.mark.attack(POINT, "root of a container, which has root's number, names directories to root of the host who purges carve")
def test_a_purge_removes_nothing_that_root_of_a_container_names(lab, prefix):
    """Its program has the installed one's path, in files of its own."""
    victim = victim_make(lab.dir / "victim")
    own = lab.dir / "container"
    shutil.copytree(prefix, own)
    script = 'mount --bind "$1" "$2"; shift 2; exec "$@"'
    speaker(lab, prefix, "arguments", victim, uid=ROOT, before=["unshare", "--mount", "sh", "-ec", script, "sh", own, prefix])
    assert uninstall(prefix, "--purge", "--force").returncode == 0
    untouched(victim)


def test_a_purge_removes_the_state_of_ones_own_daemons(lab, prefix):
    """So that the others are left for whose they are. Another file beside the state stays, and is told."""
    place = lab.dir / "a daemon's own"
    daemon = lab.popen(ROOT, prefix / "bin/carved", "--runtime-dir", place, "--foreground", env={"CARVE_HOST": ""})
    wait_until(lambda: (place / "carved.sock").exists())
    (place / "notes").write_text("an administrator's")
    done = uninstall(prefix, "--purge", "--force")
    assert done.returncode == 0, done
    daemon.wait()
    assert [p.name for p in place.iterdir()] == ["notes"] and f"kept: {place}" in done.stdout, done


# ---- carved --purge --------------------------------------------------------------------------

class Ended:
    """A system daemon that has served jobs of users, and has ended."""

    def __init__(self, lab):
        self.lab, self.runtime, self.state, self.jobs = lab, lab.runtime, lab.runtime / "state", lab.runtime / "state-jobs"
        lab.carve_json(ROOT, "agent", "--detached", "--gpus", "all", "--queue", "half=0.5")
        jobs = Jobs.__new__(Jobs)
        jobs.lab = lab
        for uid in (ALICE, MALLORY):
            jobs.ended(uid, jobs.enqueue(uid, "true"))
        lab.terminate_daemon()
        wait_until(lab.can_lock)

    def purge(self, *options, uid=ROOT, runtime=None):
        system = ["--system"] if uid == ROOT else []
        return self.lab.run(uid, CARVED, *system, "--runtime-dir", runtime or self.runtime, *(options or ["--purge"]), env={"CARVE_HOST": ""})


@pytest.fixture
def ended(lab):
    return Ended(lab)


def test_a_purge_removes_all_that_carve_made(ended):
    assert (ended.jobs / str(ALICE)).is_dir()
    done = ended.purge()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not ended.runtime.exists(), done


def test_clearing_leaves_the_state(ended):
    before = sorted(ended.state.rglob("*"))
    done = ended.purge("--clear")
    assert done.returncode == 0 and sorted(ended.state.rglob("*")) == before, done
    assert sorted(p.name for p in ended.runtime.iterdir()) == ["state", "state-jobs"] and "kept:" in done.stdout


def test_nothing_is_removed_while_a_daemon_serves(lab):
    done = lab.run(ROOT, CARVED, "--system", "--runtime-dir", lab.runtime, "--purge", env={"CARVE_HOST": ""})
    assert done.returncode == 1 and "a carved serves in" in done.stderr, done
    assert peer_of(lab.runtime / "carved.sock")[0] and lab.carve(ALICE, "gpu", "list").returncode == 0


PLANTS = ("link to a directory", "directory of a job's name", "hard link", "shut", "mount", "FIFO")


@pytest.mark.parametrize("what", rest_long(PLANTS, 3))
@pytest.mark.attack(POINT, "a user's own directory of jobs, which root purges, leads elsewhere")
def test_a_purge_goes_nowhere_else_from_a_users_directory_of_jobs(ended, what):
    lab, own = ended.lab, ended.jobs / str(MALLORY)
    victim = victim_make(lab.dir / "victim")
    (victim / "1.1.log").write_text("root's")
    silent = None
    if what == "link to a directory":
        (own / "9.1.log").symlink_to(victim)
        (own / "1").symlink_to(victim)
    elif what == "directory of a job's name":
        (own / "9.1.log").mkdir()
    elif what == "hard link":
        os.link(victim / "1.1.log", own / "9.1.log")
    elif what == "shut":
        own.chmod(0)
    elif what == "FIFO":
        os.mkfifo(own / "9.1.record")
    else:
        try:
            silent = SilentFileSystem(own, False)
        except OSError as error:
            pytest.skip(f"no FUSE file system can be mounted here: {error}")
    try:
        done = ended.purge()
    finally:
        if silent:
            silent.close()
    assert done.returncode == 0 and (victim / "1.1.log").read_text() == "root's", done
    (victim / "1.1.log").unlink()
    untouched(victim)
    stays = what in ("link to a directory", "directory of a job's name", "mount")
    assert ended.jobs.exists() == stays and (f"kept: what user {MALLORY} has" in done.stdout or f"kept: {ended.jobs}" in done.stdout) == stays, done
    assert not (ended.jobs / str(ALICE)).exists() and not (ended.state / "carve.db").exists()


@pytest.mark.parametrize("what", rest_long(["jobs", "a user's directory", "containers", "the directory", "its owner"], 3))
@pytest.mark.attack(POINT, "a broken worker put links and others' directories into its state, which root purges")
def test_a_purge_goes_nowhere_else_from_a_broken_workers_state(ended, what):
    lab, victim = ended.lab, victim_make(ended.lab.dir / "victim")
    (victim / "1").mkdir(exist_ok=True)
    (victim / "1/1.1.log").write_text("root's")
    if what == "jobs":
        shutil.rmtree(ended.jobs)
        ended.jobs.symlink_to(victim)
    elif what == "a user's directory":
        shutil.rmtree(ended.jobs / str(ALICE))
        (ended.jobs / str(ALICE)).symlink_to(victim / "1")
    elif what == "containers":
        shutil.rmtree(ended.runtime / "containers")
        (ended.runtime / "containers").symlink_to(victim / "containers")
    elif what == "the directory":
        shutil.rmtree(ended.state)
        ended.state.symlink_to(victim)
    else:
        os.chown(ended.state, MALLORY, MALLORY)
    done = ended.purge()
    assert done.returncode == (5 if what in ("the directory", "its owner") else 0), done
    assert what != "its owner" or ("belongs to another user" in done.stderr and (ended.state / "carve.db").exists()), done
    assert (victim / "1/1.1.log").read_text() == "root's"
    shutil.rmtree(victim / "1")
    untouched(victim)


@pytest.mark.parametrize("whose", rest_long(["another user's", "in another user's", "written by all"], 2))
@pytest.mark.attack(POINT, "root purges a directory that is a user's, or that users can exchange")
def test_root_purges_no_directory_of_others(lab, whose):
    place = lab.home(MALLORY) / "run" if whose != "written by all" else lab.dir / "run2"
    victim_make(place)
    for path in [place, *place.rglob("*")] if whose == "another user's" else []:
        os.chown(path, MALLORY, MALLORY)
    if whose == "written by all":
        place.chmod(0o777)
    for user, options in ((ROOT, ["--system"]), (ROOT, []), (ALICE, [])):
        done = lab.run(user, CARVED, *options, "--runtime-dir", place, "--purge", env={"CARVE_HOST": ""})
        assert done.returncode == 5 and "is not removed" in done.stderr and len(done.stderr.splitlines()) == 1, done
    untouched(place)


def test_a_user_purges_the_own_daemon(lab):
    place = lab.home(ALICE) / "run"
    daemon = lab.popen(ALICE, CARVED, "--runtime-dir", place, "--foreground", env={"CARVE_HOST": ""})
    wait_until(lambda: (place / "carved.sock").exists())
    daemon.terminate()
    daemon.wait()
    done = lab.run(ALICE, CARVED, "--runtime-dir", place, "--purge", env={"CARVE_HOST": ""})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not place.exists(), (done, list(place.rglob("*")) if place.exists() else "")
