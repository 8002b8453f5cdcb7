"""Programs outside carve: the policy ends those that are proved to be outside, and nobody can make another user's program look so."""
import errno
import json
import os
import pathlib
import re
import signal
import struct
import tempfile
import time

import pytest

from conftest import wait_until
from .broken_worker import SIGNAL_OUTSIDE, BrokenWorker, signal_of
from .lab import ALICE, BOB, CARVE, MALLORY, ROOT, SYSTEM
from .test_jobs import Jobs

SECONDS = 2
# It reaches the driver by itself, takes a context, and stays.
WITHOUT_FRONT = "sys.path.insert(0, LAB['tests']); from cuda import *; begin(); print('begun', flush=True); sys.stdin.read()"


@pytest.fixture
def policed(make_lab):
    """policed(**keys): a lab whose daemon ends programs outside carve after SECONDS."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)  # the daemon's user reads the file anew

        def make(**keys):
            config = pathlib.Path(place, "carved.json")
            config.write_text(json.dumps({"outside_policy": "kill", "outside_seconds": SECONDS, **keys}))
            lab = make_lab(args=["--config", str(config)])
            lab.config = config
            return lab
        yield make


def begun(process):
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


def outside(lab, uid, env=None, **kw):
    """A program of that user's that uses the GPU outside of slices."""
    return begun(lab.python(uid, WITHOUT_FRONT, method=lab.popen, env=env, **kw))


def listed(lab, uid=ROOT):
    return {program["pid"]: program for program in lab.carve_json(uid, "outside")["programs"]}


def told(lab, kind, pid):
    """Whether that event of a process is in the log."""
    return re.search(rf'outside\.{kind} .*subject="process {pid}"', lab.log())


def stays(lab, *processes, seconds=2 * SECONDS + 4):
    """Whether all of them live on for longer than the policy takes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if any(process.poll() is not None for process in processes):
            return False
        time.sleep(0.1)
    return True


def test_a_program_outside_is_warned_and_ended(policed):
    lab = policed()
    program = outside(lab, ALICE)
    shown = wait_until(lambda: listed(lab).get(program.pid))
    assert shown["uid"] == ALICE and shown["memory_bytes"] > 0 and shown["gpus"][0]["index"] == 0 and shown["spared"] in (None, "unproved")
    wait_until(lambda: program.poll() is not None)
    assert program.returncode == -signal.SIGTERM
    ended = wait_until(lambda: told(lab, "killed", program.pid))
    warned = told(lab, "warned", program.pid)
    assert warned.start() < ended.start() and f"owner={ALICE} " in warned.group() and f"owner={ALICE} " in ended.group()
    wait_until(lambda: re.search("it ends in [01] s", lab.log()) and "SIGTERM" in lab.log())
    assert "SIGKILL" not in lab.log()
    audit = [line for line in lab.carve(ALICE, "audit").stdout.splitlines() if "outside.killed" in line]
    assert len(audit) == 1 and str(program.pid) in audit[0] and "outside.killed" not in lab.carve(BOB, "audit").stdout
    wait_until(lambda: not listed(lab))


def test_a_program_that_ignores_sigterm_is_killed(policed):
    lab = policed()
    deaf = begun(lab.python(ALICE, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WITHOUT_FRONT, method=lab.popen))
    wait_until(lambda: deaf.poll() is not None)
    assert deaf.returncode == -signal.SIGKILL
    wait_until(lambda: told(lab, "killed", deaf.pid) and "SIGKILL" in lab.log())


def test_the_default_reports_and_ends_nobody(lab):
    program = outside(lab, ALICE)
    shown = wait_until(lambda: listed(lab).get(program.pid))
    assert lab.carve_json(ROOT, "outside")["policy"] == "report" and shown["ends_in_s"] is None
    text = lab.carve(BOB, "outside").stdout
    assert str(program.pid) in text and "it is reported" in text and "outside_policy is report" in text
    wait_until(lambda: told(lab, "reported", program.pid))
    assert program.poll() is None


def test_everybody_sees_who_it_is_as_proc_shows_that_too(lab):
    program = outside(lab, ALICE)
    for uid in (ROOT, ALICE, BOB):
        shown = wait_until(lambda: listed(lab, uid).get(program.pid))  # noqa: B023
        assert shown["uid"] == ALICE and shown["command"] == "python3", uid


def test_root_and_exempt_users_and_groups_are_let_be(policed):
    lab = policed(outside_exempt={"users": [BOB], "groups": [63333]})
    for uid, policy in ((ALICE, "kill"), (BOB, "exempt"), (ROOT, "exempt")):
        rows = {row["limit"]: row for row in lab.carve_json(uid, "limits")["limits"]}
        assert rows["outside_policy"]["value"] == policy and ("outside_seconds" in rows) == (policy == "kill")
    assert re.search("programs outside of slices +kill +- +carved.json, outside_policy", lab.carve(ALICE, "limits").stdout)
    spared = {outside(lab, ROOT): "root", outside(lab, BOB): "exempt", outside(lab, MALLORY, groups=[63333]): "exempt"}
    ended = outside(lab, ALICE)
    wait_until(lambda: ended.poll() is not None)
    assert stays(lab, *spared)
    programs = listed(lab)
    assert {programs[process.pid]["spared"] for process, why in spared.items() if programs[process.pid]["spared"] != why} == set()
    assert "it stays: exempt" in lab.carve(ROOT, "outside").stdout


def test_nobody_is_ended_while_an_exempt_name_is_unknown(policed):
    lab = policed(outside_exempt={"users": ["nobody-is-called-so"]})
    program = outside(lab, ALICE)
    assert stays(lab, program)
    answer = lab.carve_json(ROOT, "outside")
    assert "nobody-is-called-so" in answer["problem"] and "nobody-is-called-so" in lab.carve(ROOT, "outside").stdout
    wait_until(lambda: "outside.no_user name=nobody-is-called-so" in lab.log())
    lab.config.write_text(json.dumps({"outside_policy": "kill", "outside_seconds": SECONDS}))
    lab.daemon.send_signal(signal.SIGHUP)
    wait_until(lambda: program.poll() is not None)


# ---- programs in slices --------------------------------------------------------------------------

def in_slice(lab, uid, *options, source="print('begun', flush=True); sys.stdin.read()", env=None):
    """A program in a slice of that user's."""
    return begun(lab.python(uid, "sys.path.insert(0, LAB['tests']); from cuda import *; begin(); " + source, env=env,
                            method=lambda uid, *argv, **kw: lab.popen(uid, CARVE, "run", *options, "--", *argv, **kw)))


