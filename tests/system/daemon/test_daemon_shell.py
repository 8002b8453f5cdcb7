"""A daemon that is started on demand has nothing of the shell that needed it: limits, priority, affinity, signals. The daemon
tells of limits that a user may not lift."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import tempfile

import pytest

from command import CARVE
from conftest import BUILD, PATIENCE, another_user_can_read, wait_until
from daemon_client import MIB, UnixConnection
from own_daemon import make_daemon  # noqa: F401: a fixture

REACH = BUILD / "tests/programs/reach"
USER = 65534


class Shell:
    """A shell of root's or of another user's on a simulated host, with limits of its own; its daemon is its own, too."""

    def __init__(self, host, uid):
        self.host, self.uid = host, uid
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="carve-test-"))
        self.runtime = self.dir / "run"
        os.chown(self.dir, uid, uid)
        directory = pathlib.Path(host.env["SIMGPU_HOST"])
        directory.chmod(0o755)
        (directory / "driver.sock").chmod(0o666)
        self.limits = lambda: None

    def argv(self, *argv):
        user = [] if self.uid == 0 else ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return [*user, *map(str, argv)]

    def kw(self):
        return {"env": {"CARVE_RUNTIME_DIR": str(self.runtime)}, "preexec_fn": self.limits}

    def carve(self, *argv):
        return self.host.run(self.argv(CARVE, *argv), **self.kw())

    def popen(self, *argv, **more):
        return self.host.popen(self.argv(CARVE, *argv), **self.kw(), **more)

    def check(self):
        """The findings of `carve check` about the limits."""
        found, = [c for c in json.loads(self.carve("check", "--json").stdout)["conditions"] if c["name"] == "limits"]
        return found

    def daemon(self):
        """The worker: a child of the process that has the lock."""
        def worker():
            supervisor = int((self.runtime / "lock").read_text().split()[0])
            found = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
            return int(found[0]) if found else None

        return wait_until(worker)

    def log(self):
        return (self.runtime / "carved.log").read_text()

    def close(self):
        try:
            os.kill(self.daemon(), signal.SIGTERM)
            wait_until(lambda: not (self.runtime / "carved.sock").exists())
        except (OSError, ValueError, IndexError):
            pass
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def make_shell(make_host):
    """make_shell(USER ID) -> Shell; closed after the test."""
    if os.geteuid() != 0 or not another_user_can_read():
        pytest.skip("needs root, and a build that other users can read")
    shells = []

    def make(uid):
        shells.append(Shell(make_host("h100-80gb"), uid))
        return shells[-1]

    yield make
    for shell in shells:
        shell.close()


# A limit that everybody may lift, and one that only root may; "hard" is what `ulimit` sets without an option.
BOTH = pytest.mark.parametrize("uid, limit", [(0, "soft"), (USER, "hard")])


def limited(shell, limit, kind, value):
    """Gives the shell the limit. True: its daemon need not have it."""
    shell.limits = lambda: resource.setrlimit(kind, (value, value if limit == "hard" else resource.getrlimit(kind)[1]))
    return limit == "soft"


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_until(shell, condition):
    """Has the daemon compute."""
    connection = UnixConnection(shell.runtime / "carved.sock")
    while not condition():
        for _ in range(100):
            connection.request("GET", "/v1/gpus")
            connection.getresponse().read()
    connection.close()


@BOTH
@pytest.mark.long
def test_cpu_time(make_shell, uid, limit):
    """As after `ulimit -t 1`."""
    shell = make_shell(uid)
    lifted = limited(shell, limit, resource.RLIMIT_CPU, 1)
    granted = json.loads(shell.carve("session", "request", "--vram", "2", "--json").stdout)["id"]
    daemon = shell.daemon()
    if lifted:
        busy_until(shell, lambda: cpu_seconds(daemon) > 1.5)
        assert shell.check()["state"] == "ok" and "carved.limited" not in shell.log()
        assert shell.daemon() == daemon
        return
    assert 'carved.limited what="it is ended after 1 s of CPU time (ulimit -t)"' in shell.log()
    found = shell.check()
    assert found["state"] == "problem" and "it is ended after 1 s of CPU time" in found["message"]
    with pytest.raises(OSError):
        busy_until(shell, lambda: False)
    # The kernel ended it, as it had said; the next one goes on with its sessions.
    assert json.loads(shell.carve("session", "list", "--json").stdout)[0]["id"] == granted
    assert shell.daemon() != daemon


@BOTH
def test_file_size(make_shell, uid, limit):
    """As after `ulimit -f`, of 1 MiB: the log of the database stays below a quarter of it, so that all are granted."""
    shell = make_shell(uid)
    lifted = limited(shell, limit, resource.RLIMIT_FSIZE, MIB)
    assert shell.carve("gpu", "list").returncode == 0
    daemon = shell.daemon()
    assert grants(shell, 60) is None
    assert shell.daemon() == daemon
    if lifted:
        assert shell.check()["state"] == "ok"
        return
    assert (shell.runtime / "carve.db-wal").stat().st_size < MIB / 4 + 100_000
    assert f"it may write no file of more than {MIB} bytes (ulimit -f)" in shell.check()["message"]
    assert shell.carve("gpu", "list").returncode == 0


def grants(shell, count):
    """Asks for so many slices, one after the other, and gives each back. The refusal, or None."""
    connection = UnixConnection(shell.runtime / "carved.sock")

    def ask(method, path, body=None):
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or "null")

    try:
        for _ in range(count):
            status, answer = ask("POST", "/v1/sessions", {"vram": "1", "ephemeral": False})
            if status != 201:
                return json.dumps(answer)
            assert ask("DELETE", "/v1/sessions/" + answer["id"])[0] in (200, 204)
    finally:
        connection.close()
    return None


def test_file_size_and_the_log_of_the_database_of_jobs(make_shell):
    """It, too, stays below a quarter of `ulimit -f`, so that jobs are changed as often as their user likes."""
    shell = make_shell(USER)
    limited(shell, "hard", resource.RLIMIT_FSIZE, MIB)
    job = json.loads(shell.carve("enqueue", "--json", "--queue", "q", "--hold", "--", "true").stdout)["id"]
    connection = UnixConnection(shell.runtime / "carved.sock")
    try:
        for turn in range(200):
            connection.request("PATCH", "/v1/jobs/" + job, json.dumps({"hold": turn % 2 == 1}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            told = answer.read()
            assert answer.status == 200, (turn, told)
    finally:
        connection.close()
    assert (shell.runtime / "queue.db-wal").stat().st_size < MIB / 4 + 100_000


def test_file_size_that_is_too_small(make_shell):
    """A file that may not grow is a full disk, and no reason to die."""
    shell = make_shell(USER)
    limited(shell, "hard", resource.RLIMIT_FSIZE, MIB // 4)
    assert shell.carve("gpu", "list").returncode == 0
    daemon = shell.daemon()
    refused = grants(shell, 20000)
    assert refused and "carved may write no larger files (ulimit -f)" in refused
    assert shell.daemon() == daemon
    assert shell.carve("gpu", "list").returncode == 0


@pytest.mark.parametrize("size", [MIB, 2 * MIB])
def test_file_size_that_no_ledger_fits_is_named(make_shell, size):
    shell = make_shell(USER)
    limited(shell, "hard", resource.RLIMIT_FSIZE, size)
    program = shell.popen("run", "--isolation", "preload", "--ephemeral", "--vram", "4", REACH, "path", "libcuda.so.1", str(64 * MIB), stdin=-1)
    out, err = program.communicate()
    assert ("holds" in out) == (size > MIB), (out, err)
    assert ("cannot make the ledger: carved may write no larger files (ulimit -f)" in err) == (size == MIB), err


@BOTH
def test_descriptors(make_shell, uid, limit):
    """As after `ulimit -n 64`: 24 programs at a time are served; where that cannot be, each says why."""
    shell = make_shell(uid)
    lifted = limited(shell, limit, resource.RLIMIT_NOFILE, 64)
    assert shell.carve("session", "request", "--vram", "30").returncode == 0
    found = shell.check()
    programs = [shell.popen("run", "--isolation", "preload", REACH, "path", "libcuda.so.1", str(64 * MIB), stdin=-1)
                for _ in range(24)]
    told = [(p.stdout.readline(), p.stdout.readline()) for p in programs]
    served = [p for p, lines in zip(programs, told) if lines[1] == "holds\n"]
    listed = shell.carve("session", "list")
    ends = [p.communicate("", timeout=PATIENCE)[1] for p in programs]
    assert listed.returncode == 0, listed.stderr  # some are left for questions
    if lifted:
        assert len(served) == 24, ends
        assert found["state"] == "ok"
        return
    assert "it may open no more than 64 descriptors (ulimit -n)" in found["message"]
    assert len(served) >= 5, ends
    for program, text in zip(programs, ends):
        assert program in served or "carved may open no more than 64 descriptors (ulimit -n)" in text, text


def test_too_few_descriptors(make_shell):
    shell = make_shell(USER)
    limited(shell, "hard", resource.RLIMIT_NOFILE, 40)
    done = shell.carve("gpu", "list")
    assert done.returncode == 4
    assert "carved needs 48 descriptors at least, and may open 40 (ulimit -n); raise the hard limit" in done.stderr


def ignores(pid, number):
    words = re.search(r"SigIgn:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]
    return bool(int(words, 16) & 1 << (number - 1))


def processes_of(directory):
    """The programs of carve's that have a path in the directory among their arguments, by name."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if any(w.startswith(str(directory)) for w in words[1:]):
            found[os.path.basename(words[0])] = int(entry.name)
    return found


