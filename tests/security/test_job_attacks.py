"""Attacks on queues of a system daemon: what a user's job, its files and its requests may do to others (docs/dev/security.md, "Jobs")."""
import datetime
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import rest_long, wait_until

from .latency import times
from .test_budgets import COMMON, settings
from .lab import ALICE, BOB, BUILD, CARVE, MALLORY, ROOT
from .test_jobs import Jobs
from .test_memory import HOLDER


@pytest.fixture
def jobs(lab):
    return Jobs(lab)


# Enqueues jobs, and stops all of its user's processes, but itself, again and again while they start.
STOPS = r"""
import signal, socket, time
s = socket.socket(socket.AF_UNIX)
s.connect(LAB["http"])
body = json.dumps({"queue": "sixth", "argv": ["true"], "cwd": "/", "array": "0-99"})
s.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
print("begun", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        pass
try:
    os.kill(-1, signal.SIGKILL)
except ProcessLookupError:
    pass
"""


@pytest.mark.attack("7", "a user who stops the processes of own jobs while they start")
def test_nobody_waits_for_a_job_that_its_user_stops(jobs):
    lab = jobs.lab
    mallory = lab.loner()
    attack = lab.python(mallory, STOPS, 7, method=lab.popen)
    assert attack.stdout.readline() == "begun\n"
    slowest = 0
    while attack.poll() is None and lab.serves_still():
        began = time.monotonic()
        assert lab.carve(ALICE, "gpu", "list").returncode == 0
        slowest = max(slowest, time.monotonic() - began)
    assert lab.serves_still(), lab.log()[-2000:]
    assert "job.started" in lab.log()
    # The daemon waits 5 s for its launcher: nothing that a user does takes that long.
    assert slowest < 3, slowest
    assert lab.carve(mallory, "job", "cancel", "1").returncode == 0
    id = jobs.enqueue(ALICE, "true")
    wait_until(lambda: jobs.show(ALICE, id)["state"] == "done", step=0.05)


# What a job finds in its shim, which is a process of its own user's: descriptors, and whether its text can be changed.
SHIM = r"""
shim = os.getppid()
found = {fd: os.readlink(f"/proc/{shim}/fd/{fd}") for fd in os.listdir(f"/proc/{shim}/fd")}
text, = (fd for fd, to in found.items() if "memfd:carve-job" in to)
def changed(change):
    try:
        with open(f"/proc/{shim}/fd/{text}", "r+b", buffering=0) as file:
            change(file)
        return True
    except PermissionError:
        return False
status = dict(line.split(":", 1) for line in open(f"/proc/{shim}/status"))
print(json.dumps({"to": sorted(found.values()), "changed": [changed(lambda f: f.write(b"x")), changed(lambda f: f.truncate(1))],
                  "rights": [status[name].split() for name in ("Uid", "Gid", "CapPrm", "CapInh", "CapAmb")]}))
"""


@pytest.mark.attack("14", "a job looks for descriptors and rights in its shim, and changes what that was told")
def test_a_shim_has_nothing_but_its_job(jobs):
    found = json.loads(jobs.output(MALLORY, "/usr/bin/python3", "-c", "import json, os\n" + SHIM))
    own = str(jobs.lab.runtime) + f"/state-jobs/{MALLORY}"
    others = [to for to in found["to"] if to != "/dev/null" and not to.startswith((own, "/memfd:carve-job", "pipe:", "anon_inode:[signalfd]"))]
    assert not others and found["changed"] == [False, False], found
    assert found["rights"] == [[str(MALLORY)] * 4] * 2 + [["0" * 16]] * 3, found


