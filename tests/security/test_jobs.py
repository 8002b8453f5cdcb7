"""Jobs of users in a system daemon: each runs as the user who enqueued it, and as nobody else (docs/user/queues.md, "Users")."""
import contextlib
import json
import os
import pathlib
import pwd
import signal
import sqlite3
import stat
import subprocess
import tempfile

import pytest

from cgroups import MOUNT, cgroups_can_be_made
from conftest import wait_until

from .lab import ALICE, BOB, CARVE, CARVED, MALLORY, ROOT, peer_of

ENDED = ("done", "failed", "cancelled", "timeout", "lost")


class Jobs:
    """A lab with root's agent."""

    def __init__(self, lab):
        self.lab = lab
        lab.carve_json(ROOT, "agent", "--detached", "--gpus", "all", "--queue", "half=0.5", "sixth=0.125")

    def enqueue(self, uid, *argv, options=(), queue="half", **kw):
        kw.setdefault("cwd", self.lab.home(uid) if uid != ROOT else "/")
        done = self.lab.carve(uid, "enqueue", "--queue", queue, *options, "--", *argv, **kw)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def show(self, uid, id):
        return self.lab.carve_json(uid, "job", "show", id)

    def ended(self, uid, id):
        def look():
            job = self.show(uid, id)
            return job if job["state"] in ENDED else None
        return wait_until(look, step=0.05)

    def running(self, uid, id):
        wait_until(lambda: self.show(uid, id)["state"] == "running", step=0.05)

    def output(self, uid, *argv, **kw):
        id = self.enqueue(uid, *argv, **kw)
        job = self.ended(uid, id)
        assert job["state"] == "done", job
        done = self.lab.carve(uid, "job", "logs", id)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def jobs(lab):
    return Jobs(lab)


LOOK = r"""
import json, os, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()), "cwd": os.getcwd(),
    "caps": [status[k].strip() for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")], "env": dict(os.environ),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "fds": sorted(map(int, os.listdir("/proc/self/fd")))}))
"""


def test_a_job_has_what_its_user_has(jobs):
    lab = jobs.lab
    for uid, groups in ((ALICE, (61001, 61002)), (BOB, ())):
        seen = json.loads(jobs.output(uid, "/usr/bin/python3", "-c", LOOK, groups=groups, env={"MINE": "1"}))
        assert seen["uids"] == [uid] * 3 and seen["gids"] == [uid] * 3
        assert seen["groups"] == sorted(groups)
        assert seen["caps"] == ["0000000000000000"] * 4
        assert seen["cwd"] == str(lab.home(uid)) and seen["env"]["MINE"] == "1"
        assert seen["fds"][:3] == [0, 1, 2] and len(seen["fds"]) == 4
    # Hard limits of the command that enqueued it hold for the job; nobody gets the daemon's.
    id = lab.run(ALICE, "sh", "-c", f"ulimit -n 77; exec {CARVE} enqueue --queue half -- sh -c 'ulimit -Hn; ulimit -n 78'",
                 cwd=lab.home(ALICE)).stdout.strip()
    job = jobs.ended(ALICE, id)
    assert job["state"] == "failed"
    assert lab.carve(ALICE, "job", "logs", id).stdout.startswith("77\n")
    # Root's jobs are root's, as root enqueued them.
    assert json.loads(jobs.output(ROOT, "/usr/bin/python3", "-c", LOOK))["uids"] == [0, 0, 0]
    id = jobs.enqueue(ROOT, "sleep", "1000")
    jobs.running(ROOT, id)
    assert lab.carve(BOB, "job", "cancel", id).returncode == 5
    assert lab.carve(ROOT, "job", "cancel", id).returncode == 0
    assert jobs.ended(ROOT, id)["state"] == "cancelled"