def commands_of_children(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pathlib.Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    except OSError:
        return []


def test_all_parts_take_a_file_that_may_not_grow_for_a_full_disk(host):
    """SIGXFSZ would end the part that writes. A job has the signal as usual."""
    host.carve("agent", "--dynamic-gpus", "--gpus", "all", "--queue", "q=0.5", "--detached")
    job = json.loads(host.carve("enqueue", "--json", "--queue", "q", "--", "sleep", "1000").stdout)["id"]
    directory = host.env["CARVE_RUNTIME_DIR"]
    holder = host.popen([CARVE, "run", "--vram", "4", REACH, "path", "libcuda.so.1", str(64 * MIB)], stdin=-1)
    assert [holder.stdout.readline(), holder.stdout.readline()][1] == "holds\n"
    wait_until(lambda: host.carve_json("job", "show", job)["state"] == "running")
    # Until then a child of the shim's has its name, and the signal as usual.
    wait_until(lambda: any(words == b"sleep\x001000\x00" for words in commands_of_children(processes_of(directory).get("carve-shim"))))
    parts = processes_of(directory)
    assert {"carved", "carve-shim"} <= set(parts), parts
    assert {name for name in parts if name.startswith("carve") and not ignores(parts[name], signal.SIGXFSZ)} == set()
    children = pathlib.Path(f"/proc/{parts['carve-shim']}/task/{parts['carve-shim']}/children").read_text().split()
    sleeping, = [int(p) for p in children if pathlib.Path(f"/proc/{p}/comm").read_text() == "sleep\n"]
    assert not ignores(sleeping, signal.SIGXFSZ)
    holder.communicate("", timeout=PATIENCE)
    host.carve("job", "cancel", job)


def other_priority():
    os.nice(19)
    os.sched_setaffinity(0, [0])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("uid", [0, USER])
def test_priority_affinity_and_signals(make_shell, uid):
    """As after `nice -n 19 taskset -c 0 nohup`."""
    shell = make_shell(uid)
    usual = os.sched_getaffinity(0)
    shell.limits = other_priority
    assert shell.carve("gpu", "list").returncode == 0
    daemon = shell.daemon()
    assert os.sched_getaffinity(daemon) == usual
    ignored = int([line for line in pathlib.Path(f"/proc/{daemon}/status").read_text().splitlines()
                   if line.startswith("SigIgn:")][0].split()[1], 16)
    assert not ignored & (1 << (signal.SIGHUP - 1) | 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1))
    assert ignored & 1 << (signal.SIGXFSZ - 1)
    nice = os.getpriority(os.PRIO_PROCESS, daemon)
    found = shell.check()
    if shell.uid == 0:
        assert nice == 0 and found["state"] == "ok"
    else:
        assert nice == 19 and "it runs with niceness 19" in found["message"]
        assert "it runs with niceness 19" in shell.log()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_affinity_of_a_daemon_that_was_started_by_hand_is_named(make_daemon):
    """Nothing lifts it: whoever starts a daemon by hand may have meant it."""
    def notes():
        return daemon.call("GET", "/v1/version").json["limited_notes"]

    daemon = make_daemon()
    assert not [note for note in notes() if "CPUs" in note]
    daemon.kill()
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(usual)])
    try:
        daemon.start()
    finally:
        os.sched_setaffinity(0, usual)
    words = f"it may run on 1 of {len(usual)} CPUs only (taskset)"
    assert words in notes() and f'carved.limited what="{words}"' in daemon.log()
    assert os.sched_getaffinity(daemon.pid) == {min(usual)}


