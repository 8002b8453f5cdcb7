"""A worker that was broken into asks its warden for whatever it likes. docs/dev/security.md, "Operations of the warden", says what it
gains by each operation; it gains no more."""
import contextlib
import errno
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from conftest import wait_until
from mig_hands import by_hand
from .broken_worker import (LIMIT_PROBE, MIG_KINDS, MIG_LIST, MIG_MAKE, MIG_MODE, MIG_REMOVE, NAMESPACE_HOLD, NAMESPACE_LOOK, SIGNAL,
                            SIGNAL_ON_GPU, SIGNAL_PEER, BrokenWorker, birth, signal_of)
from .lab import ALICE, BOB, CARVE, MALLORY, ROOT, as_user
from .silent import SilentFileSystem
from .test_jobs import Jobs
from .test_warden_service import anew, service  # noqa: F401


@pytest.fixture
def broken(lab):
    warden = lab.supervisor()
    worker = BrokenWorker(lab, warden)
    worker.warden, worker.lab = warden, lab
    yield worker
    worker.end()


@pytest.fixture
def sleeper():
    """sleeper(uid): a process of that user's, outside of slices."""
    started = []

    def start(uid, env=None):
        process = subprocess.Popen([*as_user(uid), "sleep", "1000"], env=env)
        started.append(process)
        wait_until(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        return process
    yield start
    for process in started:
        process.kill()
        process.wait()


IN_SLICE = {"CARVE_SESSION": "s-abcdef"}
SIGNALS = [SIGNAL, SIGNAL_ON_GPU]


def test_root_s_processes_outside_of_slices_are_not_ended(broken, sleeper):
    target = sleeper(ROOT)
    for operation in SIGNALS:
        for uid in (ROOT, ALICE, broken_uid(broken), 65534):
            expected = errno.EACCES if uid == ROOT else errno.EPERM
            assert broken.signal(target.pid, signal.SIGKILL, uid, ALICE, operation) == expected
        for number in (signal.SIGTERM, signal.SIGKILL):
            for uid in (ROOT, ALICE, broken_uid(broken)):
                assert broken.signal(broken.warden, number, uid, 0, operation) == errno.EPERM
    assert target.poll() is None


def broken_uid(broken):
    return os.stat(f"/proc/{broken.worker}").st_uid


# Programs that another user started outside of slices, and that have something of a slice nearly.
OUTSIDE = {
    "plain": "",
    "variables": "",
    # A program that receives descriptors of strangers, as a message bus does.
    "descriptor": "fd = os.memfd_create('carve-ledger:s-abcdef'); os.set_inheritable(fd, True); ",
    "argument": "s = 'CARVE_SESSION=s-abcdef'; ",
    "mapping": "fd = os.memfd_create('carve:s-abcdef'); os.ftruncate(fd, 4096); m = mmap.mmap(fd, 4096); ",
}
WAITS = "import os, sys, mmap; {}print('begun', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("operation", SIGNALS)
@pytest.mark.parametrize("way", OUTSIDE)
@pytest.mark.attack("13", "a process of a user's that is in no slice, by a worker that was broken into")
def test_users_processes_outside_of_slices_are_not_ended(lab, broken, way, operation):
    near = {"variables": {"CARVE_SESSIONS": "s-abcdef", "A": "CARVE_SESSION=s-abcdef", "XCARVE_SESSION": "1"}}.get(way, {})
    target = lab.popen(ALICE, "/usr/bin/python3", "-c", WAITS.format(OUTSIDE[way]), env=near)
    assert target.stdout.readline() == "begun\n", target.communicate()
    for uid in (ALICE, ROOT):
        assert broken.signal(target.pid, signal.SIGKILL, uid, ALICE, operation) == errno.EACCES
    assert target.poll() is None


def in_slice_by(lab, way):
    """(process, its PID): a process of Alice's with that mark of a slice alone."""
    if way == "carve":  # it waits for the worker, which is stopped
        process = lab.popen(ALICE, CARVE, "gpu", "list")
        wait_until(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "carve\n")
        return process
    maps = "fd = os.memfd_create('carve-ledger:s-abcdef'); os.ftruncate(fd, 4096); m = mmap.mmap(fd, 4096); os.close(fd); "
    process = lab.popen(ALICE, "/usr/bin/python3", "-c", WAITS.format(maps if way == "mapping" else ""),
                        env=IN_SLICE if way == "environment" else {})
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


@pytest.mark.parametrize("way", ["environment", "mapping", "carve"])
def test_a_process_in_a_slice_is_ended_in_its_own_users_name_alone(lab, broken, way):
    target = in_slice_by(lab, way)
    for uid in (BOB, broken_uid(broken), 65534):
        assert broken.signal(target.pid, signal.SIGKILL, uid, ALICE) == errno.EPERM
    assert target.poll() is None
    assert broken.signal(target.pid, signal.SIGTERM, ALICE) == 0
    assert target.wait(30) == -signal.SIGTERM


def test_a_process_of_roots_that_says_so_itself_is_in_a_slice(broken, sleeper):
    """It is root's own word, and no gain."""
    inside = sleeper(ROOT, env={**os.environ, **IN_SLICE})
    assert broken.signal(inside.pid, signal.SIGTERM, ALICE) == errno.EPERM
    assert broken.signal(inside.pid, signal.SIGTERM, ROOT) == 0
    assert inside.wait(30) == -signal.SIGTERM


def test_a_process_of_a_job_is_in_a_slice_whatever_it_hides(lab):
    jobs = Jobs(lab)
    said = lab.home(ALICE) / "pid"
    id = jobs.enqueue(ALICE, "sh", "-c", f"echo $$ > {said}; exec env -i sleep 1000")
    pid = int(wait_until(lambda: said.exists() and said.read_text()))
    wait_until(lambda: pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    if "carve-jobs-" not in pathlib.Path(f"/proc/{pid}/cgroup").read_text():
        pytest.skip("jobs have no cgroup here")
    broken = BrokenWorker(lab, lab.supervisor())
    try:
        assert broken.signal(pid, signal.SIGKILL, BOB) == errno.EPERM
        assert broken.signal(pid, signal.SIGKILL, ALICE) == 0
    finally:
        broken.end()
    assert jobs.ended(ALICE, id)["state"] == "failed"


CONNECTS = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); print('begun', flush=True); sys.stdin.read()"
LISTENS = ("import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); "
           "s.listen(9); print('begun', flush=True); sys.stdin.read()")


def test_a_connection_proves_the_process_that_made_it_alone(lab, broken, sleeper):
    """Not the process to which the worker connected, as it may to any server, and not another one."""
    place = lab.home(ALICE) / "attach.sock"
    server = lab.popen(ALICE, "/usr/bin/python3", "-c", LISTENS, place)
    assert server.stdout.readline() == "begun\n", server.communicate()
    own = lab.dir / "own"
    own.mkdir()

    def signal_with(fd, pid, uid=ALICE):
        return broken.ask(SIGNAL_PEER, signal_of(pid, signal.SIGTERM, uid), fds=[fd])[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as named, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        named.bind(str(own / "attach.sock"))
        named.connect(str(place))
        assert signal_with(named.fileno(), server.pid) == errno.EACCES
        assert signal_with(os.memfd_create("x"), server.pid) == errno.EACCES
        os.unlink(own / "attach.sock")
        listener.bind(str(own / "attach.sock"))
        os.chmod(own / "attach.sock", 0o666)
        listener.listen(9)
        client, other = lab.popen(ALICE, "/usr/bin/python3", "-c", CONNECTS, own / "attach.sock"), sleeper(ALICE)
        accepted, _ = listener.accept()
        with accepted:
            assert signal_with(accepted.fileno(), other.pid) == errno.EACCES
            assert signal_with(accepted.fileno(), client.pid, BOB) == errno.EPERM
            assert server.poll() is None and other.poll() is None
            assert signal_with(accepted.fileno(), client.pid) == 0
        assert client.wait(30) == -signal.SIGTERM


# A program that the loader gives the driver itself.
WITHOUT_FRONT = "sys.path.insert(0, LAB['tests']); from cuda import *; begin(); print('begun', flush=True); sys.stdin.read()"


def test_a_process_on_a_gpu_is_ended_in_its_own_users_name_alone(lab, broken):
    target = lab.python(ALICE, WITHOUT_FRONT, method=lab.popen)
    assert target.stdout.readline() == "begun\n", target.communicate()
    assert broken.signal(target.pid, signal.SIGKILL, ALICE) == errno.EACCES
    assert broken.signal(target.pid, signal.SIGKILL, BOB, operation=SIGNAL_ON_GPU) == errno.EPERM
    assert target.poll() is None
    assert broken.signal(target.pid, signal.SIGKILL, ALICE, operation=SIGNAL_ON_GPU) == 0
    assert target.wait(30) == -signal.SIGKILL
    roots = lab.python(ROOT, WITHOUT_FRONT, method=lab.popen)
    assert roots.stdout.readline() == "begun\n", roots.communicate()
    assert broken.signal(roots.pid, signal.SIGKILL, ROOT, operation=SIGNAL_ON_GPU) == errno.EACCES


@pytest.mark.parametrize("takes", [False, True], ids=["killable", "not-killable"])
@pytest.mark.attack("13", "a process that nobody can look at, as its file system never answers")
def test_a_process_that_is_slow_to_read_holds_its_owners_signals_alone(lab, broken, sleeper, takes):
    place = lab.dir / "silent"
    place.mkdir()
    files = SilentFileSystem(place, takes=takes)
    try:
        hidden = lab.popen(ROOT, "unshare", "--mount", "sh", "-c", f"mount --bind {place} /srv && exec \"$@\"", "sh",
                           *as_user(MALLORY), "sleep", "1000")
        wait_until(lambda: pathlib.Path(f"/proc/{hidden.pid}/comm").read_text() == "sleep\n")
        other = sleeper(ALICE, env=IN_SLICE)
        slow = broken.send(SIGNAL, signal_of(hidden.pid, signal.SIGKILL, MALLORY), owner=MALLORY)
        number = broken.send(SIGNAL, signal_of(other.pid, signal.SIGTERM, ALICE), owner=ALICE)
        assert next_answer(broken, slow, number) == (number, 0)
        assert next_answer(broken, slow, number) == (slow, errno.ETIMEDOUT)
        assert other.wait(30) == -signal.SIGTERM and hidden.poll() is None
        assert broken.signal(hidden.pid, signal.SIGKILL, MALLORY, MALLORY) == errno.ETIMEDOUT
        assert broken.signal(hidden.pid, signal.SIGKILL, MALLORY, MALLORY, SIGNAL_ON_GPU) == errno.EACCES
    finally:
        files.close()
    inside = sleeper(MALLORY, env=IN_SLICE)
    wait_until(lambda: broken.signal(inside.pid, signal.SIGTERM, MALLORY, MALLORY) != errno.ETIMEDOUT)
    assert inside.wait(30) == -signal.SIGTERM


def next_answer(broken, *numbers):
    while (answer := broken.receive())[0] not in numbers:
        pass  # one of the worker's own
    return answer[:2]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.attack("13", "the warden, while it signals in a user's name")
def test_nobody_can_signal_or_trace_the_process_that_signals(service, sleeper):  # noqa: F811
    """It is held at the call in which the kernel decides for that user: the second, as the first looks whether the process is there."""
    lab = service
    lab.warden.kill()
    lab.warden.wait()
    anew(lab, before=["strace", "-f", "-o", "/dev/null", "-e", "trace=pidfd_send_signal", "-e",
                      "inject=pidfd_send_signal:delay_enter=3000000:when=2"])
    worker_uid = os.stat(f"/proc/{lab.worker()}").st_uid
    warden = int(pathlib.Path(f"/proc/{lab.warden.pid}/task/{lab.warden.pid}/children").read_text().split()[0])
    broken, target = BrokenWorker(lab, warden), sleeper(ALICE, env=IN_SLICE)
    try:
        number = broken.send(SIGNAL, signal_of(target.pid, signal.SIGTERM, ALICE))
        children = pathlib.Path(f"/proc/{warden}/task/{warden}/children")
        users = wait_until(lambda: [(int(pid), users_of(pid)) for pid in children.read_text().split() if users_of(pid)[1] == ALICE])
        (sender, (real, _, saved)), = users
        assert real not in (ROOT, ALICE, worker_uid) and saved == ROOT
        for uid in (worker_uid, ALICE, BOB):
            for words in (["kill", "-KILL", str(sender)], ["cat", f"/proc/{sender}/mem"], ["ls", f"/proc/{sender}/fd"]):
                refused = subprocess.run([*as_user(uid), *words], capture_output=True, text=True)
                assert refused.returncode and ("not permitted" in refused.stderr or "ermission denied" in refused.stderr), refused.stderr
        assert next_answer(broken, number) == (number, 0)
        assert target.wait(30) == -signal.SIGTERM
    finally:
        broken.end()


def users_of(pid):
    """Its real, effective and saved user; (None, None, None): it is gone."""
    try:
        line, = [line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:")]
    except FileNotFoundError:
        return None, None, None
    return tuple(map(int, line.split()[1:4]))


@pytest.mark.parametrize("number", [0, signal.SIGSTOP, signal.SIGHUP, 64, -9, 1 << 20])
def test_no_signal_is_sent_that_does_not_end(broken, sleeper, number):
    target = sleeper(ALICE, env=IN_SLICE)
    for operation in SIGNALS:
        assert broken.signal(target.pid, number, ALICE, 0, operation) == errno.EINVAL
    assert broken.signal(target.pid, signal.SIGTERM, ALICE) == 0
    assert target.wait(30) == -signal.SIGTERM  # nothing came before


@pytest.mark.parametrize("pid", [0, 1, -1, "group", 1 << 30])
def test_neither_groups_nor_the_first_process_are_signalled(broken, sleeper, pid):
    target = sleeper(ALICE, env=IN_SLICE)
    pid = -os.getpgid(target.pid) if pid == "group" else pid
    for operation in SIGNALS:
        for uid in (ROOT, ALICE):
            assert broken.ask(operation, struct.pack("<QiiII", birth(target.pid), pid, signal.SIGKILL, uid, 0))[0] == errno.EINVAL
    assert target.poll() is None


def test_a_namespace_s_descriptor_is_of_no_use_without_rights(broken):
    inside = subprocess.Popen(["unshare", "--mount", "sleep", "1000"])
    try:
        wait_until(lambda: pathlib.Path(f"/proc/{inside.pid}/comm").read_text() == "sleep\n")
        process = struct.pack("<QiI", birth(inside.pid), inside.pid, 0)
        seen = os.stat(f"/proc/{inside.pid}/ns/mnt")
        assert broken.ask(NAMESPACE_LOOK, process) == (0, struct.pack("<QQ", seen.st_dev, seen.st_ino), [])
        error, _, (fd,) = broken.ask(NAMESPACE_HOLD, process)
        assert error == 0
        entered = subprocess.run([*as_user(broken_uid(broken)), "/usr/bin/nsenter", f"--mount=/proc/self/fd/{fd}", "true"],
                                 pass_fds=[fd], capture_output=True, text=True)
        assert entered.returncode != 0 and "not permitted" in entered.stderr
        os.close(fd)
        # The host's own is given to nobody.
        assert broken.ask(NAMESPACE_HOLD, struct.pack("<QiI", birth(os.getpid()), os.getpid(), 0)) == (errno.EINVAL, b"", [])
    finally:
        inside.kill()
        inside.wait()


def test_a_path_or_a_text_is_no_request(broken):
    """Whatever comes behind the head is of the operation's size, and numbers."""
    for operation in range(0, 64):
        assert broken.ask(operation, b"/etc/shadow\0")[0] in (errno.EINVAL, errno.EOPNOTSUPP)
    with open("/etc/passwd") as file:
        assert broken.ask(LIMIT_PROBE, fds=[file.fileno()])[0] == errno.EINVAL


@pytest.mark.parametrize("head", [{"magic": 7}, {"size": 8}, {"size": 1 << 31}, {"error": -5}])
def test_a_worker_that_sends_what_is_no_request_is_served_no_more(lab, broken, head):
    broken.send(LIMIT_PROBE, **head)
    while broken.receive():
        pass  # until the warden hangs up
    os.kill(broken.worker, signal.SIGCONT)
    wait_until(lambda: lab.worker() != broken.worker)
    assert "warden.ended" in lab.log()


def test_a_flood_of_requests_delays_no_other_owner(lab, broken, sleeper):
    """One owner may have so many requests waiting; the warden listens to no more while its answers are not read."""
    target = sleeper(ALICE, env=IN_SLICE)
    broken.socket.setblocking(False)
    sent, full, first = 0, False, broken.number
    while sent < 100000 and not full:
        try:
            broken.send(NAMESPACE_LOOK, struct.pack("<QiI", birth(os.getpid()), os.getpid(), 0), owner=BOB)
            sent += 1
        except BlockingIOError:
            full = True
    assert full  # it is bounded by the sockets' room
    broken.socket.settimeout(30)
    answers = {}
    while len(answers) < sent:
        number, error, _, _ = broken.receive()
        if number >= first:  # and none of the worker's own
            answers[number] = error
    assert set(answers.values()) <= {errno.EINVAL, errno.EAGAIN}
    assert broken.signal(target.pid, signal.SIGTERM, ALICE, owner=ALICE) == 0


# ---- MIG instances -----------------------------------------------------------------------------------------------------------

WHOLE = 8  # of an H100: memory slices


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGABRT])
def test_a_link_that_outlives_its_worker_is_nobodys(broken, ended):
    """The supervisor, which hosts the warden, goes on: it hangs up on whoever has the link, while another worker is served."""
    lab = broken.lab
    assert broken.signal(broken.warden, signal.SIGTERM, ALICE) == errno.EPERM
    os.kill(broken.worker, ended)
    with contextlib.suppress(ProcessLookupError):  # SIGKILL ends a stopped process, too
        os.kill(broken.worker, signal.SIGCONT)
    while broken.receive() is not None:
        pass  # answers to what the worker itself had asked
    with pytest.raises(BrokenPipeError):
        broken.send(LIMIT_PROBE)
    wait_until(lambda: lab.worker() != broken.worker)
    assert lab.daemon.poll() is None
    assert lab.carve(ALICE, "run", "--ephemeral", "--vram", "1", "--", "true").returncode == 0


def test_a_worker_that_keeps_its_warden_busy_is_followed_when_it_ends(broken):
    """Requests without end, whose answers nobody reads. The process that answers them is the one that starts the next worker."""
    lab = broken.lab
    broken.socket.setblocking(False)
    sent = 0
    while True:
        try:
            broken.send(LIMIT_PROBE, owner=sent % 8)
            sent += 1
        except BlockingIOError:
            if not select.select([], [broken.socket], [], 1)[1]:
                break
    assert sent > 32
    os.kill(broken.worker, signal.SIGKILL)
    wait_until(lambda: lab.worker() != broken.worker)
    assert lab.carve(ALICE, "run", "--ephemeral", "--vram", "1", "--", "true").returncode == 0


@pytest.fixture
def mig(make_lab):
    """A GPU with MIG on demand, on which an administrator made an instance by hand at each end; and carve one in between."""
    lab = make_lab("h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    small, = [k for k in by_hand(lab.host, 0, "kinds") if k["profile"] == "1g.10gb"]
    by_hand(lab.host, 0, "make", small["id"], 0, small["size"])
    by_hand(lab.host, 0, "make", small["id"], 6, small["size"])
    wait_until(lambda: [i["state"] for i in lab.carve_json(ROOT, "mig", "list")] == ["foreign"] * 2)
    assert lab.carve(ALICE, "run", "--ephemeral", "--mig-profile", "1g.10gb", "--", "true").returncode == 0
    own, = [i for i in lab.carve_json(ROOT, "mig", "list") if i["state"] != "foreign"]
    warden = lab.supervisor()
    worker = BrokenWorker(lab, warden)
    worker.warden, worker.lab, worker.profile, worker.own = warden, lab, small["id"], own["start"]
    yield worker
    worker.end()


def places(broken):
    return sorted(i["start"] for i in by_hand(broken.lab.host, 0, "list"))


def remove(broken, start, size=1, profile=None):
    return broken.mig(MIG_REMOVE, 0, broken.profile if profile is None else profile, start, size)[0]


def test_no_instance_is_removed_that_the_warden_did_not_make(mig):
    was = places(mig)
    assert len(was) == 3
    for start in range(8):
        for size in (1, 2, 4, WHOLE - start):
            if (start, size) != (mig.own, 1):
                assert remove(mig, start, size) in (errno.EPERM, errno.EINVAL)
    for profile in range(32):
        if profile != mig.profile:
            assert remove(mig, mig.own, 1, profile) == errno.EPERM
    assert places(mig) == was
    # It may remove the warden's own: nobody uses that.
    assert remove(mig, mig.own) == 0
    assert places(mig) == [0, 6]


def test_an_instance_that_was_there_first_does_not_become_the_wardens_own(mig):
    """By making one at its place, or by having made one there before it."""
    assert mig.mig(MIG_MAKE, 0, mig.profile, 0, 1)[0] == errno.ENOSPC
    assert remove(mig, 0) == errno.EPERM
    # The warden's own is taken away by hand, and one of the administrator's made at its place, as a list shows in between.
    at, = [i for i in by_hand(mig.lab.host, 0, "list") if i["start"] == mig.own]
    by_hand(mig.lab.host, 0, "destroy", at["id"])
    assert mig.ask(MIG_LIST, struct.pack("<34I", 0, 1, mig.profile, *[0] * 31))[0] == 0
    by_hand(mig.lab.host, 0, "make", mig.profile, mig.own, 1)
    assert remove(mig, mig.own) == errno.EPERM
    assert mig.own in places(mig)


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_the_record_of_made_instances_outlives_the_warden(mig, how):
    """No other user can read or write it."""
    lab = mig.lab
    for name in ("instances", "instances.lock"):
        st = (lab.runtime / name).stat()
        assert (st.st_uid, st.st_mode & 0o777) == (0, 0o600)
    os.kill(mig.worker, signal.SIGCONT)
    if how == "killed":
        lab.kill_supervisor()
        lab.start()
    else:
        lab.terminate_daemon()
        wait_until(lab.can_lock)
        lab.start()
    warden = lab.supervisor()
    again = BrokenWorker(lab, warden)
    again.lab, again.profile, again.own = lab, mig.profile, mig.own
    try:
        assert remove(again, 0) == errno.EPERM
        assert remove(again, 6) == errno.EPERM
        assert remove(again, mig.own) == 0
        assert places(again) == [0, 6]
    finally:
        again.end()


def test_places_beyond_a_gpu_are_no_request(mig):
    for words in ((0, mig.profile, 31, 2), (0, mig.profile, 0, 0), (0, mig.profile, 255, 255), (256, mig.profile, 1, 1)):
        for operation in (MIG_MAKE, MIG_REMOVE):
            assert mig.mig(operation, *words)[0] == errno.EINVAL
    for operation in (MIG_KINDS, MIG_MODE):
        assert mig.mig(operation, 1 << 20)[0] == errno.EINVAL
        assert mig.mig(operation, 0, mig.profile, 1, 1)[0] == errno.EINVAL
    assert mig.ask(MIG_LIST, struct.pack("<34I", 0, 33, *[0] * 32))[0] == errno.EINVAL
    assert mig.mig(MIG_KINDS, 7)[0] not in (0, errno.EINVAL)  # there is one GPU
