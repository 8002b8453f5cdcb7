"""The driver's own limits of cgroups in a system daemon, which sets them through a process of root's: a user's program that goes
round the front is held, and nothing of a slice begins before the driver has its limit."""
import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess

import pytest

from cgroups import MOUNT
from cgroup_makers import cgroups, within  # noqa: F401: fixture
from conftest import wait_until
from programs import python

from .broken_worker import LIMIT_ENTER, LIMIT_LEAVE, LIMIT_PUT, BrokenWorker, birth
from .lab import ALICE, BUILD, CARVE, MALLORY, ROOT, Lab, as_user
from .test_jobs import Jobs, parent_of, processes_called

SIZE = 4096
REFUSED = 125

# Asks without end for the limit of one cgroup after the other, each with a process of its own in it.
FLOOD = r"""
import pathlib, signal, socket, time, types
top, session, how, count = sys.argv[1:]
sys.path.insert(0, LAB["tests"])
from attach_client import COMMAND, WORKLOAD, Attached, attach_message
daemon = types.SimpleNamespace(runtime=pathlib.Path(LAB["runtime"]))

def by_http():
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB["http"])
    body = json.dumps({"session": session, "pid": os.getpid()})
    s.sendall(f"POST /v1/commands HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    while s.recv(4096):
        pass
    s.close()

def by_attaching(kind):
    a = Attached(daemon)
    a.ask(kind, session)
    a.close()

def unread():
    a = Attached(daemon)
    try:
        for _ in range(50):
            a.send(attach_message(COMMAND, session))
        a.receive()
    except OSError:
        pass
    a.close()

ask = {"command": lambda: by_attaching(COMMAND), "attach": lambda: by_attaching(WORKLOAD), "http": by_http, "unread": unread}[how]
for i in range(int(count)):
    if os.fork() == 0:
        for k in range(1 << 30):
            path = f"{top}/f{i}-{k}"
            os.mkdir(path)
            open(path + "/cgroup.procs", "w").write("0")
            try:
                if k:
                    os.rmdir(f"{top}/f{i}-{k - 1}")
                else:
                    os.write(1, b"asks\n")
                ask()
            except OSError:
                pass
        os._exit(0)
signal.pause()
"""


@pytest.fixture
def lab(make_lab, make_host, cgroups):  # noqa: F811
    made = Lab(make_host("h100-80gb", "615"))
    made.place = cgroups.make()
    made.cgroups = cgroups
    wait_until(lambda: offers_limits(made))
    yield made
    made.close()


def offers_limits(lab):
    return json.loads(lab.carve(ROOT, "gpu", "list", "--json").stdout)[0]["backend"] == "cgroup"


@pytest.fixture
def around(lab):
    """The words of a program that loads the driver itself, round the front, and takes all the memory that it gets."""
    driver = lab.dir / "driver"
    driver.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(BUILD / "sim" / name, driver / name)
    return ["env", "-u", "LD_PRELOAD", f"LD_LIBRARY_PATH={driver}", *python("take_all")]


def limits(lab):
    return lab.host.stat()["gpus"][0]["cgroup_limits"]


def slow_limits(lab, seconds):
    done = lab.host.carve("sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--delay", str(seconds))
    assert done.returncode == 0, done.stderr


def in_place(lab, uid, *argv, place=None):
    return within(place or lab.place, *as_user(uid), *argv)


def begin(lab, uid, *argv, place=None):
    process = subprocess.Popen(list(map(str, in_place(lab, uid, *argv, place=place))), env=lab.env(uid), cwd="/", text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lab.started.append(process)
    return process


def slice_of(uid_argv):
    return [CARVE, "run", "--ephemeral", "--vram", "4", "--", *uid_argv]


def owned(lab, uid):
    """A cgroup in which the user may make others, as a delegated one."""
    path = lab.cgroups.make(lab.place)
    for name in ("", "cgroup.procs", "cgroup.max.descendants", "cgroup.threads"):
        os.chown(path / name, uid, uid)
    return path


def warden(lab):
    return lab.supervisor()


def part(lab):
    """The warden's child that is setting a limit."""
    pid, = [pid for pid in processes_called("carve-limits") if parent_of(pid) == warden(lab)]
    return pid


def sleeps(pid):
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("35", "230")  # nanosleep, clock_nanosleep


def one_line(text):
    return len(text.strip().splitlines()) <= 2 and text.startswith("carve: ")


def is_bound(done):
    return done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])[2] < SIZE