def hostile():
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number != signal.SIGCHLD:  # Python waits for the child
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.umask(0o777)


@pytest.mark.parametrize("uid", [0, USER])
def test_ignored_and_blocked_signals_and_umask(make_shell, uid):
    """As after `trap "" CHLD; umask 777`, and from a program that blocks all signals."""
    shell = make_shell(uid)
    shell.limits = hostile
    done = shell.carve("session", "request", "--vram", "4")
    assert done.returncode == 0, done.stderr
    status = pathlib.Path(f"/proc/{shell.daemon()}/status").read_text()
    words = {name: int(re.search(name + r":\s*(\w+)", status)[1], 16) for name in ("SigIgn", "SigBlk")}
    assert words == {"SigIgn": 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1, "SigBlk": 0}
    assert shell.runtime.stat().st_mode & 0o777 == 0o700
    assert (shell.runtime / "carved.log").stat().st_mode & 0o777 == 0o600
    assert shell.carve("run", "sh", "-c", "exit 5").returncode == 5  # whoever ignores children has the status all the same
    ignored = int(shell.carve("run", "grep", "SigIgn:", "/proc/self/status").stdout.split()[1], 16)
    assert ignored & 1 << signal.SIGCHLD - 1 and ignored & 1 << signal.SIGUSR1 - 1  # the command has what its shell has


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_standard_descriptors(make_shell, closed):
    """Nothing that carve opens gets their numbers: no message goes into a file of the daemon's, or to it."""
    shell = make_shell(USER)
    shell.limits = lambda: [os.close(fd) for fd in closed]
    done = shell.carve("session", "request", "--vram", "4")
    assert done.returncode == (1 if 1 in closed else 0), done.stderr
    shell.limits = lambda: None
    assert len(json.loads(shell.carve("session", "list", "--json").stdout)) == 1
    for fd in (1, 2):
        assert os.readlink(f"/proc/{shell.daemon()}/fd/{fd}") == str(shell.runtime / "carved.log")
    assert shell.check()["state"] == "ok"