def test_programs_in_slices_are_let_be(policed):
    lab = policed()
    lab.carve_json(ALICE, "session", "request", "--vram", "2")
    inside = [in_slice(lab, ALICE), in_slice(lab, BOB, "--vram", "2", "--ephemeral")]
    assert stays(lab, *inside) and not listed(lab)
    assert "outside." not in lab.log()


def test_a_program_that_was_in_the_session_and_left_its_ancestors_is_the_sessions_stray(policed):
    """It says so by its environment, and its session lives. When that ends it is outside."""
    lab = policed()
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    program = outside(lab, ALICE, env={"CARVE_SESSION": session})
    wait_until(lambda: program.pid in lab.carve_json(ALICE, "session", "show", session)["stray_pids"])
    assert stays(lab, program) and not listed(lab)
    lab.carve(ALICE, "session", "release", session)
    wait_until(lambda: program.poll() is not None)
    assert told(lab, "killed", program.pid)


@pytest.mark.attack("13", "the ID of another user's session, of an ended one, or of none, to be let be")
def test_a_false_word_spares_nobody(policed):
    lab = policed()
    bobs = lab.carve_json(BOB, "session", "request", "--vram", "2")["id"]
    ended = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    lab.carve(MALLORY, "session", "release", ended)
    fake = "import mmap; fd = os.memfd_create('carve-ledger:s-abcdef'); os.ftruncate(fd, 4096); m = mmap.mmap(fd, 4096)\n"
    liars = [outside(lab, MALLORY, env={"CARVE_SESSION": word}) for word in (bobs, ended, "s-abcdef", "", "../../x", "s-" + "a" * 4000)]
    liars.append(begun(lab.python(MALLORY, fake + WITHOUT_FRONT, method=lab.popen)))
    wait_until(lambda: all(program.poll() is not None for program in liars))


def test_a_job_is_in_its_slice_whatever_it_hides(policed):
    """It has neither the variables of its slice nor its ancestors any more: the cgroup that the warden made says so."""
    lab = policed()
    jobs, said = Jobs(lab), lab.home(ALICE) / "pid"
    env = " ".join(f"{name}={value}" for name, value in lab.env(ALICE).items() if name in ("LD_LIBRARY_PATH", "SIMGPU_HOST"))
    source = f"import os, sys; sys.path.insert(0, '{SYSTEM}'); from cuda import *; begin(); open('{said}', 'w').write(str(os.getpid())); time.sleep(1000)"
    script = lab.home(ALICE) / "hides.py"
    script.write_text(source)
    os.chown(script, ALICE, ALICE)
    jobs.enqueue(ALICE, "sh", "-c", f"setsid env -i {env} /usr/bin/python3 {script} & wait; sleep 1000")
    pid = int(wait_until(lambda: said.exists() and said.read_text()))
    if "carve-jobs-" not in pathlib.Path(f"/proc/{pid}/cgroup").read_text():
        pytest.skip("jobs have no cgroup here")
    time.sleep(2 * SECONDS + 4)
    os.kill(pid, 0)
    assert pid not in listed(lab) and "outside." not in lab.log()


# ---- neighbours ----------------------------------------------------------------------------------