@pytest.mark.attack("14", "a user's job starts a daemon in the system daemon's place")
def test_a_job_that_outlives_the_system_daemon_starts_none_in_its_place(lab):
    """Neither by its shim, which sees the daemon end, nor by a command that is told the system daemon's directory."""
    jobs = Jobs(lab)
    home = lab.home(MALLORY)
    ask = f"timeout 20 {BUILD}/carve gpu list; echo $?"
    job = jobs.enqueue(MALLORY, "sh", "-c", f"touch begun; while [ ! -e gate ]; do sleep 0.02; done; ({ask}; unset CARVE_HOST; export CARVE_RUNTIME_DIR={lab.runtime} XDG_RUNTIME_DIR={lab.runtime}; {ask}) > new 2>&1; mv new asked")
    wait_until((home / "begun").exists)
    lab.kill_daemon()
    wait_until(lambda: lab.can_lock() and not processes_of(lab, ROOT))
    (home / "gate").touch()
    wait_until((home / "asked").exists, timeout=60)
    answers = [line for line in (home / "asked").read_text().splitlines() if line.isdigit()]
    assert len(answers) == 2 and "0" not in answers, (home / "asked").read_text()
    assert lab.can_lock() and not processes_of(lab, MALLORY) and not processes_of(lab, ROOT)
    lab.start()
    assert jobs.ended(MALLORY, job)["state"] == "done"


def processes_of(lab, uid):
    """Those that serve in the lab's directory, or would."""
    found = []
    for pid in lab.daemon_pids():
        try:
            if pathlib.Path(f"/proc/{pid}").stat().st_uid == uid:
                found.append(pid)
        except FileNotFoundError:
            pass
    return found


# Puts something in the place of the record of its own job that runs, and kills the job's shim.
FORGES = r"""
import signal, stat
record, how = sys.argv[1:3]
start = json.loads([line for line in open(record) if line.strip()][0])
shim = int(open(f"/proc/{start['pid']}/stat").read().rsplit(")", 1)[1].split()[1])
os.unlink(record)
def lines(*objects):
    open(record, "w").write("".join("\n" + json.dumps(o) + "\n" for o in objects))
end = {"kind": "exit", "code": 0, "started": 1, "ended": 2, "rss": 3, "cpu_ns": 4, "why": ""}
if how == "numbers":
    lines(start, dict(end, kind="signal", code=2**31 - 1, ended=2**63 - 1, rss=-1))
elif how == "negative":
    lines(start, dict(end, kind="signal", code=-2**63, ended=-2**63))
elif how == "text":
    lines(start, dict(end, code=1, error='x"\n1999-01-01 info job.forged \x1b[2J' + "y" * 1000))
elif how in ("another", "own"):  # a process of root's as its command, or one of the user's from outside the job
    lines(dict(start, pid=int(sys.argv[3]), birth=int(sys.argv[4])))
elif how == "fifo":
    os.mkfifo(record)
elif how == "directory":
    os.mkdir(record)
elif how == "link":
    os.symlink("/etc/shadow", record)
elif how == "socket":
    import socket
    socket.socket(socket.AF_UNIX).bind(record)
elif how == "huge":
    open(record, "w").truncate(1 << 40)
elif how == "lease":
    import fcntl
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # which says that somebody wants to open it
    lines(start)
    fd = os.open(record, os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
elif how == "closed":
    os.chmod(os.path.dirname(record), 0)
os.kill(shim, signal.SIGKILL)
os.kill(start["pid"], signal.SIGKILL)
print("done", flush=True)
if how == "lease":
    signal.pause()
"""
HOWS = ("numbers", "negative", "text", "another", "own", "fifo", "directory", "link", "socket", "huge", "lease", "closed")


def birth_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def shim_of(command):
    return int(pathlib.Path(f"/proc/{command}/stat").read_text().rsplit(")", 1)[1].split()[1])


def began(jobs, uid, id):
    """The record of a job that runs, with its start."""
    record = pathlib.Path(jobs.show(uid, id)["log"]).with_suffix(".record")
    wait_until(lambda: record.exists() and '"start"' in record.read_text())
    return record