def test_users_see_counts_of_others_and_nothing_else(jobs):
    lab = jobs.lab
    id = jobs.enqueue(ALICE, "sh", "-c", "echo secret; sleep 1000")
    jobs.running(ALICE, id)
    log = pathlib.Path(jobs.show(ALICE, id)["log"])
    wait_until(lambda: log.exists() and log.read_text() == "secret\n")
    assert lab.carve(BOB, "job", "show", id).returncode == 5
    assert lab.carve(BOB, "job", "cancel", id).returncode == 5
    assert lab.carve(BOB, "job", "rerun", id).returncode == 5
    assert lab.carve_json(BOB, "job", "list") == []
    assert lab.run(BOB, "cat", log).returncode != 0
    for uid, seen in ((ALICE, "secret\n"), (ROOT, "secret\n"), (BOB, None)):
        assert log_over_http(lab, uid, id).get("text") == seen, uid
    assert [q["running"] for q in lab.carve_json(BOB, "queue", "list")] == [1, 0]
    shims = [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and str(log.parent) in cmdline(p)]
    assert len(shims) == 1 and shims[0].stat().st_uid == ALICE
    # Root may end it, and run nothing of alice's as root.
    assert lab.carve(ROOT, "job", "rerun", id).returncode == 5
    assert lab.carve(ROOT, "job", "cancel", id).returncode == 0
    assert jobs.ended(ALICE, id)["state"] == "cancelled"
    assert lab.carve(ALICE, "job", "rerun", id).returncode == 0


def log_over_http(lab, uid, id):
    return json.loads(lab.run(uid, "curl", "-s", "--unix-socket", lab.runtime / "carved.sock", f"http://localhost/v1/jobs/log/{id}").stdout)


def test_the_daemon_shows_a_log_whatever_umask_the_job_has(jobs):
    lab = jobs.lab
    done = lab.run(ALICE, "sh", "-c", f"umask 077; exec {CARVE} enqueue --queue half -- sh -c 'umask; echo mine'", cwd=lab.home(ALICE))
    id = done.stdout.strip()
    assert jobs.ended(ALICE, id)["state"] == "done"
    assert log_over_http(lab, ALICE, id)["text"] == "0077\nmine\n"