@pytest.mark.attack("7", "a neighbour that makes another user's program look as if it were outside")
def test_a_neighbour_makes_nobody_look_outside(policed):
    """Stopped and traced programs, floods of programs outside, and false words beside an innocent program of Alice's."""
    lab = policed()
    lab.carve_json(ALICE, "session", "request", "--vram", "2")
    session = lab.carve_json(ALICE, "session", "list")[0]["id"]
    victims = [in_slice(lab, ALICE), in_slice(lab, ALICE, "--vram", "1", "--ephemeral")]
    traced = """
import ctypes, subprocess
libc = ctypes.CDLL(None)
for pid in map(int, sys.argv[1:]):
    print(libc.ptrace(16, pid, None, None), libc.kill(pid, 19), flush=True)
    for path in (f"/proc/{pid}/cgroup", f"/proc/{pid}/environ", f"/proc/{pid}/comm"):
        try: open(path, "w").write("x")
        except OSError: pass
"""
    pids = [victim.pid for victim in victims]
    assert lab.python(MALLORY, traced, *pids).stdout.split() == ["-1", "-1"] * 2
    liars = [outside(lab, MALLORY, env={"CARVE_SESSION": session}) for _ in range(4)]
    for liar in liars[:2]:
        liar.send_signal(signal.SIGSTOP)
    # Nothing that was stopped comes between a warning and its end.
    wait_until(lambda: all(liar.poll() is not None for liar in liars))
    assert stays(lab, *victims)
    assert f"owner={ALICE} " not in "\n".join(line for line in lab.log().splitlines() if "outside." in line)


@pytest.mark.attack("7", "a daemon and a program that are stopped for longer than the policy waits")
def test_a_pause_ends_nobody_who_is_about_to_attach(policed):
    lab = policed()
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    victim = in_slice(lab, ALICE)
    worker = lab.worker()
    os.kill(worker, signal.SIGSTOP)
    time.sleep(2 * SECONDS + 1)
    os.kill(worker, signal.SIGCONT)
    assert stays(lab, victim)
    lab.restart()  # the next daemon knows who is attached
    assert stays(lab, victim) and lab.carve_json(ALICE, "session", "show", session)["pids"]


def test_programs_in_namespaces_of_their_own_are_reported_alone(policed):
    """As those of containers: their PID and their users are others inside."""
    lab = policed()
    source = WITHOUT_FRONT.replace("sys.stdin.read()", "__import__('time').sleep(1000)")
    found = []
    for words in (["unshare", "--user", "--map-current-user"], ["unshare", "--user", "--map-current-user", "--pid", "--fork"]):
        found.append(begun(lab.python(ALICE, source, method=lambda uid, *argv, **kw: lab.popen(uid, *words, *argv, **kw))))  # noqa: B023
    wait_until(lambda: len([p for p in listed(lab).values() if p["spared"] == "namespace"]) == 2)
    assert stays(lab, *found)
    wait_until(lambda: lab.log().count("outside.reported") == 2)


def test_a_daemon_without_a_system_reports_alone(make_host, tmp_path):
    host = make_host("h100-80gb")
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"outside_policy": "kill", "outside_seconds": 2}))
    daemon = host.popen([CARVE.parent / "carved", "--runtime-dir", tmp_path / "run", "--config", config, "--foreground"])
    host.env["CARVE_RUNTIME_DIR"] = str(tmp_path / "run")
    wait_until(lambda: (tmp_path / "run" / "carved.sock").exists())
    assert "own daemon ends no program" in host.carve_json("outside")["problem"]
    daemon.terminate()
    daemon.communicate()


# ---- a worker that was broken into ----------------------------------------------------------------

@pytest.fixture
def broken(lab):
    worker = BrokenWorker(lab, lab.supervisor())
    yield worker
    worker.end()


MARKS = struct.Struct("<QQII16s")


@pytest.mark.attack("13", "a program of a user's that is in a slice or not on a GPU, by a worker that was broken into")
def test_the_warden_ends_as_outside_only_what_is(lab, broken):
    marks = MARKS.pack(0, 0, 0, ALICE, b"")

    def end(pid, marks=marks, uid=ALICE):
        return broken.ask(SIGNAL_OUTSIDE, signal_of(pid, signal.SIGKILL, uid) + marks, owner=uid)[0]
    idle = lab.popen(ALICE, "sleep", "1000")
    wait_until(lambda: pathlib.Path(f"/proc/{idle.pid}/comm").read_text() == "sleep\n")
    program, roots = outside(lab, ALICE), outside(lab, ROOT)
    named = outside(lab, ALICE, env={"CARVE_SESSION": "s-abcdef"})
    assert end(idle.pid) == errno.EACCES
    assert end(named.pid) == errno.EAGAIN
    assert end(roots.pid, MARKS.pack(0, 0, 0, ROOT, b""), ROOT) == errno.EPERM
    assert end(roots.pid) == errno.EPERM
    assert end(program.pid, MARKS.pack(0, 0, 0, BOB, b""), BOB) == errno.EPERM
    assert end(program.pid, MARKS.pack(0, 0, 0, BOB, b"")) == errno.EINVAL
    for spared in (1, 2, 8, 128):
        assert end(program.pid, MARKS.pack(0, 0, spared, ALICE, b"")) == errno.EINVAL
    for process in (idle, program, roots, named):
        assert process.poll() is None
    assert end(program.pid) == 0 and program.wait(30) == -signal.SIGKILL
    assert end(named.pid, MARKS.pack(0, 0, 16, ALICE, b"s-abcdef")) == 0 and named.wait(30) == -signal.SIGKILL