def run(lab, uid, argv, place=None):
    return lab.host.run(in_place(lab, uid, *argv, place=place), env=lab.env(uid))


def test_a_users_program_that_goes_round_the_front_is_held(lab, around):
    leaves = f'echo $$ > {lab.place}/cgroup.procs && echo left; exec "$@"'
    done = run(lab, ALICE, slice_of(["sh", "-c", leaves, "sh", *around]))
    assert is_bound(done), done.stdout + done.stderr
    assert "left" not in done.stdout, "the cgroup is root's"
    wait_until(lambda: not limits(lab))
    wait_until(lambda: not [entry for entry in lab.place.iterdir() if entry.is_dir()])


def test_a_user_clears_no_limit(lab):
    limits_ = ["/usr/bin/python3", pathlib.Path(__file__).parents[1] / "programs" / "memory_limits.py"]
    assert json.loads(lab.host.run([*as_user(ALICE), *limits_, "set", lab.place, 0, (1 << 64) - 1], env=lab.env(ALICE)).stdout)[0] == 4


# ---- one user's orders do not let another's program begin without its limit ------------------

@contextlib.contextmanager
def flood(lab, how, count=40):
    """Mallory asks for limits without end."""
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    top = owned(lab, MALLORY)
    source = f"import json, os, sys; LAB = json.loads({json.dumps(json.dumps(lab.paths(MALLORY)))})\n" + FLOOD
    process = begin(lab, MALLORY, "/usr/bin/python3", "-c", source, top, session, how, count, place=top)
    for _ in range(min(count, 8)):
        assert process.stdout.readline() == "asks\n", process.stderr.read()
    yield top
    (top / "cgroup.kill").write_text("1")
    process.wait()


@pytest.mark.parametrize("how", ["command", "attach", "http", "unread"])
@pytest.mark.attack("4", "a user whose programs ask for the driver's limit without end, while the driver is slow")
def test_a_flood_of_orders_lets_nobodys_program_begin_without_its_limit(lab, around, how):
    slow_limits(lab, 0.1)
    with flood(lab, how):
        for _ in range(3):
            done = run(lab, ALICE, slice_of(around))
            assert is_bound(done), done.stdout + done.stderr


# ---- where no limit can be set, nothing begins -----------------------------------------------

@contextlib.contextmanager
def hung_driver(lab):
    slow_limits(lab, 13)
    yield
    assert lab.host.carve("sim", "fault", "nvml", "--clear").returncode == 0


@contextlib.contextmanager
def refusing_driver(lab):
    done = lab.host.carve("sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--error", "999")
    assert done.returncode == 0, done.stderr
    yield
    assert lab.host.carve("sim", "fault", "nvml", "--clear").returncode == 0


@contextlib.contextmanager
def stopped_warden(lab):
    pid = warden(lab)
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("trouble, why", [(hung_driver, "within 3 s"), (refusing_driver, "did not take it"), (stopped_warden, "within 3 s")])
@pytest.mark.attack("4", "a program that begins while its limit cannot be set")
def test_no_program_begins_while_its_limit_cannot_be_set(lab, around, trouble, why):
    session = lab.carve_json(ALICE, "session", "request", "--vram", "4")["id"]
    with trouble(lab):
        for words in (["--ephemeral", "--vram", "4"], ["--session", session], ["--session", session, "--isolation", "mount"]):
            done = run(lab, ALICE, [CARVE, "run", *words, "--", "sh", "-c", "echo begun"])
            assert done.returncode == REFUSED and not done.stdout, done.stdout + done.stderr
            assert why in done.stderr and one_line(done.stderr), done.stderr
    wait_until(lambda: is_bound(run(lab, ALICE, slice_of(around))))


