"""Servers in a daemon's place: clients speak to root's daemons and their own user's, and to nobody else's."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from conftest import BUILD, PATIENCE, clean_env, rest_long, run, wait_until
from fake_daemon import fake, session  # noqa: F401: a fixture

from .lab import ALICE, CARVE, MALLORY, PROGRAMS, ROOT, as_user, peer_of

POINT = "5"
HERE = pathlib.Path(__file__).parent
FRONT = BUILD / "src/front/libcuda.so.1"
REACH = PROGRAMS / "reach"
SIM_HOST = "SIMGPU_HOST"


@pytest.fixture
def victim(lab):
    """A user of this test's own, as /tmp/carve-UID is one directory for the whole machine; with a home."""
    uid = random.randrange(70000, 1 << 30)
    home = lab.dir / "victim"
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    yield uid
    usual = pathlib.Path(f"/tmp/carve-{uid}")
    try:
        os.kill(int((usual / "lock").read_text().split()[0]), signal.SIGTERM)
        wait_until(lambda: not (usual / "carved.sock").exists())
    except (OSError, ValueError, IndexError):
        pass
    shutil.rmtree(usual, ignore_errors=True)


def listen(lab, directory, uid=MALLORY):
    """A fake server of Mallory's; returns what it heard, as a function."""
    log = lab.dir / f"heard-{random.randrange(1 << 30)}"
    log.touch()
    os.chown(log, uid, uid)
    for kind, name in (("http", "carved.sock"), ("attach", "attach.sock")):
        server = lab.popen(uid, sys.executable, HERE / "fake_server.py", log, kind, f"{directory}/{name}")
        assert server.stdout.readline() == "up\n", server.communicate()[1]
    return log.read_text


def own_directory(path, uid=MALLORY, mode=0o755):
    path.mkdir()
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


def client(lab, uid, *argv, **env):
    """A user's command where no system daemon answers: nothing but `env` names one."""
    clean = {k: v for k, v in lab.env(MALLORY).items() if not k.startswith("CARVE_") and k != "XDG_RUNTIME_DIR"}
    clean.update({"HOME": str(lab.dir / "victim")}, **{k: str(v) for k, v in env.items()})
    return run([*as_user(uid), *map(str, argv)], env=clean, cwd="/")


VERBS = [["gpu", "list"], ["quota", "set", "mallory", "--vram", "80"], ["session", "request", "--vram", "2"],
         ["run", "--vram", "2", "true"], ["session", "list", "--json"], ["top", "--once"], ["timeslicing"], ["check"]]


