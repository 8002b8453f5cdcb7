"""Attacks on queues by what they go through: changes of others' jobs, long work, many kinds, subordinate users, mounted directories."""
import json
import os
import pathlib
import shutil
import sqlite3
import tempfile
import time

import pytest

from conftest import wait_until
from disk import disk_of

from .lab import ALICE, MALLORY, ROOT
from .silent import SilentFileSystem
from .test_budgets import ENDED, settings
from .test_job_attacks import ASKS, began
from .test_jobs import Jobs
from .test_namespaces import ask, lab_with_ranges, ranges_lab  # noqa: F401
from .test_setuid import place, set_user_id  # noqa: F401


@pytest.fixture
def jobs(lab):
    return Jobs(lab)


def enqueue(jobs, uid, body, status=201):
    """By the API, as the command has no words for it. The answer."""
    done = jobs.lab.python(uid, ASKS + "print(json.dumps(call('POST', '/v1/jobs', json.loads(sys.argv[1]))))",
                           json.dumps({"queue": "half", "argv": ["true"], "cwd": "/", **body}))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said[0] == status, said
    return said[1]


# ---- a file system of a user's ---------------------------------------------------------------

@pytest.mark.attack("8", "a file system of a user's own that answers nothing, on the directory of own jobs")
def test_a_silent_file_system_delays_nobody(jobs):
    lab = jobs.lab
    runs = jobs.enqueue(MALLORY, "sleep", "1000")
    jobs.running(MALLORY, runs)
    record = began(jobs, MALLORY, runs)
    try:
        silent = SilentFileSystem(record.parent)
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")
    try:
        waits = jobs.enqueue(MALLORY, "true")
        wait_until(lambda: f"job.not_started id={waits}" in lab.log())
        assert "cross-device" in jobs.show(MALLORY, waits)["reason"]
        # The daemon has looked for the directories of jobs that run, as it does each second.
        time.sleep(2)
        assert jobs.ended(ALICE, jobs.enqueue(ALICE, "true", queue="sixth"))["state"] == "done"
    finally:
        silent.close()
    assert jobs.ended(MALLORY, waits)["state"] == "done"


@pytest.mark.attack("8", "a job's output on a file system that takes requests and answers none: its process cannot be killed")
@pytest.mark.long
def test_a_job_on_a_silent_file_system_ends_by_its_time_limit(jobs):
    lab = jobs.lab
    place = lab.home(MALLORY) / "fs"
    place.mkdir()
    try:
        silent = SilentFileSystem(place, takes=True)
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")
    try:
        id = enqueue(jobs, MALLORY, {"argv": ["sleep", "1000"], "out": str(place / "out"), "time": 1, "grace": 0})["id"]
        assert silent.taken.wait(60)
        assert jobs.ended(ALICE, jobs.enqueue(ALICE, "true", queue="sixth"))["state"] == "done"
        assert jobs.ended(MALLORY, str(id))["state"] == "timeout"
        # Its slice is others' again, though the process is still there.
        assert not lab.carve_json(ROOT, "session", "list")
        assert jobs.ended(ALICE, jobs.enqueue(ALICE, "true"))["state"] == "done"
    finally:
        silent.close()


# ---- others' jobs ----------------------------------------------------------------------------

@pytest.mark.attack("11", "changes of another user's array, which stops while it is changed")
def test_nobody_stops_anothers_array_by_changing_it(jobs):
    lab = jobs.lab
    array = enqueue(jobs, ALICE, {"queue": "none", "array": "0-19999"})["id"]
    done = lab.python(MALLORY, ASKS + r"""
id = sys.argv[1]
answers = [call("DELETE", f"/v1/jobs/{id}"), call("DELETE", f"/v1/jobs/{id}_7"),
           call("PATCH", f"/v1/jobs/{id}", {"hold": True}), call("PATCH", f"/v1/jobs/{id}", {"queue": "half"})]
print(json.dumps([[status, said["error"]["message"]] for status, said in answers]))
""", array)
    assert done.returncode == 0, done.stderr
    assert all(status == 403 and "another user's" in said for status, said in json.loads(done.stdout)), done.stdout
    assert jobs.show(ALICE, f"{array}_7")["state"] == "queued"