def cmdline(entry):
    try:
        return (entry / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.attack("4", "a job enqueued with the words of another user")
def test_a_job_cannot_be_enqueued_as_another_user(jobs):
    lab = jobs.lab
    body = {"queue": "half", "argv": ["id", "-u"], "cwd": "/"}
    for word, value in (("uid", ROOT), ("user", "root"), ("gid", ALICE), ("warrant", "00"), ("groups", [0]), ("job", "1"),
                        ("attach", "/x"), ("limit_ns", 1)):
        done = lab.run(MALLORY, "curl", "-s", "--unix-socket", lab.runtime / "carved.sock", "-d", json.dumps(dict(body, **{word: value})),
                       "http://localhost/v1/jobs")
        assert "unknown field" in done.stdout, (word, done.stdout)
    assert jobs.output(MALLORY, "id", "-u").strip() == str(MALLORY)
    # By the hands of an administrator: what alice's job runs is alice's to say, where it waits is not.
    id = jobs.enqueue(ALICE, "id", "-u", options=("--hold",))
    refused = lab.run(ROOT, "curl", "-s", "--unix-socket", lab.runtime / "carved.sock", "-X", "PATCH", "-d", '{"argv": ["id"]}',
                      f"http://localhost/v1/jobs/{id}")
    assert "only user" in refused.stdout, refused.stdout
    assert lab.carve(ROOT, "job", "move", id, "--queue", "sixth").returncode == 0
    assert lab.carve(ROOT, "job", "release", id).returncode == 0
    assert jobs.ended(ALICE, id)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", id).stdout.strip() == str(ALICE)


@pytest.mark.attack("4", "output of a job into files of others, by links")
def test_files_of_a_job_are_opened_as_its_user(jobs):
    lab = jobs.lab
    victim = lab.dir / "victim"
    victim.write_text("root's")
    link = lab.home(MALLORY) / "link"
    link.symlink_to(victim)
    for options in (("-o", victim), ("-o", "link"), ("-o", "fine", "-e", "link"), ("-o", lab.home(ALICE) / "x")):
        # Its command refuses them at once, but for jobs that begin later.
        id = jobs.enqueue(MALLORY, "echo", "evil", options=("--begin", "now+1s", *options))
        job = jobs.ended(MALLORY, id)
        assert job["state"] == "failed" and "ermission denied" in job["reason"], job
    # Its own directory, with links where the next job's files will be.
    mine = pathlib.Path(jobs.show(MALLORY, id)["log"]).parent if jobs.show(MALLORY, id)["log"] else None
    assert mine.stat().st_uid == MALLORY and stat.S_IMODE(mine.stat().st_mode) == 0o750
    after = int(id) + 1
    lab.run(MALLORY, "sh", "-c", f"for s in log record; do ln -s {victim} {mine}/{after}.1.$s; done")
    assert jobs.enqueue(MALLORY, "echo", "evil") == str(after)
    jobs.ended(MALLORY, str(after))
    assert victim.read_text() == "root's" and victim.stat().st_uid == ROOT
    # Nobody takes another's directory before he comes.
    assert lab.run(MALLORY, "mkdir", mine.parent / str(BOB)).returncode != 0
    assert lab.run(MALLORY, "ls", mine.parent).returncode != 0
    assert lab.run(MALLORY, "cat", mine.parent / "key").returncode != 0


def test_a_directory_that_the_user_may_not_enter_fails_the_job(jobs):
    lab = jobs.lab
    done = lab.run(BOB, "curl", "-s", "--unix-socket", lab.runtime / "carved.sock", "-d",
                   json.dumps({"queue": "half", "argv": ["true"], "cwd": str(lab.home(ALICE))}), "http://localhost/v1/jobs")
    job = jobs.ended(BOB, json.loads(done.stdout)["id"])
    assert job["state"] == "failed" and str(lab.home(ALICE)) in job["reason"] and "ermission" in job["reason"]


def test_a_groups_quota_holds_for_jobs(jobs):
    lab = jobs.lab
    assert lab.carve(ROOT, "quota", "set", "--group", "61001", "--sessions", "1").returncode == 0
    first = jobs.enqueue(ALICE, "sleep", "1000", groups=(61001,))
    jobs.running(ALICE, first)
    second = jobs.enqueue(BOB, "true", groups=(61001,))
    wait_until(lambda: "quota" in jobs.show(BOB, second)["reason"], step=0.05)
    jobs.ended(BOB, jobs.enqueue(BOB, "true", options=("--priority", "-1")))
    assert jobs.show(BOB, second)["state"] == "queued"
    lab.carve(ALICE, "job", "cancel", first)
    assert jobs.ended(BOB, second)["state"] == "done"


@pytest.mark.parametrize("who", ["daemon", "supervisor"])
def test_a_users_job_survives_the_daemons_processes(jobs, who):
    lab = jobs.lab
    gate = lab.home(ALICE) / "gate"
    body = f"echo began; while [ ! -e {gate} ]; do sleep 0.02; done; echo ended"
    running = jobs.enqueue(ALICE, "sh", "-c", body)
    waiting = jobs.enqueue(ALICE, "sh", "-c", "id -u", options=("--after", f"ok:{running}"))
    jobs.running(ALICE, running)
    if who == "daemon":
        lab.kill_daemon()
        wait_until(lab.can_lock)
        lab.start()
    else:
        lab.kill_supervisor()
        lab.start()
    gate.touch()
    assert jobs.ended(ALICE, running)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", running).stdout == "began\nended\n"
    assert jobs.ended(ALICE, waiting)["state"] == "done"
    assert lab.carve(ALICE, "job", "logs", waiting).stdout.strip() == str(ALICE)


def test_users_start_no_agents_in_a_system_daemon(jobs):
    for argv in (("--detached", "--gpus", "all", "--queue", "mine=0.5"), ("--stop", "a-1"), ("--drain", "half")):
        assert jobs.lab.carve(ALICE, "agent", *argv).returncode == 5, argv


def test_a_daemon_that_was_started_without_roots_rights_starts_no_jobs(lab):
    """It says so. With all of them it does."""
    lab.kill_daemon()
    lab.before_daemon = ["setpriv", "--bounding-set", "-all,+chown,+setuid,+setgid,+setpcap"]
    wait_until(lab.can_lock)
    lab.start()
    jobs = Jobs(lab)
    refused = lab.carve(ALICE, "enqueue", "--queue", "half", "--", "true")
    assert refused.returncode == 5 and "started without the rights to become other users" in refused.stderr
    lab.before_daemon = []
    lab.restart()
    assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)