@pytest.mark.parametrize("trouble", [hung_driver, refusing_driver])
@pytest.mark.attack("4", "a job that begins while its limit cannot be set")
def test_no_job_begins_while_its_limit_cannot_be_set(lab, trouble):
    jobs = Jobs(lab)
    with trouble(lab):
        id = jobs.enqueue(ALICE, "sh", "-c", "echo begun")
        job = jobs.ended(ALICE, id)
    said = lab.carve(ALICE, "job", "logs", id).stdout
    assert job["state"] == "failed" and "limit is not set" in said and "begun" not in said, (job, said)


@pytest.mark.attack("4", "a job that leaves the cgroup that has its limit")
def test_a_jobs_program_is_held_wherever_its_user_moves_it(lab, around):
    up = ('at=$(sed -n "s/^0:://p" /proc/self/cgroup); while [ "$at" != / ]; do at=$(dirname "$at"); '
          f'echo $$ > {MOUNT}$at/cgroup.procs && echo moved; done; exec "$@"')
    said = Jobs(lab).output(ALICE, "sh", "-c", up, "sh", *around, queue="sixth")
    assert "moved" in said, "the job's cgroup is its user's"
    assert json.loads(said.splitlines()[-1])[2] < 80 * 1024 * 0.125


# ---- the part that sets limits, and the daemon, end ------------------------------------------

@pytest.mark.attack("4", "the part that sets limits is killed while a program waits for its limit")
def test_no_program_begins_where_the_part_that_sets_limits_is_killed(lab, around):
    slow_limits(lab, 1)
    waiting = begin(lab, ALICE, *slice_of(["sh", "-c", "echo begun"]))
    wait_until(lambda: list(lab.place.glob("carve-s-*")))
    wait_until(lambda: sleeps(part(lab)))  # within the driver's call
    os.kill(part(lab), signal.SIGKILL)
    out, error = waiting.communicate()
    assert waiting.returncode == REFUSED and not out, out + error
    assert lab.serves_still()
    slow_limits(lab, 0)
    assert is_bound(run(lab, ALICE, slice_of(around)))


@pytest.mark.attack("4", "the warden, which sets limits, is killed while nobody waits")
def test_a_daemon_ends_with_the_supervisor_that_sets_limits_and_the_next_sets_them(lab, around):
    lab.kill_supervisor()
    lab.start()
    assert is_bound(run(lab, ALICE, slice_of(around)))


@pytest.mark.attack("4", "the daemon is killed while a program waits for its limit")
def test_a_program_that_waits_over_the_daemons_death_begins_with_its_limit_or_not_at_all(lab, around):
    session = lab.carve_json(ALICE, "session", "request", "--vram", "4")["id"]
    slow_limits(lab, 0.5)
    waiting = begin(lab, ALICE, CARVE, "run", "--session", session, "--", *around)
    wait_until(lambda: list(lab.place.glob("carve-s-*")))
    lab.restart()
    out, error = waiting.communicate()
    assert waiting.returncode == REFUSED or json.loads(out)[2] < SIZE, out + error


# ---- a user makes the look fail: only that user's program does not begin ----------------------

def none_below(path):
    (path / "cgroup.max.descendants").write_text("0")


def threads_below(path):
    below = path / "threads"
    below.mkdir()
    (below / "cgroup.type").write_text("threaded")


@pytest.mark.parametrize("spoil", [none_below, threads_below])
@pytest.mark.attack("4", "a user whose cgroup takes none below it")
def test_a_command_does_not_begin_where_no_cgroup_can_be_made_for_it(lab, around, spoil):
    mine = owned(lab, ALICE)
    spoil(mine)
    done = run(lab, ALICE, slice_of(["sh", "-c", "echo begun"]), place=mine)
    assert done.returncode == REFUSED and not done.stdout, done.stdout + done.stderr
    assert "may have no more below it" in done.stderr or "can have none" in done.stderr
    assert is_bound(run(lab, ALICE, slice_of(around), place=owned(lab, ALICE))), "a user's own cgroup is no hindrance"