@pytest.mark.parametrize("uid", [0, USER])
def test_score_of_the_oom_killer(make_shell, uid):
    shell = make_shell(uid)
    shell.limits = lambda: pathlib.Path("/proc/self/oom_score_adj").write_text("900")
    assert shell.carve("gpu", "list").returncode == 0
    score = int(pathlib.Path(f"/proc/{shell.daemon()}/oom_score_adj").read_text())
    if score <= 200:
        assert shell.check()["state"] == "ok"
        return
    assert uid != 0 and score == 900
    words = "the kernel ends it before other programs when memory is short (oom_score_adj 900)"
    assert shell.check() | {"state": "note"} == shell.check() and words in shell.check()["message"] and words in shell.log()


@pytest.mark.parametrize("uid", [0, USER])
def test_scheduling_policy(make_shell, uid):
    shell = make_shell(uid)
    shell.limits = lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    assert shell.carve("gpu", "list").returncode == 0
    policy = os.sched_getscheduler(shell.daemon())
    assert policy == os.SCHED_OTHER or "(SCHED_IDLE)" in shell.check()["message"]
    assert policy == os.SCHED_OTHER or shell.uid != 0


def test_a_shell_without_limits_is_told_of_nothing(make_shell):
    shell = make_shell(USER)
    assert shell.check() == {"name": "limits", "state": "ok", "message": "no limit of a shell's binds the daemon", "advice": ""}
    assert "carved.limited" not in shell.log()