def test_jobs_go_on_over_an_upgrade_of_the_supervisor_that_started_them(jobs):
    """The supervisor, which hosts the warden, executes the new program. What it let run and what it vouched for is in files."""
    lab = jobs.lab
    supervisor, worker = lab.supervisor(), lab.worker()
    gate = lab.home(ALICE) / "gate"
    running = jobs.enqueue(ALICE, "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; id -u")
    waiting = jobs.enqueue(ALICE, "id", "-u", options=("--after", f"ok:{running}"))
    jobs.running(ALICE, running)
    done = lab.run(ROOT, CARVED, "--system", "--runtime-dir", lab.runtime, "--takeover")
    assert done.returncode == 0, done.stderr
    assert lab.worker() != worker and lab.supervisor() == supervisor and "supervisor.renewed" in lab.log()
    gate.touch()
    for job in (running, waiting):
        assert jobs.ended(ALICE, job)["state"] == "done"
        assert lab.carve(ALICE, "job", "logs", job).stdout.strip() == str(ALICE)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)


def test_a_state_directory_that_is_named_meanwhile_is_used_once_the_files_are_there(make_lab, tmp_path):
    """The supervisor has the directory of jobs beside the one that it began with, and its workers keep to that."""
    config = tmp_path / "config.json"
    config.write_text("{}")
    lab = make_lab(args=["--config", config])
    jobs = Jobs(lab)
    assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)
    config.write_text(json.dumps({"state_dir": str(lab.dir / "other")}))
    worker = lab.worker()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: lab.worker() != worker)
    assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)
    lab.kill_supervisor()
    lab.start()
    assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)
    assert not (lab.dir / "other").exists()
    lab.kill_supervisor()
    command = lab.log().rpartition("stop carved, and type: ")[2].splitlines()[0].rstrip('"')
    assert subprocess.run(["sh", "-c", command]).returncode == 0, command
    lab.start()
    assert jobs.output(ALICE, "id", "-u").strip() == str(ALICE)
    assert (lab.dir / "other/carve.db").is_file() and (lab.dir / "other-jobs").is_dir()


def children_of(pid):
    """{PID: (name, state)}"""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
            if int(rest.split()[1]) == pid:
                found[int(path.parent.name)] = (name, rest.split()[0])
    return found


def test_the_supervisor_waits_for_shims_and_keeps_its_worker(jobs):
    """Shims are its children, beside the worker. Killed and ended ones leave nothing, and no other worker follows."""
    lab = jobs.lab
    jobs.running(ALICE, jobs.enqueue(ALICE, "sleep", "1000"))
    shim, = [pid for pid, (name, _) in children_of(lab.supervisor()).items() if pid != lab.worker() and name.startswith("carve-shim")]
    os.kill(shim, signal.SIGKILL)
    assert jobs.output(BOB, "id", "-u").strip() == str(BOB)
    wait_until(lambda: not [c for c in children_of(lab.supervisor()).values() if c[1] == "Z"] and shim not in children_of(lab.supervisor()))
    assert lab.serves_still()


# ---- jobs that are pods ----

TEMPLATE = "metadata: {labels: {team: a}}\nspec: {containers: [{name: main, image: cuda}]}\n"


@pytest.fixture
def cluster():
    pytest.importorskip("grpc", reason="needs python3-grpcio")
    from cluster import ApiServer
    api = ApiServer()
    yield api
    api.close()


def pods_agent(lab, uid, cluster, *options, queue="pods=0.5"):
    """With a token that only its user can read."""
    token, template = lab.home(uid) / "token", lab.home(uid) / "pod.yaml"
    token.write_text(f"token of {uid}")
    token.chmod(0o600)
    template.write_text(TEMPLATE)
    os.chown(token, uid, uid)
    return lab.carve(uid, "agent", "--json", "--detached", "--on", "kubernetes", "--pod-template", template, "--namespace", "research",
                     "--api", cluster.url, "--token-file", token, *options, "--queue", queue)


def pods_of(cluster):
    with cluster.lock:
        return {path: o for path, o in cluster.objects.items() if "/pods/" in path}