@pytest.mark.attack("16", "forged records of a job: numbers, texts, other files, links, leases")
def test_a_forged_record_costs_its_user_alone(jobs):
    lab = jobs.lab
    victim = lab.popen(ROOT, "sleep", "1000")
    mine = lab.popen(MALLORY, "sleep", "1000")
    for how in HOWS:
        named = mine if how == "own" else victim
        id = jobs.enqueue(MALLORY, "sleep", "1000", options=("--grace", "0"))
        jobs.running(MALLORY, id)
        record = began(jobs, MALLORY, id)
        forger = lab.python(MALLORY, FORGES, record, how, named.pid, birth_of(named.pid), method=lab.popen)
        assert forger.stdout.readline() == "done\n", forger.communicate()[1]
        if how == "own":  # it is waited for no longer than its shim would be
            wait_until(lambda: "job.orphaned" in lab.log())
            assert lab.carve(MALLORY, "job", "cancel", id).returncode == 0
        job = jobs.ended(MALLORY, id)
        assert job["state"] in ("failed", "lost", "cancelled"), (how, job)
        assert how not in ("numbers", "negative") or 128 <= job["exit_code"] <= 192 and job["rss_bytes"] >= 0, job
        started, ended = (datetime.datetime.fromisoformat(job[what]) for what in ("started", "ended"))
        assert started <= ended <= datetime.datetime.now(datetime.timezone.utc), (how, job)
        record.parent.chmod(0o770)
        forger.kill()
        assert victim.poll() is None
    assert lab.log().count("job.orphaned") == 1
    assert "job.forged" in lab.log() and "\n1999" not in lab.log() and "\x1b" not in lab.log()
    assert json.loads(lab.carve(ALICE, "gpu", "list", "--json").stdout)


# Ends its own job that runs, and says that nothing of it ran; or takes away what says that it did.
UNSTARTS = r"""
import signal
record, how = sys.argv[1:3]
start = json.loads([line for line in open(record) if line.strip()][0])
shim = int(open(f"/proc/{start['pid']}/stat").read().rsplit(")", 1)[1].split()[1])
os.unlink(record)
if how != "removed":
    open(record, "w").write("\n" + json.dumps({"kind": how}) + "\n" if how != "empty" else "")
os.kill(shim, signal.SIGKILL)
os.kill(start["pid"], signal.SIGKILL)
"""


@pytest.mark.attack("11", "a job that ran, whose record says that nothing of it did: its user's use is to count all the same")
@pytest.mark.parametrize("how", rest_long(["unstarted", "empty", "removed"]))
def test_a_job_that_denies_its_start_counts_as_use(jobs, how):
    lab = jobs.lab
    denied = jobs.enqueue(MALLORY, "sleep", "1000")
    jobs.running(MALLORY, denied)
    # Alice has something meanwhile, so for less time than Mallory.
    assert jobs.ended(ALICE, jobs.enqueue(ALICE, "true"))["state"] == "done"
    jobs.running(BOB, jobs.enqueue(BOB, "sleep", "1000"))
    record = began(jobs, MALLORY, denied)
    # Both wait for the same room. Mallory's is older, and of another kind than the one that runs.
    later = jobs.enqueue(MALLORY, "true", options=("--vram", "30"))
    alices = jobs.enqueue(ALICE, "true", options=("--vram", "30"))
    done = lab.python(MALLORY, UNSTARTS, record, how)
    assert done.returncode == 0, done.stderr
    first, second = jobs.ended(ALICE, alices), jobs.ended(MALLORY, later)
    assert (first["state"], second["state"]) == ("done", "done")
    assert first["started"] < second["started"]
    # It goes back into its queue, and was let run already.
    last = jobs.ended(MALLORY, denied)
    assert last["state"] == "failed" and "run before" in last["reason"], last