# Prints the answer to a process that attaches in a cgroup with many others (wide), or with one that has many ancestors (deep).
TREE = r"""
import pathlib, signal, types
top, session, shape = sys.argv[1:]
sys.path.insert(0, LAB["tests"])
from attach_client import COMMAND, WORKLOAD, Attached
daemon = types.SimpleNamespace(runtime=pathlib.Path(LAB["runtime"]))
for name in ("home", "other"):
    os.mkdir(f"{top}/{name}")
open(f"{top}/home/cgroup.procs", "w").write("0")
print(*Attached(daemon).ask(COMMAND, session), flush=True)
there = f"{top}/other/cgroup.procs"
if shape == "wide":
    for _ in range(200):
        if os.fork() == 0:
            open(there, "w").write("0")
            os.write(1, b".")
            signal.pause()
    sys.stdout.flush()
else:
    for _ in range(100):
        if os.fork():
            signal.pause()
    open(there, "w").write("0")
if os.fork() == 0:
    open(there, "w").write("0")
    print("\n", *Attached(daemon).ask(WORKLOAD, session), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("shape", ["wide", "deep"])
@pytest.mark.attack("4", "a user with more processes, or a deeper tree of them, than anybody looks at")
def test_a_process_does_not_attach_where_its_cgroup_is_too_much_to_look_at(lab, around, shape):
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "1")["id"]
    top = owned(lab, MALLORY)
    source = f"import json, os, sys; LAB = json.loads({json.dumps(json.dumps(lab.paths(MALLORY)))})\n" + TREE
    process = begin(lab, MALLORY, "/usr/bin/python3", "-c", source, top, session, shape, place=top)
    assert process.stdout.readline().startswith("0 ")
    process.stdout.readline()
    status, _, message = process.stdout.readline().split(maxsplit=2)
    assert int(status) == 6 and "too many processes" in message
    assert is_bound(run(lab, ALICE, slice_of(around)))
    (top / "cgroup.kill").write_text("1")


@pytest.mark.attack("4", "a broken worker names cgroups and files that are none of a session's")
def test_a_broken_worker_reaches_no_other_cgroup(lab):
    """A cgroup is named by a number. One that carve did not make is neither removed nor entered by a name of the worker's."""
    def numbers(*values):
        return struct.pack("<Q", *values)
    other = lab.place / "mine"
    other.mkdir()
    broken = BrokenWorker(lab, warden(lab))
    try:
        assert broken.ask(LIMIT_LEAVE, numbers(other.stat().st_ino))[0] == errno.EPERM
        assert other.is_dir()
        assert broken.ask(LIMIT_LEAVE, numbers((other / "cgroup.procs").stat().st_ino))[0] not in (0, errno.EPERM)
        assert broken.ask(LIMIT_LEAVE, numbers(pathlib.Path(MOUNT).stat().st_ino))[0] == errno.EINVAL
        assert broken.ask(LIMIT_LEAVE, numbers(1 << 60))[0] == 0  # it is gone
        for number in (pathlib.Path(MOUNT).stat().st_ino, 1 << 60, (other / "cgroup.procs").stat().st_ino):
            assert broken.ask(LIMIT_PUT, struct.pack("<QQII", number, 1 << 30, 0, 0))[0] != 0
        for name in (b"", b"s-", b"../../x", b"s-../x", b"s-abcdefghijklmn", b"x-abcdef", b"s-abc\0/x"):
            data = struct.pack("<QiI16s", birth(os.getpid()), os.getpid(), 0, name)
            assert broken.ask(LIMIT_ENTER, data)[0] == errno.EINVAL
        # Root's own processes are moved nowhere, unless they are in a slice.
        with subprocess.Popen(["sleep", "1000"]) as target:
            was = pathlib.Path(f"/proc/{target.pid}/cgroup").read_text()
            data = struct.pack("<QiI16s", birth(target.pid), target.pid, 0, b"s-abcdef")
            wait_until(lambda: pathlib.Path(f"/proc/{target.pid}/comm").read_text() == "sleep\n")
            assert broken.ask(LIMIT_ENTER, data)[0] == errno.EPERM
            assert pathlib.Path(f"/proc/{target.pid}/cgroup").read_text() == was
            target.kill()
    finally:
        broken.end()
        other.rmdir()