@pytest.mark.attack("11", "a job that comes after another user's, and so tells when that ends, and how")
def test_no_job_comes_after_another_users(jobs):
    lab = jobs.lab
    alices = jobs.enqueue(ALICE, "true", options=("--hold",))
    array = enqueue(jobs, ALICE, {"array": "0-3", "hold": True})["id"]
    for after in (f"any:{alices}", f"ok:{array}", f"notok:{array}_2"):
        said = enqueue(jobs, MALLORY, {"after": [after]}, status=403)
        assert "another user's" in said["error"]["message"], said
    own = jobs.enqueue(MALLORY, "true", options=("--hold",))
    done = lab.python(MALLORY, ASKS + 'print(json.dumps(call("PATCH", f"/v1/jobs/{sys.argv[1]}", {"after": [f"any:{sys.argv[2]}"]})))',
                      own, alices)
    assert json.loads(done.stdout)[0] == 403, done
    assert "no job 99999" in enqueue(jobs, ALICE, {"after": ["any:99999"]}, status=400)["error"]["message"]
    after = enqueue(jobs, ALICE, {"after": [f"any:{alices}", f"any:{array}_2"]})["id"]
    for id in (alices, array):
        assert lab.carve(ALICE, "job", "cancel", id).returncode == 0
    assert jobs.ended(ALICE, after)["state"] == "done"


# ---- long lists ------------------------------------------------------------------------------

PARTS = ASKS + r"""
status, array = call("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "array": "0-9999", "hold": True})
assert status == 201, array
listed, sizes, next = [], [], ""
while next is not None:
    part = call("GET", f"/v1/jobs?part={next}")[1]
    listed += [job["id"] for job in part["jobs"]]
    sizes.append(len(part["jobs"]))
    next = part["next"]
    if len(listed) == 6016 and len(part["jobs"]):  # the place that the next part begins at goes
        assert call("DELETE", f"/v1/jobs/{listed[-1]}")[0] == 200
assert listed == [f"{array['id']}_{i}" for i in range(10000)], (len(listed), len(set(listed)))
print(sizes.count(0), flush=True)
"""