def peer_name(uid):
    """As the daemon names a user: of one without a name that is the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def finish(cluster, path, code=0):
    cluster.put(path, {**cluster.objects[path], "status": {
        "phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}]}})


def callers(cluster):
    """The users whose processes call this API server."""
    return {p.stat().st_uid for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and cluster.url in cmdline(p)}


def test_pods_of_a_system_daemon_are_made_by_their_agents_owner(lab, cluster):
    jobs = Jobs(lab)
    done = pods_agent(lab, ALICE, cluster)
    assert done.returncode == 0, done.stderr
    agent = json.loads(done.stdout)["id"]
    id = jobs.enqueue(ALICE, "python3", "train.py", queue="pods")
    wait_until(lambda: pods_of(cluster))
    [(path, pod)] = pods_of(cluster).items()
    assert pod["metadata"]["labels"]["team"] == "a" and pod["metadata"]["annotations"]["gpu-fraction"] == "0.5"
    assert pod["spec"]["containers"][0]["command"] == ["python3", "train.py"]
    # The process that has the token is alice's, and the daemon's own cannot read it.
    assert callers(cluster) == {ALICE}
    # Bob's jobs are not alice's to run, whatever their queue is called.
    done = lab.carve(BOB, "enqueue", "--queue", "pods", "--", "true", cwd=lab.home(BOB))
    waits, says = done.stdout.strip(), f"agent {agent} runs only {peer_name(ALICE)}'s own jobs; ask an administrator for an agent"
    assert done.stderr == f"carve: note: job {waits} waits: {says}\n"
    assert jobs.show(BOB, waits)["reason"] == says
    lab.restart()
    finish(cluster, path, code=3)
    ended = jobs.ended(ALICE, id)
    assert (ended["state"], ended["exit_code"]) == ("failed", 3)
    id = jobs.enqueue(ALICE, "true", queue="pods")  # the agent outlived the daemon, with what was vouched for
    wait_until(lambda: pods_of(cluster))
    [(path, _)] = pods_of(cluster).items()
    finish(cluster, path)
    assert jobs.ended(ALICE, id)["state"] == "done"
    assert jobs.show(BOB, waits)["state"] == "queued" and not pods_of(cluster)
    assert lab.carve(BOB, "agent", "--stop", agent).returncode == 5
    assert lab.carve(ALICE, "agent", "--stop", agent).returncode == 0


def test_a_user_without_rights_on_the_host_has_few_agents_and_only_for_pods(lab, cluster):
    refused = lab.carve(ALICE, "agent", "--detached", "--gpus", "0", "--queue", "a=0.5")
    assert refused.returncode == 5 and "may start and stop agents" in refused.stderr
    for i in range(4):
        assert pods_agent(lab, ALICE, cluster, queue=f"q{i}=0.5").returncode == 0
    refused = pods_agent(lab, ALICE, cluster, queue="q4=0.5")
    assert refused.returncode == 5 and "more than 4 agents" in refused.stderr


@pytest.mark.attack("4", "pods in another user's name, by a changed database")
def test_a_changed_database_makes_no_pod_in_anothers_name(lab, cluster):
    """As a worker that was broken into could: another template behind what alice said."""
    jobs = Jobs(lab)
    assert pods_agent(lab, ALICE, cluster).returncode == 0
    lab.kill_daemon()
    wait_until(lab.can_lock)
    [path] = lab.dir.rglob("queue.db")
    with sqlite3.connect(path) as db:
        [(table, column)] = [(t, c[1]) for t, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'") if "agent" in t
                             for c in db.execute(f"PRAGMA table_info({t})") if c[1] != "id"]
        said = '\\"image\\":\\"cuda\\"'
        assert db.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE {column} LIKE '%pods_text%'",
                          (said, said.replace("cuda", "evil"))).rowcount == 1
        assert db.execute(f"SELECT count(*) FROM {table} WHERE {column} LIKE '%evil%'").fetchone() == (1,)
    lab.start()
    id = jobs.enqueue(ALICE, "true", queue="pods")
    wait_until(lambda: "start the agent anew" in jobs.show(ALICE, id)["reason"])
    assert not pods_of(cluster)


# ---- cgroups ----

def test_a_users_job_has_a_cgroup_of_roots_making_and_leaves_nothing_in_it(jobs):
    """Its user cannot leave it, and what is left of the job ends though its shim was killed."""
    if not cgroups_can_be_made():
        pytest.skip("no cgroup can be made here")
    lab = jobs.lab
    body = "grep ^0:: /proc/self/cgroup; setsid sleep 1000 & echo $!; echo $PPID; touch ready; while [ ! -e gate ]; do sleep 0.02; done"
    id = jobs.enqueue(ALICE, "sh", "-c", body)
    wait_until((lab.home(ALICE) / "ready").exists)
    group, left, shim = lab.carve(ALICE, "job", "logs", id).stdout.split()
    path = MOUNT / group[4:]
    mine = path.parent
    assert path.name.startswith(f"carve-job-{id}.1-") and mine.name == f"{id}.1" and mine.parent.name.startswith("carve-jobs-")
    assert path.stat().st_uid == mine.stat().st_uid == ALICE and mine.parent.stat().st_uid == ROOT
    for out in (mine.parent, mine.parent.parent):
        assert lab.run(ALICE, "sh", "-c", f"echo {left} > {out}/cgroup.procs").returncode != 0
    assert lab.run(BOB, "sh", "-c", f"echo 1 > {path}/cgroup.kill").returncode != 0
    # One that moves up within what is its user's is found all the same, and so is one in a cgroup of its own.
    assert lab.run(ALICE, "mkdir", mine / "x").returncode == 0
    moved = lab.run(ROOT, "sh", "-c", f"echo {left} > {mine}/x/cgroup.procs")
    assert moved.returncode == 0, moved.stderr
    os.kill(int(shim), signal.SIGKILL)
    (lab.home(ALICE) / "gate").touch()
    assert jobs.ended(ALICE, id)["state"] == "lost"
    wait_until(lambda: not pathlib.Path(f"/proc/{left}").exists())
    jobs.output(ALICE, "true")
    jobs.output(ALICE, "true")
    assert not mine.exists()


def test_a_killed_system_daemon_is_started_with_its_arguments(make_lab):
    """By a command of root's, where the supervisor was killed. The options are in a file of root's, and not in the lock's."""
    with tempfile.TemporaryDirectory(prefix="carve-args-") as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        (place / "config.json").write_text('{"over_tolerance": "77MiB"}')
        arguments = ["--config", f"{place}/config.json", "--state-dir", f"{place}/state", "--user", "nobody"]
        lab = make_lab(args=arguments)
        jobs = Jobs(lab)
        id = jobs.enqueue(ROOT, "sleep", "1000")
        jobs.running(ROOT, id)
        with open(lab.runtime / "lock", "a") as lock:
            lock.write(f"config {place}/none.json\nstate-dir {place}/none\n")
        # Its supervisor makes it anew where somebody removes it.
        start, text = lab.runtime / "start", (lab.runtime / "start").read_text()
        start.unlink()
        wait_until(lambda: start.exists() and start.read_text() == text)
        wait_until(lambda: lab.worker() != lab.first)
        first = lab.worker()
        lab.daemon.kill()
        lab.daemon.wait()
        done = lab.run(ROOT, CARVE, "job", "show", id, env={"CARVE_HOST": "", "CARVE_RUNTIME_DIR": str(lab.runtime)})
        assert done.returncode == 0, done.stderr
        pid = wait_until(lambda: serves(lab, first))
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert all(any(words[i:i + 2] == arguments[k:k + 2] for i in range(len(words))) for k in (0, 2, 4)), words
        assert "--system" in words and "--idle-exit" not in words and not (place / "none").exists(), words
        wait_until(lambda: jobs.show(ROOT, id)["state"] == "running")
        assert stat.S_IMODE(start.stat().st_mode) == 0o600 and start.stat().st_uid == 0


def serves(lab, but):
    """The process that listens for commands, unless it is `but`."""
    try:
        pid = peer_of(lab.runtime / "carved.sock")[0]
        return pid if pid != but and os.path.exists(f"/proc/{pid}") else None
    except OSError:
        return None


def processes_called(name):
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text() == f"{name}\n":
                yield int(path.parent.name)


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def parent_is(pid, name, lab):
    """Whether it is the child of such a process of this lab's."""
    try:
        parent = parent_of(pid)
        words = pathlib.Path(f"/proc/{parent}/cmdline").read_text()
        return pathlib.Path(f"/proc/{parent}/comm").read_text() == f"{name}\n" and str(lab.args[3]) in words
    except OSError:
        return False
