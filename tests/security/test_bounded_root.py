"""Root of a container that shares the host's user IDs: the kernel names user ID 0 for it, and it has none of root's rights. It is
no root for carve either: it changes nothing, sees what everybody sees, and its budgets are its own."""
import json
import signal

import pytest

from conftest import rest_long, wait_until

from .lab import ALICE, BOB, CARVE, CARVED, MALLORY, ROOT
from .latency import times
from .test_budgets import COMMON, CONNECTIONS, FEW, attack, others_are_served
from .test_jobs import Jobs
from .test_namespaces import ONCE, RootsCommand, within
from .test_warden_service import service  # noqa: F401

# What Docker leaves to root of a container by default.
DOCKERS = ("chown", "dac_override", "fsetid", "fowner", "mknod", "net_raw", "setgid", "setuid", "setfcap", "setpcap",
           "net_bind_service", "sys_chroot", "kill", "audit_write")
EVERY_ID = ("import os, sys; r, w = os.pipe(); p = os.fork()\n"
            "if p == 0:\n"
            "    os.unshare(0x10000000) if hasattr(os, 'unshare') else __import__('ctypes').CDLL(None).unshare(0x10000000)\n"
            "    os.write(w, b'x'); os.close(w); sys.stdin.buffer.raw.read(0)\n"
            "    while open('/proc/self/gid_map').read() == '': pass\n"
            "    os.execvp(sys.argv[1], sys.argv[1:])\n"
            "os.close(w); os.read(r, 1)\n"
            "for name in ('uid_map', 'gid_map'): open(f'/proc/{p}/{name}', 'w').write('0 0 4294967295')\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))")

# Words that make a process of root's one of a container's root.
BOUNDED = {
    "no capability": ["setpriv", "--inh-caps=-all", "--bounding-set=-all"],
    "Docker's capabilities": ["setpriv", "--inh-caps=-all", "--bounding-set=-all," + ",".join("+" + c for c in DOCKERS)],
    "a user namespace": ["unshare", "--user", "--map-root-user"],
    "a user namespace with all IDs": ["/usr/bin/python3", "-c", EVERY_ID],
}


# The worker itself cannot tell this one from root of the host, and shows it what root sees. The warden can, for each request that changes
# something.
LIKE_THE_HOSTS = {
    "a user namespace that maps all IDs to themselves": [
        "/usr/bin/python3", "-c", EVERY_ID.replace("'gid_map')", "'gid_map', 'projid_map')").replace("self/gid_map", "self/projid_map")],
    **BOUNDED,
}


def bounded(lab, how, *argv, **kw):
    return lab.run(ROOT, *LIKE_THE_HOSTS[how], *argv, **kw)


def bounded_attack(lab, how, source, *arguments):
    """As attack(), by root of a container."""
    return attack(lab, source, *arguments, uid=ROOT, method=lambda uid, *argv, **kw: lab.popen(uid, *BOUNDED[how], *argv, **kw))


def served(lab, uid):
    done = lab.run(uid, CARVE, "run", "--ephemeral", "--vram", "1", "--", "true")
    assert done.returncode == 0, done.stderr


# ---- budgets -------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["http", "attach"])
@pytest.mark.parametrize("how", rest_long(BOUNDED, 3))
@pytest.mark.attack("9", "root of a container opens all connections")
def test_connections_of_a_containers_root(make_lab, kind, how):
    lab = make_lab(before=FEW)
    bounded_attack(lab, how, CONNECTIONS, 120, kind, 0)
    served(lab, ALICE)
    served(lab, ROOT)


@pytest.mark.parametrize("kind", ["http", "attach"])
@pytest.mark.attack("9", "a service of root's opens all connections")
def test_connections_of_root(make_lab, kind):
    """Root itself, by mistake."""
    lab = make_lab(before=FEW)
    attack(lab, CONNECTIONS, 120, kind, 0, uid=ROOT)
    for user in (ALICE, BOB):
        served(lab, user)


# Eight thousand in all, as fast as they can be made, by processes of one container.
FLOOD = COMMON + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (9000, 9000))
kept = []
while len(kept) < 8000:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(0.2)
    try:
        s.connect(LAB['http'])
        kept.append(s)
        call(s, 'GET', '/v1/gpus')
    except BlockingIOError:
        time.sleep(0.001)  # as many wait to be accepted as may
    except OSError:
        pass  # it was refused
held()
"""


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.once("it judges the time that the daemon takes")
@pytest.mark.attack("9", "root of a container opens 8,000 connections")
def test_others_get_slices_beside_thousands_of_connections(lab):
    bounded_attack(lab, "no capability", FLOOD)
    for user in (ALICE, BOB, ROOT):
        served(lab, user)
    under = times(lab)
    print(under)
    assert under.served_p(99) <= 50


# ---- rights --------------------------------------------------------------------------------

# Each request once; prints the status of each.
ASKS = COMMON + """
for method, path, body in json.loads(sys.argv[1]):
    s = http()
    call(s, method, path, body.encode()); head, text = answer(s)
    print(method, path, head.split()[1].decode(), flush=True)