@pytest.mark.attack("8", "a long list that goes on at a job which has ended")
def test_a_list_that_lost_its_place_looks_at_few_jobs_at_once(jobs):
    done = jobs.lab.python(MALLORY, PARTS, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1, "all that came before were looked at in one part"


# ---- long work -------------------------------------------------------------------------------

# Holds and releases long arrays without end, so many requests at a time.
HOLDS = ASKS + r"""
import threading
ids = []
for i in range(4):
    status, array = call("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "array": "0-49999"})
    assert status == 201, array
    ids.append(array["id"])
def again(id):
    hold = True
    while True:
        call("PATCH", f"/v1/jobs/{id}", {"hold": hold})
        hold = not hold
for id in ids * 5:
    threading.Thread(target=again, args=(id,), daemon=True).start()
print("changing", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.attack("8", "changes of long arrays without end, before another user's change")
def test_changes_of_jobs_take_turns(jobs):
    lab = jobs.lab
    id = jobs.enqueue(ALICE, "true", queue="none")
    attack = lab.python(MALLORY, HOLDS, method=lab.popen)
    assert attack.stdout.readline() == "changing\n", attack.communicate()
    # All of the attacker's requests are there once a change of 50,000 jobs is under way and others wait for it.
    wait_until(lambda: enqueue(jobs, MALLORY, {"queue": "none", "hold": True}))
    for hold in (True, False) * 5:
        began_at = time.monotonic()
        done = lab.python(ALICE, ASKS + 'print(call("PATCH", f"/v1/jobs/{sys.argv[1]}", {"hold": sys.argv[2] == "True"})[0])', id, hold)
        assert done.stdout == "200\n", done
        # Behind the attacker's other changes it would wait for a million jobs: minutes.
        assert time.monotonic() - began_at < 10
    array = enqueue(jobs, ALICE, {"queue": "none", "array": "0-1999"})
    assert array["count"] == 2000 and attack.poll() is None


# Looks for failed jobs of a long array, so many requests at a time; a line for each that is answered.
RERUNS = ASKS + r"""
import threading
status, array = call("POST", "/v1/jobs", {"queue": "none", "argv": ["true"], "cwd": "/", "array": "0-19999", "hold": True})
assert status == 201, array
def again():
    while True:
        call("POST", f"/v1/jobs/{array['id']}", {"failed": True})
        print("answered", flush=True)
for _ in range(40):
    threading.Thread(target=again, daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.attack("8", "long arrays that are run again without end, before another user's")
def test_arrays_that_are_run_again_take_turns(jobs, tmp_path):
    lab = jobs.lab
    array = enqueue(jobs, ALICE, {"queue": "none", "array": "0-39999", "hold": True})["id"]
    said = tmp_path / "said"
    with said.open("w") as to:
        attack = lab.python(MALLORY, RERUNS, method=lab.popen, stdout=to)
        wait_until(lambda: said.read_text())  # all the others wait by now
        before = len(said.read_text().splitlines())
        done = lab.python(ALICE, ASKS + "print(call('POST', f'/v1/jobs/{sys.argv[1]}', {'failed': True})[0])", array)
        after = len(said.read_text().splitlines())
    assert done.stdout == "409\n" and attack.poll() is None, done
    # Alice's array has twice as many parts as the attacker's 40: by requests all of these are answered twice before her.
    assert after - before < 40


# ---- kinds -----------------------------------------------------------------------------------

def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def copy_as_kinds(database, count):
    """The one job of the database so many times more, each with a time limit and a queue of its own."""
    with sqlite3.connect(database) as db:
        db.row_factory = sqlite3.Row
        job, spec = (dict(db.execute(f"SELECT * FROM {table}").fetchone()) for table in ("job", "spec"))
        body = json.loads(spec["text"])
        for i in range(count):
            job["id"], job["queue"] = job["id"] + 1, f"none{i % 2 * i}"
            spec["id"] = job["spec"] = job["spec"] + 1
            spec["text"] = json.dumps({**body, "time": i + 1})
            for table, row in (("job", job), ("spec", spec)):
                db.execute(f"INSERT INTO {table}({','.join(row)}) VALUES({','.join('?' * len(row))})", list(row.values()))


@pytest.mark.timed
@pytest.mark.attack("8", "many thousand kinds of jobs, which a daemon that starts takes up")
def test_many_kinds_of_jobs_delay_no_start(jobs):
    """A user may have 180,000. To look for each among all others would take minutes, and a service has 90 s to start."""
    lab, count = jobs.lab, 40000
    enqueue(jobs, MALLORY, {"queue": "none"})
    lab.kill_daemon()
    wait_until(lab.can_lock)
    copy_as_kinds((lab.runtime / "carve.db").resolve().with_name("queue.db"), count)
    lab.start()
    took = cpu_seconds(lab.worker())
    assert jobs.show(MALLORY, str(count + 1))["state"] == "queued"
    assert took < 10, took  # 2 s, and 27 s where it looked at all others


# ---- limits of resources ---------------------------------------------------------------------

# Connects, and becomes a set-user-ID program, which may raise limits for itself, as sudo does. Then a child asks by the same connection.
BECOMES = r"""
import socket, time
s = socket.socket(socket.AF_UNIX)
s.connect(LAB["http"])
asker = os.getpid()
if os.fork():
    os.execv(sys.argv[1], ["sleep", "1000"])
while f"Uid:\t{os.getuid()}\t0\t" not in open(f"/proc/{asker}/status").read():
    time.sleep(0.01)
body = json.dumps({"queue": "half", "argv": ["true"], "cwd": "/"})
s.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
print(json.dumps(s.recv(65536).decode()), flush=True)
"""


@pytest.mark.attack("2", "a job with the limits of resources of a set-user-ID program that the caller became")
def test_a_job_has_no_limits_of_a_set_user_id_program(jobs, place):  # noqa: F811
    program = set_user_id(place, pathlib.Path(shutil.which("sleep")))
    attack = jobs.lab.python(MALLORY, BECOMES, program, method=jobs.lab.popen, bounding=False)
    said = json.loads(attack.stdout.readline())
    assert " 201 " not in said.splitlines()[0] and "who sent the request" in said, said
    assert jobs.ended(MALLORY, jobs.enqueue(MALLORY, "true"))["state"] == "done"


# ---- subordinate users -----------------------------------------------------------------------

def enqueue_as(lab, uid, **body):
    return ask(lab, uid, "", "POST", "/v1/jobs", json.dumps({"queue": "half", "cwd": "/", **body}))["id"]


@pytest.mark.attack("11", "jobs of one user after the other of a range, each of whom has used nothing yet")
def test_users_of_a_range_have_one_share_of_a_queue(ranges_lab):  # noqa: F811
    lab, jobs = ranges_lab, Jobs(ranges_lab)
    first = [enqueue_as(lab, 300000 + i, argv=["sleep", "1000"]) for i in range(2)]
    for id in first:
        jobs.running(ROOT, id)
    later = [enqueue_as(lab, 300002 + i, argv=["sleep", "1000"]) for i in range(2)]
    alices = jobs.enqueue(ALICE, "sleep", "1000")
    assert lab.carve(ROOT, "job", "cancel", first[0]).returncode == 0
    jobs.running(ALICE, alices)
    assert [jobs.show(ROOT, id)["state"] for id in later] == ["queued"] * 2
    for id in (*later, first[1], alices):  # none starts when others are ended with the lab
        assert lab.carve(ROOT, "job", "cancel", id).returncode == 0
        assert jobs.ended(ROOT, id)["state"] == "cancelled"


@pytest.mark.attack("9", "agents of the users of a range, each of whom may have a few")
def test_users_of_a_range_have_few_agents_together(ranges_lab):  # noqa: F811
    pods = {"namespace": "research", "api": "http://127.0.0.1:1", "token_file": "", "ca_file": "", "max": 1, "template": {"pod": {}, "queues": {}}}

    def start(uid, i):
        return ask(ranges_lab, uid, "", "POST", "/v1/agents", json.dumps({"queues": [f"q{i}=0.5"], "detached": True, "pods": pods}))

    for i in range(4):
        assert "id" in start(300000 + i, i)
    assert "more than 4 agents" in start(300004, 4)["error"]["message"]
    assert "id" in start(ALICE, 5)


@pytest.mark.attack("9", "a history that users of a range fill, each a little")
def test_users_of_a_range_have_one_share_of_the_history(make_lab, tmp_path):
    lab = lab_with_ranges(make_lab, tmp_path, args=settings(tmp_path, history_jobs=40))
    jobs = Jobs(lab)

    def ended(uid):
        return [job for job in ask(lab, uid, "", "GET", "/v1/jobs?ended=256") if job["ended"]]

    def end_some(uid, count):
        id = enqueue_as(lab, uid, argv=["true"], array=f"1-{count}", hold=True)
        assert ask(lab, uid, "", "DELETE", f"/v1/jobs/{id}")["cancelled"] == count

    # Of each user of the range there are fewer than Alice has.
    end_some(ALICE, 15)
    for uid in range(300000, 300005):
        end_some(uid, 12)
    wait_until(lambda: len(ended(ROOT)) <= 40)
    assert len(ended(ALICE)) == 15


# ---- a full disk -----------------------------------------------------------------------------

@pytest.fixture
def disk():
    """A file system for the daemon's state, which users may pass. It outlives the lab."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carve-disk-"))
    place.chmod(0o755)
    with disk_of("200m", place / "disk") as disk:
        disk.chmod(0o755)
        yield disk
    shutil.rmtree(place)


@pytest.mark.attack("9", "a job's output that fills the disk of the daemon's databases")
def test_output_that_fills_the_disk_keeps_nobody_out(disk, make_lab):
    lab = make_lab(args=["--state-dir", disk / "state"])
    jobs = Jobs(lab)
    alices = jobs.enqueue(ALICE, "true", options=("--hold",))
    full = lab.home(MALLORY) / "full"
    fills = jobs.enqueue(MALLORY, "sh", "-c", f"cat /dev/zero; touch {full}; sleep 1000")
    wait_until(full.exists)
    # Of sessions more than the log takes without its room, and all kinds of changes of jobs.
    done = lab.python(ALICE, ENDED, 300)
    assert done.returncode == 0, done.stderr
    assert lab.carve(ALICE, "run", "--ephemeral", "--vram", "1", "--", "true").returncode == 0
    assert lab.carve(ALICE, "job", "cancel", alices).returncode == 0
    # The other job's record may be removed first, which is room for this one's, but none for its output.
    waits = jobs.enqueue(ALICE, "sh", "-c", "until echo mine; do sleep 0.02; done", queue="sixth")
    wait_until(lambda: "No space left" in jobs.show(ALICE, waits)["reason"])
    # What is ended is on the disk: the next daemon knows it, and has as much room.
    lab.restart()
    assert jobs.show(ALICE, alices)["state"] == "cancelled"
    done = lab.python(ALICE, ENDED, 100)
    assert done.returncode == 0, done.stderr
    log = jobs.show(MALLORY, fills)["log"]
    assert lab.carve(MALLORY, "job", "cancel", fills).returncode == 0
    assert jobs.ended(MALLORY, fills)["state"] == "cancelled"
    assert lab.run(MALLORY, "rm", log).returncode == 0
    assert jobs.ended(ALICE, waits)["state"] == "done", jobs.ended(ALICE, waits)


# ---- many at one moment ----------------------------------------------------------------------

PODS = {"namespace": "research", "api": "http://127.0.0.1:1", "token_file": "", "ca_file": "", "max": 100000,
        "template": {"pod": {}, "queues": {}}}

# Asks for the counts of queues until so many jobs of one have waited, and none does (an unserved queue is gone then). Says how many waited in each answer.
COUNTS = ASKS + r"""
name, most, seen = sys.argv[1], int(sys.argv[2]), set()
print("begun", flush=True)
while not {0, most} <= seen:
    seen |= {queue["waiting"] for queue in call("GET", "/v1/queues")[1] if queue["name"] == name} or {0}
print(json.dumps(sorted(seen)))
"""


@pytest.mark.attack("8", "many jobs that start at one moment, as nothing bounds how many pods an agent of a user's may have")
def test_jobs_that_start_together_delay_nobody(lab):
    count = 40
    ask(lab, MALLORY, "", "POST", "/v1/jobs", json.dumps({"queue": "pods", "argv": ["true"], "cwd": "/", "array": f"1-{count}"}))
    alice = lab.python(ALICE, COUNTS, "pods", count, method=lab.popen)
    assert alice.stdout.readline() == "begun\n", alice.communicate()
    ask(lab, MALLORY, "", "POST", "/v1/agents", json.dumps({"queues": ["pods=0.5"], "detached": True, "pods": PODS}))
    seen = json.loads(alice.stdout.readline())
    # Alice is answered while they start: not only before and behind all.
    assert len(seen) > 4, seen


@pytest.mark.attack("8", "thousands of jobs that come after one, which ends")
def test_jobs_that_end_with_another_delay_nobody(lab):
    count = 3000
    head = ask(lab, MALLORY, "", "POST", "/v1/jobs", json.dumps({"queue": "heads", "argv": ["true"], "cwd": "/", "hold": True}))["id"]
    ask(lab, MALLORY, "", "POST", "/v1/jobs", json.dumps({"queue": "fan", "argv": ["true"], "cwd": "/", "array": f"1-{count}", "after": [f"ok:{head}"]}))
    alice = lab.python(ALICE, COUNTS, "fan", count, method=lab.popen)
    assert alice.stdout.readline() == "begun\n", alice.communicate()
    ask(lab, MALLORY, "", "DELETE", f"/v1/jobs/{head}")
    seen = json.loads(alice.stdout.readline())
    assert len(seen) > 4, seen