# Stays where it was started, whoever asks it to end. With memory of the GPU, where it is told to take some.
STAYS = HOLDER.replace("begin()", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif sys.argv[1] != 'none': begin()")


@pytest.mark.attack("11", "a job's slice that its user keeps from outside the job, beyond its end")
@pytest.mark.parametrize("kind", ["none", "linear"])
def test_a_slice_ends_with_its_job(jobs, kind):
    """Others were promised its room for as long as the job runs."""
    lab = jobs.lab
    jobs.running(BOB, jobs.enqueue(BOB, "sleep", "1000"))
    id = jobs.enqueue(MALLORY, "sleep", "1000")
    jobs.running(MALLORY, id)
    outside = lab.popen(MALLORY, CARVE, "run", "--session", jobs.show(MALLORY, id)["session"], "--", "/usr/bin/python3", "-c", STAYS,
                        kind, 1 << 20)
    assert outside.stdout.readline() == "holds\n", outside.communicate()
    waits = jobs.enqueue(ALICE, "true")
    assert lab.carve(MALLORY, "job", "cancel", id).returncode == 0
    assert jobs.ended(MALLORY, id)["state"] == "cancelled"
    assert jobs.ended(ALICE, waits)["state"] == "done"


@pytest.mark.attack("11", "a job beyond its time limit, whose shim its user stopped or killed")
@pytest.mark.parametrize("how", rest_long([signal.SIGSTOP, signal.SIGKILL]))
def test_a_time_limit_holds_without_the_shim(jobs, how):
    # The shim is the parent of its command.
    id = jobs.enqueue(MALLORY, "sh", "-c", f"kill -{how:d} $PPID; exec sleep 1000", options=("--time", "1s", "--grace", "0"))
    assert jobs.ended(MALLORY, id)["state"] == "timeout"


@pytest.mark.attack("8", "a file system of a user's own where the daemon looks for records")
def test_no_mounted_file_system_is_entered(jobs):
    """As fusermount does it for a user on a directory of his: a server of his would answer when it likes."""
    lab = jobs.lab
    id = jobs.enqueue(MALLORY, "sleep", "1000")
    jobs.running(MALLORY, id)
    record = began(jobs, MALLORY, id)
    theirs = lab.dir / "mounted"
    theirs.mkdir(mode=0o755)
    forged = theirs / record.name
    start = [line for line in record.read_text().split("\n") if line][0]
    forged.write_text(start + "\n" + json.dumps({"kind": "exit", "code": 0, "ended": 1}) + "\n")
    os.chown(forged, MALLORY, MALLORY)
    shim = shim_of(json.loads(start)["pid"])
    if subprocess.run(["mount", "--bind", theirs, record.parent], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        for pid in (shim, json.loads(start)["pid"]):
            os.kill(pid, signal.SIGKILL)
        assert jobs.ended(MALLORY, id)["state"] == "lost"
        assert forged.exists()
        # The launcher does not enter it either: the job waits.
        id = jobs.enqueue(MALLORY, "true")
        wait_until(lambda: f"job.not_started id={id}" in lab.log())
    finally:
        subprocess.run(["umount", record.parent], check=True)
    assert jobs.ended(MALLORY, id)["state"] == "done"


@pytest.mark.attack("8", "root reads the log of a user's job that leads to a pipe or a device")
def test_roots_command_opens_plain_files_alone(jobs):
    lab = jobs.lab
    for kind in ("fifo", "device"):
        id = jobs.enqueue(MALLORY, "true")
        log = pathlib.Path(jobs.ended(MALLORY, id)["log"])
        lab.run(MALLORY, "rm", log)
        lab.run(MALLORY, *(("mkfifo", log) if kind == "fifo" else ("ln", "-s", "/dev/zero", log)))
        done = lab.carve(ROOT, "job", "logs", id, timeout=20)
        assert done.returncode == 1 and "prints to no plain file" in done.stderr, done.stderr


@pytest.mark.parametrize("of", [ROOT, ALICE])
@pytest.mark.attack("8", "root reads the log of a user's job that leads to a file of root's, or of another user's")
def test_roots_command_shows_files_of_the_jobs_user_alone(jobs, of):
    lab = jobs.lab
    secret = lab.dir / "secret"
    secret.write_text("not Mallory's")
    os.chown(secret, of, of)
    secret.chmod(0o600)
    id = jobs.enqueue(MALLORY, "true")
    log = pathlib.Path(jobs.ended(MALLORY, id)["log"])
    assert lab.run(MALLORY, "ln", "-sf", secret, log).returncode == 0
    for reader in (ROOT, MALLORY):
        done = lab.carve(reader, "job", "logs", id, timeout=20)
        assert done.returncode == 1 and "not Mallory's" not in done.stdout, done
    # A file that the job's user names as output is shown.
    own = jobs.enqueue(MALLORY, "echo", "mine", options=["--output", lab.home(MALLORY) / "out"])
    assert jobs.ended(MALLORY, own)["state"] == "done"
    assert lab.carve(ROOT, "job", "logs", own).stdout == "mine\n"


# Holds a file of the user's by a lease, which an open by anybody waits for: up to lease-break-time, 45 s.
LEASES = """
import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
signal.pause()
"""


@pytest.mark.attack("8", "root reads the log of a user's job that the user has a lease on")
def test_roots_command_waits_for_no_lease(jobs):
    lab = jobs.lab
    id = jobs.enqueue(MALLORY, "true")
    log = pathlib.Path(jobs.ended(MALLORY, id)["log"])
    holder = lab.python(MALLORY, LEASES, log, method=lab.popen)
    assert holder.stdout.readline() == "leased\n", holder.communicate()[1]
    done = lab.carve(ROOT, "job", "logs", id, timeout=20)
    assert done.returncode == 1 and "a program has a lease on the output" in done.stderr, done


def on_a_terminal(lab, uid, *argv):
    """What a terminal gets of a command, as it takes the bytes."""
    ours, theirs = os.openpty()
    done = lab.popen(uid, CARVE, *argv, stdout=theirs)
    os.close(theirs)
    got = b""
    try:
        while part := os.read(ours, 4096):
            got += part
    except OSError:
        pass  # EIO: the command has ended
    os.close(ours)
    assert done.wait(20) == 0, done.stderr.read()
    return got.replace(b"\r\n", b"\n")


@pytest.mark.attack("5", "a user's job prints control characters, and root reads its log on a terminal")
def test_text_of_a_users_job_moves_nobody_elses_terminal(jobs):
    lab = jobs.lab
    # A title, cleared lines, a C1 control as UTF-8 and as a byte, text from right to left, a cut character; and what is harmless.
    text = b"\x1b]0;x\x07\x1b[2K\rroot# \xc2\x9b2J \x9b2J \xe2\x80\xae \x00 a\tb \xc3\xa9\n" + b"\xe2\x82\xac" * 40000 + b"\n\xe2\x82"
    source = lab.home(MALLORY) / "text"
    source.write_bytes(text)
    source.chmod(0o644)
    id = jobs.enqueue(MALLORY, "cat", source)
    assert jobs.ended(MALLORY, id)["state"] == "done"
    seen = on_a_terminal(lab, ROOT, "job", "logs", id)
    assert seen == (rb"\x1b]0;x\x07\x1b[2K\x0droot# \xc2\x9b2J \x9b2J \xe2\x80\xae \x00 " + b"a\tb \xc3\xa9\n" + b"\xe2\x82\xac" * 40000 +
                    b"\n" + rb"\xe2\x82")
    # Her own terminal, and files and pipes of root's, get it as it is.
    assert on_a_terminal(lab, MALLORY, "job", "logs", id) == text
    assert subprocess.check_output([CARVE, "job", "logs", id], env=lab.env(ROOT)) == text


# Sends requests over one connection each; prints how they were answered.
MANY_KINDS = r"""
import http.client, socket
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(LAB["http"])
c = Connection("x")
for i in range(int(sys.argv[1])):
    c.request("POST", "/v1/jobs", json.dumps({"queue": "half", "argv": ["sleep", "1000"], "cwd": "/", "vram_bytes": (30 << 30) + (i << 20)}))
    answer = c.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
print("done", flush=True)
"""


@pytest.mark.long
@pytest.mark.attack("11", "more kinds of waiting jobs than one decision looks at")
def test_many_kinds_of_jobs_keep_nobody_out(jobs):
    lab = jobs.lab
    blocks = jobs.enqueue(MALLORY, "sleep", "1000"), jobs.enqueue(MALLORY, "sleep", "1000")
    for id in blocks:
        jobs.running(MALLORY, id)
    waiting = jobs.enqueue(ALICE, "true", queue="half")
    assert "done" in lab.python(MALLORY, MANY_KINDS, 1100).stdout
    # 9.5 GiB are left beside a half and the smallest of Mallory's kinds.
    small = jobs.enqueue(ALICE, "true", options=("--priority", "-1", "--vram", "9"), queue="sixth")
    assert lab.carve(MALLORY, "job", "cancel", blocks[0]).returncode == 0
    assert jobs.ended(ALICE, waiting)["state"] == "done"
    assert jobs.ended(ALICE, small)["state"] == "done"


ASKS = r"""
import http.client, socket
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(LAB["http"])
def call(method, path, body=None):
    c = Connection("x")
    c.request(method, path, body and json.dumps(body))
    answer = c.getresponse()
    return answer.status, json.loads(answer.read())
"""


@pytest.mark.long
@pytest.mark.attack("8", "lists of 100,000 jobs, 1,000 queues that nobody serves, jobs that come after long arrays")
def test_no_list_of_jobs_is_made_at_once(jobs):
    lab = jobs.lab
    done = lab.python(MALLORY, ASKS + r"""
status, array = call("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "array": "0-99999"})
assert status == 201, array
for i in range(1000):
    assert call("POST", "/v1/jobs", {"queue": f"none{i}", "argv": ["true"], "cwd": "/"})[0] == 201
sizes = []
for path in ("/v1/jobs", "/v1/jobs?ended=100000", "/v1/queues"):
    sizes.append(len(call("GET", path)[1]))
for path in ("/v1/jobs?part=", "/v1/jobs?ended=100000&before=", f"/v1/jobs/{array['id']}?part=", "/v1/jobs?queue=none999&part="):
    sizes.append(len(call("GET", path)[1]["jobs"]))
assert call("GET", f"/v1/jobs/{array['id']}")[0] == 400
for part in ("x", "1.2", "1.2.3x", "-5", "99999999999999999999.1.1"):
    assert call("GET", "/v1/jobs?part=" + part)[0] in (200, 400)
    assert call("GET", "/v1/jobs?before=" + part)[0] in (200, 400)
    assert call("GET", f"/v1/jobs/{array['id']}?part=" + part)[0] in (200, 400)
after = [f"any:{array['id']}"] * 16
assert call("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "after": after})[0] == 201
print(json.dumps(sizes))
""")
    assert max(json.loads(done.stdout)) <= 256, (done.stdout, done.stderr)
    # Of another's jobs nothing is shown, by any part.
    done = lab.python(BOB, ASKS + r"""
print(json.dumps([call("GET", "/v1/jobs?part=")[1], call("GET", "/v1/jobs?part=" + sys.argv[1] + ".1.1")[1], call("GET", "/v1/jobs/1?part=")[0]]))
""", MALLORY)
    nothing = {"jobs": [], "next": None}
    assert json.loads(done.stdout) == [nothing, nothing, 403], done.stderr


@pytest.mark.attack("9", "more jobs than the daemon has memory for: long arrays, long requests, rewritten arrays")
def test_one_users_jobs_leave_memory_for_others(make_lab, tmp_path):
    lab = make_lab(args=settings(tmp_path, living_jobs=20000))
    jobs = Jobs(lab)
    done = lab.python(MALLORY, ASKS + r"""
def enqueue(**more):
    status, answer = call("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "hold": True, **more})
    return answer["id"] if status == 201 else answer["error"]["message"]
ids, long = [], ["x" * 100000]
while (id := enqueue(argv=["true"] + long)).isdigit():
    ids.append(id)
    assert len(ids) < 60
print(json.dumps([id, len(ids)]))
small = enqueue(array="0-9999")
print(json.dumps(small))
for id in ids: call("DELETE", f"/v1/jobs/{id}")
print(json.dumps([enqueue(array="0-9").isdigit(), enqueue().isdigit()]))
""")
    message = json.loads(done.stdout.splitlines()[0])
    assert "too many jobs" in message[0] and message[1] >= 30, (done.stdout, done.stderr)
    assert "too many jobs" in json.loads(done.stdout.splitlines()[1])
    assert json.loads(done.stdout.splitlines()[2]) == [True, True]
    # Alice has as much again, and the daemon knows who has what after a restart.
    lab.restart()
    assert jobs.ended(ALICE, jobs.enqueue(ALICE, "true"))["state"] == "done"


# Under a limit with which no job starts, or none gets far, so many of them.
LIMITED = r"""
import resource, socket
name, most, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(getattr(resource, name), (most, most))
for i in range(count):
    s = socket.socket(socket.AF_UNIX)
    s.connect(LAB["http"])
    body = json.dumps({"queue": ("half", "sixth")[i % 2], "argv": ["true", str(i)], "cwd": "/"})
    s.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    assert b" 201 " in s.recv(65536)
    s.close()
"""


@pytest.mark.parametrize("name, most", rest_long([("RLIMIT_NPROC", 0), ("RLIMIT_NOFILE", 6), ("RLIMIT_STACK", 0)]))
@pytest.mark.attack("9", "many jobs that cannot start, by limits of resources")
def test_jobs_that_cannot_start_hold_up_nobody(jobs, name, most):
    lab = jobs.lab
    made = lab.python(MALLORY, LIMITED, name, most, 100)
    assert made.returncode == 0, made.stderr
    wait_until(lambda: "job.not_started" in lab.log() or "job.again" in lab.log())
    for queue in ("half", "sixth"):
        assert jobs.output(BOB, "id", "-u", queue=queue).strip() == str(BOB)
    # As many starts as a job's waiting time between two allows, which doubles.
    tries = lab.log().count("job.not_started") + lab.log().count("job.again")
    assert tries < 600 and lab.serves_still()


# As many changes as are kept, and all of them once more, in parts.
CHANGES = COMMON + """
s = http()
call(s, 'POST', '/v1/jobs', json.dumps({'queue': 'half', 'argv': ['true'], 'cwd': '/', 'array': '0-2199', 'hold': True}).encode())
id = json.loads(answer(s)[1])['id']
call(s, 'DELETE', f'/v1/jobs/{id}'); answer(s)
numbers, next = [], 0
while True:
    call(s, 'GET', f'/v1/jobs/events?from={next}')
    part = json.loads(answer(s)[1])
    if not part['events']: break
    assert part['next'] >= part['events'][-1]['number'] > next and len(part['events']) <= 256
    numbers += [e['number'] for e in part['events']]
    next = part['next']
assert numbers == sorted(set(numbers)) and len(numbers) > 2000, len(numbers)
print('whole', flush=True)
"""


@pytest.mark.attack("8", "a long list of jobs' changes, which is made at once")
def test_changes_of_jobs_come_in_parts(jobs):
    done = jobs.lab.python(MALLORY, CHANGES)
    assert done.stdout == "whole\n", done.stderr


# Many calls that wait for one array, whose rows are all in each answer. The array ends when it is told to.
WAITS = COMMON + """
first = http()
call(first, 'POST', '/v1/jobs', json.dumps({'queue': 'half', 'argv': ['true'], 'cwd': '/', 'array': '0-249', 'hold': True}).encode())
id = json.loads(answer(first)[1])['id']
def connected():
    while True:
        try:
            return http()
        except BlockingIOError:  # as many wait to be accepted as may
            time.sleep(0.01)
kept = [connected() for i in range(int(sys.argv[1]))]
for s in kept: call(s, 'GET', f'/v1/jobs/{id}?wait=1')
print('waiting', flush=True)
sys.stdin.readline()
call(first, 'DELETE', f'/v1/jobs/{id}'); answer(first)
codes = sorted({answer(s)[0].split()[1].decode() for s in kept})
print(*codes, flush=True)
"""


@pytest.mark.long
@pytest.mark.attack("8", "many calls that wait for the same jobs, which end at one moment")
def test_calls_that_wait_for_jobs_are_answered_in_turns(jobs):
    lab = jobs.lab
    attack = lab.python(MALLORY, WAITS, 600, method=lab.popen)
    assert attack.stdout.readline() == "waiting\n", attack.communicate()
    alone = times(lab, count=100)
    attack.stdin.write("\n")
    attack.stdin.flush()
    under = times(lab, count=100)
    codes = attack.stdout.readline().split()
    # Those that were not read by then were refused; none was forgotten.
    assert codes and set(codes) <= {"200", "429"}, attack.communicate()
    assert under.values[-1] < alone.values[-1] + 3000, (str(alone), str(under))