def refused(done, *words):
    assert done.returncode in (5, 125), (done.returncode, done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr + done.stdout


@pytest.mark.attack(POINT, "another user made /tmp/carve-UID and serves there")
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_directory_in_tmp_of_another_user(lab, victim, mode):
    heard = listen(lab, own_directory(pathlib.Path(f"/tmp/carve-{victim}"), mode=mode))
    for verb in VERBS:
        refused(client(lab, victim, CARVE, *verb), f"/tmp/carve-{victim}", f"user {MALLORY}")
    assert heard() == ""


@pytest.mark.attack(POINT, "an inherited XDG_RUNTIME_DIR, CARVE_RUNTIME_DIR, CARVE_HOST or --host leads to another user's server")
@pytest.mark.parametrize("how", rest_long(["CARVE_RUNTIME_DIR", "link", "CARVE_HOST", "--host"], 2))
def test_a_server_of_another_user_that_is_named(lab, victim, how):
    directory = own_directory(lab.dir / "evil")
    heard = listen(lab, directory)
    env, option = {}, []
    if how == "CARVE_RUNTIME_DIR":
        env = {how: directory}
    elif how == "--host":
        option = [how, directory / "carved.sock"]
    else:
        env = {"CARVE_HOST": directory / "carved.sock"}
    if how == "link":  # in a directory of the victim's own
        link = lab.dir / "victim" / "carved.sock"
        link.symlink_to(directory / "carved.sock")
        env = {"CARVE_HOST": link}
    for verb in VERBS[:4]:
        for uid in (ROOT, victim):
            refused(client(lab, uid, CARVE, verb[0], *option, *verb[1:], **env), f"user {MALLORY}")
    assert heard() == ""


@pytest.mark.attack(POINT, "a link in the user's own directory, or a directory of root's that all may write to, leads to another's server")
@pytest.mark.parametrize("place", ["link", "tmp"])
def test_a_server_of_another_user_in_a_trusted_directory(lab, victim, place):
    """The directory is the victim's own, or root's: only who listens tells."""
    evil = own_directory(lab.dir / "evil")
    if place == "link":
        heard, directory = listen(lab, evil), own_directory(lab.dir / "own", victim, 0o700)
        for name in ("carved.sock", "attach.sock"):
            (directory / name).symlink_to(evil / name)
    else:
        directory = lab.dir / "tmp"
        directory.mkdir()
        directory.chmod(0o1777)
        heard = listen(lab, directory)
    for verb in VERBS[:4]:
        refused(client(lab, victim, CARVE, *verb, CARVE_RUNTIME_DIR=directory), f"user {MALLORY}")
    assert heard() == ""


@pytest.mark.attack(POINT, "an inherited XDG_RUNTIME_DIR, CARVE_RUNTIME_DIR, CARVE_HOST or --host leads to another user's server")
@pytest.mark.parametrize("kind", ["another user's", "written by all"])
def test_an_inherited_runtime_directory_is_not_used(lab, victim, kind):
    """As su leaves it: the victim has a daemon of its own instead."""
    xdg = own_directory(lab.dir / "xdg", MALLORY if kind == "another user's" else victim, 0o777)
    heard = listen(lab, own_directory(xdg / "carve"))
    done = client(lab, victim, CARVE, "gpu", "list", "--json", XDG_RUNTIME_DIR=xdg)
    assert done.returncode == 0, done.stderr
    assert "Evil" not in done.stdout and json.loads(done.stdout)[0]["memory_bytes"] > 1 << 36
    assert peer_of(f"/tmp/carve-{victim}/carved.sock")[1] == victim
    assert heard() == ""


@pytest.mark.attack(POINT, "a program on libcarve is led to another user's server")
@pytest.mark.parametrize("how", ["CARVE_HOST", "CARVE_RUNTIME_DIR"])
def test_libcarve_speaks_to_no_server_of_another_user(lab, victim, how):
    directory = own_directory(lab.dir / "evil")
    heard = listen(lab, directory)
    value = directory / "carved.sock" if how == "CARVE_HOST" else directory
    done = client(lab, victim, BUILD / "examples/session", **{how: value})
    assert done.returncode != 0 and f"user {MALLORY}" in done.stdout + done.stderr
    assert heard() == ""


@pytest.mark.attack(POINT, "`carved --takeover` is led to another user's server")
@pytest.mark.parametrize("user", ["root", "another"])
def test_an_upgrade_is_asked_of_no_server_of_another_user(lab, victim, user):
    directory = own_directory(lab.dir / "evil")
    heard = listen(lab, directory)
    done = client(lab, ROOT if user == "root" else victim, BUILD / "carved", "--takeover", CARVE_RUNTIME_DIR=directory)
    assert done.returncode == 5 and f"user {MALLORY} listens at {directory}/carved.sock, not root or you" in done.stderr
    assert heard() == ""


@pytest.mark.attack(POINT, "a program in a slice is led to another user's attach socket")
@pytest.mark.parametrize("user", ["root", "another"])
@pytest.mark.parametrize("place", rest_long(["link", "evil"]))
def test_the_front_attaches_to_no_server_of_another_user(lab, victim, user, place):
    directory = own_directory(lab.dir / "evil")
    heard = listen(lab, directory)
    attach = directory / "attach.sock"
    if place == "link":
        attach = lab.dir / "victim" / "attach.sock"
        attach.symlink_to(directory / "attach.sock")
    done = client(lab, ROOT if user == "root" else victim, REACH, "path", "libcuda.so.1", str(1 << 30), LD_PRELOAD=FRONT,
                  CARVE_SESSION="s-evil", CARVE_ATTACH=attach)
    assert done.returncode != 0
    assert f"the process that listens at {attach} is neither root's nor its own user's" in done.stderr
    assert heard() == ""


@pytest.mark.attack(POINT, "another user's server takes the place of a daemon that ended, under a command or a workload")
def test_a_server_that_takes_a_daemons_place(lab, victim):
    """The victim's daemon dies; Mallory can write in its directory (an administrator's mistake) and listens there."""
    directory = own_directory(lab.dir / "open", victim, 0o755)
    env = {"CARVE_RUNTIME_DIR": directory}
    assert client(lab, victim, CARVE, "gpu", "list", **env).returncode == 0
    os.chown(directory, MALLORY, MALLORY)
    os.kill(int((directory / "lock").read_text().split()[0]), signal.SIGKILL)
    for name in ("carved.sock", "attach.sock"):
        (directory / name).unlink()
    heard = listen(lab, directory)
    for verb in VERBS[:4]:
        refused(client(lab, victim, CARVE, *verb, **env), f"user {MALLORY}")
    assert heard() == ""


def test_the_system_daemon_is_believed(lab):
    assert json.loads(lab.carve(ALICE, "gpu", "list", "--json").stdout)
    lab.carve_json(ALICE, "session", "request", "--vram", "2")
    assert lab.carve(ALICE, "run", "--isolation", "preload", REACH, "path", "libcuda.so.1").returncode == 0


def test_a_slice_in_a_user_namespace_reaches_roots_daemon(lab):
    """There root looks like anybody whom the namespace does not map."""
    done = lab.carve(ALICE, "run", "--isolation", "mount", "--vram", "2", REACH, "path", "libcuda.so.1")
    if "cannot isolate by mounting" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split() == [str(2 << 30)], done.stderr


# ---- simulated hosts that users share --------------------------------------------------------

@pytest.fixture
def shared_host(lab):
    """A simulated host of Mallory's, for all users: its directory."""
    host = lab.popen(MALLORY, CARVE, "sim", "--shared", "--", "cat", env={SIM_HOST: "", "CARVE_HOST": ""})
    told = re.search(r"--join (/tmp/simgpu-\w+) ", host.stderr.readline())
    assert told, host.communicate()[1]
    yield told[1]
    host.communicate("", timeout=PATIENCE)


def joined(lab, uid, place, *argv):
    return client(lab, uid, CARVE, "sim", "--join", place, "--", *argv)


@pytest.mark.parametrize("user", ["root", "another"])
def test_a_shared_host_is_believed_by_a_user_who_joins_it(lab, victim, shared_host, user):
    uid = ROOT if user == "root" else victim
    done = joined(lab, uid, shared_host, CARVE, "run", "--vram", "2", REACH, "path", "libcuda.so.1", str(1 << 30))
    assert done.stdout.split() == [str(2 << 30), "holds"], done.stderr
    if uid == ROOT:
        for record in pathlib.Path("/tmp/carve-0").glob("joined-*"):
            if record.name.endswith(f"-{MALLORY}"):
                record.unlink()


@pytest.mark.attack(POINT, "the environment of a shared simulated host is inherited by who did not join it")
@pytest.mark.parametrize("user", ["root", "another"])
def test_a_shared_host_is_not_believed_by_a_user_who_inherits_it(lab, victim, shared_host, user):
    env = {SIM_HOST: shared_host, "CARVE_RUNTIME_DIR": f"{shared_host}/carve"}
    uid = ROOT if user == "root" else victim
    for verb in VERBS[:4]:
        refused(client(lab, uid, CARVE, *verb, **env), f"user {MALLORY}", "carve sim --join")
    done = client(lab, uid, REACH, "path", "libcuda.so.1", str(1 << 30), LD_PRELOAD=FRONT, CARVE_SESSION="s-x",
                  CARVE_ATTACH=f"{shared_host}/carve/attach.sock", **env)
    assert done.returncode != 0 and "neither root's nor its own user's" in done.stderr


@pytest.mark.attack(POINT, "a record of having joined a simulated host is forged, or serves for another host")
@pytest.mark.parametrize("how", ["directory of the attacker's", "linked record", "another host"])
def test_a_record_of_joining_cannot_be_forged(lab, victim, shared_host, how):
    env = {SIM_HOST: shared_host, "CARVE_RUNTIME_DIR": f"{shared_host}/carve"}
    usual = pathlib.Path(f"/tmp/carve-{victim}")
    # The name of a record: one that another user made.
    helper = random.randrange(70000, 1 << 30)
    assert joined(lab, helper, shared_host, "true").returncode == 0
    record, = pathlib.Path(f"/tmp/carve-{helper}").glob("joined-*")
    try:
        if how == "directory of the attacker's":
            own_directory(usual)
            (usual / record.name).touch()
            os.chown(usual / record.name, MALLORY, MALLORY)
        elif how == "linked record":
            usual.symlink_to(record.parent)
        else:  # the victim joined a host of Mallory's; the server moves to another directory
            assert joined(lab, victim, shared_host, "true").returncode == 0
            other = own_directory(lab.dir / "simgpu-other")
            heard = listen(lab, own_directory(other / "carve"))
            env = {SIM_HOST: other, "CARVE_RUNTIME_DIR": other / "carve"}
        refused(client(lab, victim, CARVE, "gpu", "list", **env), f"user {MALLORY}")
        if how == "another host":
            assert heard() == ""
    finally:
        shutil.rmtree(record.parent, ignore_errors=True)
        if usual.is_symlink():
            usual.unlink()


# ---- text from servers -----------------------------------------------------------------------

# A title for the terminal, colours, the cursor up and a line erased; C1's CSI; right to left; ends of lines.
NASTY = ["\x1b[1A\x1b[2Kgone", "\x9b31m", "\u202egpj.exe", "a\nforged", "\x1b]0;owned\x07", "\x1b[31mred", "a\rb", "\x08\x7f", "\u2028x",
         "\x85next"]
HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def nasty(value, text):
    """The same answer with the text in every place for one."""
    if isinstance(value, str):
        return value + text
    if isinstance(value, list):
        return [nasty(item, text) for item in value]
    if isinstance(value, dict):
        return {key: nasty(item, text) if key not in ("state", "id", "owner") else item for key, item in value.items()} | {
            "k" + text: 1}
    return value


SHOWN = [["gpu", "list"], ["session", "list"], ["session", "list", "--all"], ["session", "show", "s-abc123"], ["top", "--once"],
         ["quota", "list"], ["timeslicing"], ["explain", "--vram", "4"], ["check"], ["session", "request", "--vram", "4"],
         ["run", "--verbose", "--vram", "4", "true"]]


@pytest.mark.attack(POINT, "a server's texts move the terminal's cursor, colour it, or forge lines")
@pytest.mark.parametrize("text", rest_long(NASTY, 4), ids=range(len(NASTY)))
def test_texts_of_a_server_are_harmless(fake, text):  # noqa: F811
    waiting = {"granted": False, "message": "no", "gpus": [{"index": 0, "name": "x", "message": "y"}]}
    fake.answers[("GET", "/v1/quotas")] = (200, [{"user": "u", "group": None, "vram_bytes": 1, "sessions": None, "used": {}}])
    fake.answers[("GET", "/v1/timeslicing")] = (200, [{"gpu": 0, "mode": "fair", "sessions": []}])
    fake.answers[("POST", "/v1/explain")] = (200, waiting)
    fake.answers[("GET", "/v1/version")] = (200, {"version": "1", "pid": 1, "no_gpu_reason": "x"})
    fake.answers[("GET", "/v1/sessions")] = (200, [session(name="n", reason="r")])
    for key, (status, content) in list(fake.answers.items()):
        fake.answers[key] = (status, nasty(content, text))
    env = clean_env({"CARVE_RUNTIME_DIR": fake.dir})
    for verb in SHOWN:
        done = subprocess.run([CARVE, *verb], capture_output=True, env=env, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        for shown in (done.stdout.decode(), done.stderr.decode()):
            assert not HARMFUL.search(shown), (verb, shown)
            assert "\nforged" not in shown, (verb, shown)
        if verb[0] in ("top", "check", "run", "explain"):
            continue
        done = subprocess.run([CARVE, *verb, "--json"], capture_output=True, env=env, timeout=PATIENCE)
        json.loads(done.stdout)
        assert not HARMFUL.search(done.stdout.decode()), (verb, done.stdout)


@pytest.mark.attack(POINT, "a server's errors move the terminal's cursor, colour it, or forge lines")
@pytest.mark.parametrize("text", rest_long(NASTY, 4), ids=range(len(NASTY)))
def test_errors_of_a_server_are_harmless(fake, text):  # noqa: F811
    error = {"error": {"code": 3, "message": "no room" + text, "hint": "later" + text}}
    asked = [("GET", "/v1/quotas"), ("GET", "/v1/timeslicing"), ("GET", "/v1/version"), ("POST", "/v1/explain")]
    for key in [*fake.answers, *asked]:
        fake.answers[key] = (409, error)
    fake.attach_status = 1
    env = clean_env({"CARVE_RUNTIME_DIR": fake.dir})
    for verb in SHOWN:
        done = subprocess.run([CARVE, *verb], capture_output=True, env=env, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        assert done.returncode != 0
        assert not HARMFUL.search(done.stdout.decode() + done.stderr.decode()), (verb, done.stderr)
        assert verb[0] == "check" or len(done.stderr.splitlines()) == 1
        done = subprocess.run([CARVE, *verb, "--json"], capture_output=True, env=env, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL)
        if verb[0] not in ("check", "top", "run"):
            assert json.loads(done.stderr)["error"]["message"].startswith("no room")
            assert not HARMFUL.search(done.stderr.decode())


# ---- root with a user's HOME ---------------------------------------------------------------

@pytest.mark.parametrize("how", ["HOME", "XDG_CACHE_HOME", "a link"])
@pytest.mark.attack(POINT, "root enqueues with an inherited HOME, where its user has put a copy of the tree that root's job is to run")
def test_root_takes_no_copy_of_a_tree_from_a_users_directory(lab, how):
    tree, home = lab.dir / "tree", lab.home(MALLORY)
    tree.mkdir()
    (tree / "run").write_text("echo roots\n")
    git = ["git", "-C", tree, "-c", "user.name=r", "-c", "user.email=r@localhost"]
    for words in (["init", "--quiet"], ["add", "run"], ["commit", "--quiet", "-m", "x"]):
        assert run([*git, *words]).returncode == 0
    name = run([*git, "write-tree"]).stdout.strip()
    cache = home / "cache" if how == "XDG_CACHE_HOME" else home / ".cache"
    forged = cache / "carve/snapshots" / name
    assert lab.run(MALLORY, "mkdir", "-p", forged).returncode == 0
    lab.run(MALLORY, "sh", "-c", f"echo echo forged > {forged}/run; ls -R {cache}")
    before = sorted(cache.rglob("*"))
    env = {"HOME": str(home)}
    if how == "XDG_CACHE_HOME":
        env = {"XDG_CACHE_HOME": str(cache)}
    elif how == "a link":
        (lab.dir / "linked").symlink_to(home)
        env = {"HOME": str(lab.dir / "linked")}
    lab.carve_json(ROOT, "agent", "--detached", "--gpus", "all", "--queue", "half=0.5")
    done = lab.carve(ROOT, "enqueue", "--queue", "half", "--snapshot", "--", "sh", "./run", cwd=tree, env=env)
    assert done.returncode == 1 and "another user can change what is there" in done.stderr, (done.stdout, done.stderr)
    # Nor does its job get its input by way of such a directory.
    done = lab.carve(ROOT, "enqueue", "--queue", "half", "--wait", "--", "cat", env=env, input="x", stdin=None, timeout=60)
    assert done.returncode == 0 and done.stdout == "", (done.stdout, done.stderr)
    assert "the job has no standard input" in done.stderr and sorted(cache.rglob("*")) == before