"""


@pytest.mark.parametrize("how", rest_long(LIKE_THE_HOSTS, 2))
@pytest.mark.attack("4", "root of a container asks for what root of the host may do")
def test_a_containers_root_changes_nothing(lab, how):
    jobs = Jobs(lab)
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    job = jobs.enqueue(ALICE, "sleep", "600")
    wish = json.dumps({"vram": "1"})
    asked = [
        ("POST", "/v1/sessions", wish), ("POST", "/v1/sessions", json.dumps({"vram": "1", "kept": True, "priority": 5})),
        ("PATCH", f"/v1/sessions/{session}", json.dumps({"vram": "1"})), ("DELETE", f"/v1/sessions/{session}", ""),
        ("DELETE", f"/v1/sessions/{session}?force=1", ""), ("POST", "/v1/explain", wish),
        ("POST", "/v1/commands", json.dumps({"pid": 1, "session": session})),
        ("PUT", f"/v1/quotas/user/{ALICE}", json.dumps({"max_sessions": 0})), ("DELETE", f"/v1/quotas/user/{ALICE}", ""),
        ("PATCH", f"/v1/quotas/group/{ALICE}", json.dumps({"max_sessions": 0})),
        ("PUT", "/v1/mig/roles", json.dumps({"gpu_ids": "0", "dynamic": True})), ("POST", "/v1/mig/gc", "{}"),
        ("PUT", "/v1/timeslicing", json.dumps({"mode": "fair"})), ("PUT", "/v1/drains", json.dumps({"drain": False})),
        ("POST", "/v1/agents", json.dumps({"gpu_ids": "all", "queues": {"whole": 1}})), ("DELETE", "/v1/agents/1", ""),
        ("POST", "/v1/jobs", json.dumps({"queue": "half", "argv": ["true"], "cwd": "/"})),
        ("PATCH", f"/v1/jobs/{job}", json.dumps({"held": True})), ("DELETE", f"/v1/jobs/{job}", ""),
        ("POST", f"/v1/jobs/{job}", "{}"), ("POST", "/v1/upgrade", "{}"),
    ]
    done = within(lab, ROOT, LIKE_THE_HOSTS[how], ASKS, json.dumps(asked))
    assert done.returncode == 0, done.stderr
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["403"] * len(asked), done.stdout
    assert jobs.show(ALICE, job)["state"] == "running"
    assert lab.carve_json(ALICE, "session", "show")["id"] == session
    # No such request is refused to root of the host. (Nobody enqueues another user's job again.)
    done = within(lab, ROOT, [], ASKS, json.dumps(asked[:-2]))
    assert "403" not in [line.split()[2] for line in done.stdout.splitlines()], done.stdout


@pytest.mark.parametrize("how", rest_long(BOUNDED, 2))
@pytest.mark.attack("4", "root of a container looks at others' sessions and jobs")
def test_a_containers_root_sees_what_everybody_sees(lab, how):
    jobs = Jobs(lab)
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2", "--name", "secret")["id"]
    job = jobs.enqueue(BOB, "sleep", "600")
    jobs.running(BOB, job)
    for words in (["session", "list"], ["session", "show", session], ["job", "list"], ["job", "show", job], ["job", "logs", job],
                  ["quota", "list"], ["agent", "list"]):
        seen, everybody = bounded(lab, how, CARVE, *words), lab.carve(MALLORY, *words)
        assert (seen.returncode, seen.stdout) == (everybody.returncode, everybody.stdout), words
        assert "secret" not in seen.stdout + seen.stderr


@pytest.mark.parametrize("how", rest_long(LIKE_THE_HOSTS, 2))
@pytest.mark.attack("4", "root of a container has a job run as root of the host")
def test_no_job_of_a_containers_root_runs(lab, how):
    Jobs(lab)
    mark = lab.dir / "mark"
    done = bounded(lab, how, CARVE, "enqueue", "--queue", "half", "--", "touch", mark, cwd="/")
    assert done.returncode == 5 and "root of a container" in done.stderr, done
    # Root's own job, which comes after it, runs.
    other = lab.dir / "other"
    assert lab.carve(ROOT, "enqueue", "--queue", "half", "--", "touch", other, cwd="/").returncode == 0
    wait_until(other.exists)
    assert not mark.exists()


@pytest.mark.attack("4", "root of a container upgrades the daemon")
def test_a_containers_root_upgrades_nothing(lab):
    done = bounded(lab, "no capability", CARVED, "--system", "--runtime-dir", lab.runtime, "--takeover")
    assert done.returncode != 0 and "root of a container" in done.stderr, done
    assert lab.log().count("carved.listening") == 1


# ---- the slice of a container --------------------------------------------------------------

@pytest.mark.parametrize("how", rest_long(["no capability", "Docker's capabilities"]))
@pytest.mark.attack("3", "root of a container enters another session than that of its slice")
def test_a_containers_root_is_in_the_session_of_its_slice_alone(lab, how):
    first, second = RootsCommand(lab), RootsCommand(lab)
    words = [*first.enter(ROOT), *BOUNDED[how]]
    own = within(lab, ROOT, words, ONCE, first.session)
    assert own.stdout.splitlines() == ["in"] * 3, own
    other = within(lab, ROOT, words, ONCE, second.session)
    assert len(other.stdout.splitlines()) == 3 and "in\n" not in other.stdout, other
    assert all("in another slice" in line for line in other.stdout.splitlines())


def test_root_changes_nothing_while_the_warden_is_silent(service):  # noqa: F811
    """And hears why. Users, and what root looks at, do not wait."""
    lab = service
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    lab.warden.send_signal(signal.SIGSTOP)
    refused = lab.carve(ROOT, "quota", "set", str(ALICE), "--vram", "10")
    assert refused.returncode == 1 and "whether this is root of the host" in refused.stderr, refused
    assert [s["id"] for s in lab.carve_json(ROOT, "session", "list")] == [session]
    assert lab.carve(ALICE, "session", "release", session).returncode == 0
    lab.warden.send_signal(signal.SIGCONT)
    assert lab.carve(ROOT, "quota", "set", str(ALICE), "--vram", "10").returncode == 0
