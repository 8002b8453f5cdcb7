"""The attach socket and the life of attached processes, over a fake driver."""
import fcntl
import json
import mmap
import os
import pathlib
import pwd
import random
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest

from attach_client import STOPPED
from child import F_GET_SEALS, HERE, attached, make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, clean_env, rest_long, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures


def test_a_workload_gets_a_sealed_ledger_and_a_slot(daemon):
    session = daemon.grant(vram="4")
    a = Attached(daemon)
    assert a.ask(WORKLOAD, session["id"]) == (OK, 1, "")
    limits, books, wake = a.fds
    assert os.readlink(f"/proc/self/fd/{wake}") == "anon_inode:[eventfd]"
    assert [os.fstat(fd).st_mode & 0o777 for fd in (limits, books)] == [0o400, 0o600]
    for fd in (limits, books):
        assert fcntl.fcntl(fd, F_GET_SEALS) & 0x7 == 0x7  # seal, shrink, grow
        with pytest.raises(OSError):
            os.ftruncate(fd, 0)
    with pytest.raises(OSError):
        mmap.mmap(limits, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    page = mmap.mmap(limits, 4096, prot=mmap.PROT_READ)
    magic, version = struct.unpack_from("<IH", page)
    assert magic == 0x4d494c43 and version == 1
    assert page[16:56].rstrip(b"\0").decode() == session["id"]
    assert struct.unpack_from("<Q", page, 128 + 16)[0] == 4 * GIB
    assert page[128 + 64:128 + 112].rstrip(b"\0").decode() == session["gpus"][0]["uuid"]
    ledger = Ledger(books)
    assert ledger.slots == 256 and ledger.pid(1) == os.getpid() and ledger.state(1) == "live"
    assert daemon.show(session["id"])["pids"] == [os.getpid()]
    a.close()


def test_the_book_shows_in_the_api(daemon, make_child):
    session = daemon.grant(vram="4")
    child = make_child(daemon, session["id"])
    child.say(f"charge {MIB}")
    assert daemon.show(session["id"])["gpus"][0]["used_bytes"] == MIB


def test_requests_that_make_no_sense(daemon):
    session = daemon.grant(vram="4")["id"]
    cases = [
        (attach_message(WORKLOAD, "s-nobody"), NO_SESSION),
        (attach_message(WORKLOAD, session, magic=7), MALFORMED),
        (attach_message(WORKLOAD, session, version=9), VERSION),
        (attach_message(99, session), MALFORMED),
        (attach_message(0, session), MALFORMED),
        (attach_message(WORKLOAD, "x" * 40), MALFORMED),
        (attach_message(SETTLE, session), MALFORMED),
        (attach_message(SWEEP, session), MALFORMED),
        (attach_message(RESUME, session, slot=1), MALFORMED),
        (attach_message(RESUME, session, slot=1 << 31), MALFORMED),
        (b"x", MALFORMED),
        (attach_message(WORKLOAD, session) + b"x", MALFORMED),
        (attach_message(WORKLOAD, session)[:-1], MALFORMED),
    ]
    for message, status in cases:
        a = Attached(daemon)
        a.send(message)
        assert a.receive()[0] == status, message
        assert a.fds == []
        a.close()
    assert daemon.show(session)["pids"] == []


def test_random_messages(daemon):
    dice = random.Random(4711)
    session = daemon.grant(vram="4")["id"]
    good = attach_message(WORKLOAD, session)
    for _ in range(400):
        message = bytearray(good)
        for _ in range(dice.randint(1, 12)):
            message[dice.randrange(len(message))] = dice.randrange(256)
        a = Attached(daemon)
        a.send(bytes(message[:dice.randint(0, 80)]))
        a.close()
    assert daemon.call("GET", "/v1/version").json["pid"] == daemon.pid
    # Some were still good, and this process lives.
    assert set(daemon.show(session)["pids"]) <= {os.getpid()}


@pytest.fixture
def old_kernel_daemon(make_daemon, monkeypatch):
    """A daemon that sees a kernel of before Linux 6.16, which cannot refuse descriptors."""
    env = Daemon.env
    monkeypatch.setattr(Daemon, "env", lambda self: {
        **env(self), "LD_PRELOAD": str(BUILD / "tests/programs/libold_kernel.so")})
    return make_daemon()


def refuses_descriptors():
    """Whether this machine's kernel can (SO_PASSRIGHTS)."""
    try:
        socket.socket(socket.AF_UNIX).setsockopt(socket.SOL_SOCKET, 83, 0)
        return True
    except OSError:
        return False


@pytest.mark.skipif(not refuses_descriptors(), reason="needs Linux 6.16")
@pytest.mark.parametrize("name, kind", [("carved.sock", socket.SOCK_STREAM), ("attach.sock", socket.SOCK_SEQPACKET)])
def test_descriptors_that_a_client_sends_are_refused(daemon, name, kind):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.connect(str(daemon.runtime / name))
        with pytest.raises(PermissionError):
            socket.send_fds(s, [b"x"], [0])


def test_descriptors_that_a_client_sends_are_dropped(old_kernel_daemon):
    daemon = old_kernel_daemon
    session = daemon.grant(vram="4")["id"]
    count = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    a = Attached(daemon)
    for _ in range(20):
        socket.send_fds(a.socket, [attach_message(OBSERVE, session)], [0, 1, 2])
        assert a.receive()[0] == OK
    # The connection, the limits as the daemon has them and as others do, the ledger, what wakes the lease thread, and the
    # connection to the keeper.
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= count + 6)
    a.close()


def test_slots_run_out(daemon):
    session = daemon.grant(vram="4")["id"]
    attached = [Attached(daemon) for _ in range(256)]
    assert [a.ask(WORKLOAD, session)[0] for a in attached] == [OK] * 255 + [FULL]
    for a in attached:
        a.close()


def test_a_command_whose_container_has_stopped_does_not_hold_a_session(daemon):
    """It may say so, and take it back, as often as it likes. It keeps an ephemeral session, which would end."""
    script = ("import sys; sys.path.insert(0, %r)\nfrom attach_client import *\n"
              "class D: runtime = __import__('pathlib').Path(%r)\n"
              "for id, flags in map(str.split, sys.stdin): print(Attached(D).ask(COMMAND, id, flags=int(flags))[0], flush=True)")
    with subprocess.Popen(["/usr/bin/python3", "-c", script % (HERE, str(daemon.runtime))], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=clean_env({"PYTHONDONTWRITEBYTECODE": "1"})) as command:
        def says(session, flags):
            print(session, flags, file=command.stdin, flush=True)
            return int(command.stdout.readline())

        session, one_off = (daemon.grant(vram="1", ephemeral=ephemeral)["id"] for ephemeral in (False, True))
        for _ in range(2):
            assert says(session, 0) == OK and daemon.release(session).status == 409
            daemon.restart()
            assert says(session, STOPPED) == OK and says(session, STOPPED) == OK
        assert says(one_off, 0) == OK and says(one_off, STOPPED) == OK
        assert daemon.release(one_off).status == 409
        daemon.restart()
        answer = daemon.release(session)
        assert answer.status == 200, answer.json
        assert daemon.show(one_off)["state"] == "active"
        command.stdin.close()


@pytest.mark.usefixtures("another_user")
def test_another_user_cannot_attach(make_daemon):
    daemon = make_daemon(args=["--system"])
    session = daemon.grant(vram="4")["id"]
    os.chmod(daemon.dir, 0o755)
    script = ("import sys; sys.path.insert(0, %r)\nfrom attach_client import *\n"
              "class D: runtime = __import__('pathlib').Path(%r)\n"
              "print(*(Attached(D).ask(k, %r)[0] for k in (WORKLOAD, OBSERVE, COMMAND, RESUME)))")
    done = subprocess.run(["/usr/bin/python3", "-c", script % (HERE, str(daemon.runtime), session)],
                          user=65534, group=65534, stdout=subprocess.PIPE, text=True, timeout=60,
                          env=clean_env({"PYTHONDONTWRITEBYTECODE": "1"}))
    assert done.stdout.split() == [str(NOT_PERMITTED)] * 4


@pytest.mark.parametrize("text, wrong", [
    ("{}", None),
    ('{"timeSlicing": {"mode": "fair"}, "global": {"core": {"timeSlicing": {"mode": "fair", "lease": "50ms"}}}}', None),
    ('{"over_seconds": 5, "over_tolerance": "1.5GiB"}', None), ("", "line"), ("[]", "object"),
    ('{"over_tolerance": 0}', None), ('{"over_tolerance": "0"}', None), ('{"over_tolerance": "0B"}', None),
    ('{"over_tolerance": 1}', "over_tolerance"), ('{"over_tolerance": "1"}', "over_tolerance"),
    ('{"timeSlicing": {"mode": "fair", "lease": 250}}', 'lease takes a string such as "250ms"'),
    ('{"timeSlicing": {"mode": null}}', "timeSlicing: mode is null"),
    ("timeSlicing:\n  mode: fair\n", "it is JSON, as"), ('\n {"over_seconds"}', "line 2: ':' expected"),
    ('{"timeSlicing": {"granularity": 5}}', "granularity: '5' is outside 1% to 50%"),
    ('{"timeSlicing": {"mode": 5}}', 'mode takes a string such as "fair"'),
    ('{"history_sessions": 0}', None), ('{"history_sessions": -1}', "history_sessions"),
    ('{"history_sessions": 1.5}', "history_sessions"), ('{"over_seconds": 3} x', "line 1"),
    ('{"over_policy": 1}', "over_policy"), ('{"over_tolerance": "-1MiB"}', "over_tolerance"),
    ('{"over_tolerance": "nanMiB"}', "over_tolerance"), ('{"over_seconds": 0}', "over_seconds"),
    ('{"state_dir": "state"}', "absolute path"), ('{"state_dir": 3}', "absolute path"), ('{"state_dir": "/x"}', None),
    ('{"show_owners": "group"}', None), ('{"show_owners": "friends"}', 'show_owners takes "none", "group" or "all"'),
    ('{"show_owners": true}', 'show_owners takes "none", "group" or "all"'),
    ('{"colour": "red"}', "unknown key 'colour'; there are over_policy, "), ('{"colour": "red"}', ", ...\n"),
    ('{"idle_timout": "2h"}', "unknown key 'idle_timout'; did you mean 'idle_timeout'?\n"),
    ('{"timeSlicing": {"laese": "5ms"}}', "unknown field 'laese'; time-slicing takes mode, lease, granularity\n"), ('{"over_seconds": 2, "over_seconds": 3}', "line")])
def test_check_config(tmp_path, text, wrong):
    config = tmp_path / "config.json"
    config.write_text(text)
    done = subprocess.run([BUILD / "carved", "--config", config, "--check-config"],
                          capture_output=True, text=True, timeout=60, env=clean_env())
    assert done.returncode == (2 if wrong else 0)
    assert (wrong or "") in done.stderr
    assert done.stdout == ("" if wrong else f"carved: {config} is right\n")


def test_a_configuration_that_is_a_pipe_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = subprocess.run([BUILD / "carved", "--config", tmp_path / "pipe", "--check-config"],
                          capture_output=True, text=True, timeout=60, env=clean_env())
    assert done.returncode == 2 and "it is a pipe" in done.stderr


UNKNOWN = {"idle_exempt": {"users": ["root", "nobody-42", 7], "groups": ["no-lab"]}, "outside_exempt": {"users": ["no-ci"], "groups": ["root", "no-video"]},
           "mig_share_group": "no-mates", "metrics": {"listen": "127.0.0.1:9400", "token_file": "/nowhere/token", "readers": "no-readers",
                                                      "tls": {"cert": "/nowhere/cert", "key": "/", "client_ca": "/etc/passwd"},
                                                      "job_mapping_dir": "/nowhere/dcgm"}}
NOTES = ["idle_exempt.users: this machine knows no user nobody-42; until it does, no session is released for being idle",
         "idle_exempt.groups: this machine knows no group no-lab; until it does, no session is released for being idle",
         "outside_exempt.users: this machine knows no user no-ci; until it does, no program outside carve is ended",
         "outside_exempt.groups: this machine knows no group no-video; until it does, no program outside carve is ended",
         "mig_share_group: /etc/group has no group no-mates; until it has, users share no MIG instances",
         "metrics.readers: /etc/group has no group no-readers; until it has, only administrators see all sessions in metrics",
         "metrics.token_file: carve-metrics cannot read /nowhere/token: No such file or directory",
         "metrics.tls.cert: carve-metrics cannot read /nowhere/cert: No such file or directory",
         "metrics.tls.key: carve-metrics cannot read /: Is a directory",
         "metrics.job_mapping_dir: the daemon cannot write in /nowhere/dcgm: No such file or directory"]


def test_check_config_warns_of_names_and_files_that_the_machine_does_not_have(tmp_path):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps(UNKNOWN))
    done = subprocess.run([BUILD / "carved", "--config", config, "--check-config"], capture_output=True, text=True, timeout=60, env=clean_env())
    assert (done.returncode, done.stdout) == (0, f"carved: {config} is right\n")
    assert done.stderr.splitlines() == [f"carved: warning: {note}" for note in NOTES]


@pytest.mark.parametrize("mode, right", [(0o700, True), (0o500, False), (0o777, False)])
def test_check_config_warns_of_a_directory_that_the_daemon_cannot_write_in(mode, right):
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="carved-test-") as place:
        os.chmod(place, 0o755)
        config, dcgm = pathlib.Path(place, "carved.json"), pathlib.Path(place, "dcgm")
        dcgm.mkdir()
        os.chown(dcgm, pwd.getpwnam(user).pw_uid, -1)
        dcgm.chmod(mode)
        config.write_text(json.dumps({"metrics": {"job_mapping_dir": str(dcgm)}}))
        done = subprocess.run([BUILD / "carved", "--config", config, "--check-config", "--user", user], capture_output=True, text=True, timeout=60,
                              env=clean_env())
        assert done.returncode == 0 and (done.stderr == "") == right, done.stderr
        assert right or f"metrics.job_mapping_dir: the daemon cannot write in {dcgm}: " in done.stderr


def test_the_daemon_notes_names_and_files_that_the_machine_does_not_have(make_daemon, tmp_path):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps(UNKNOWN))
    daemon = make_daemon(args=["--config", config])
    wait_until(lambda: sorted(daemon.call("GET", "/v1/version").json["config_notes"]) == sorted(NOTES))
    check = subprocess.run([BUILD / "carve", "check", "-v"], capture_output=True, text=True, timeout=60,
                           env=clean_env({"CARVE_RUNTIME_DIR": str(daemon.runtime)}))
    assert "this machine knows no user nobody-42" in " ".join(check.stdout.split()), check.stdout
    config.write_text("{}")
    daemon.reload()
    wait_until(lambda: daemon.call("GET", "/v1/version").json["config_notes"] == [])


def test_check_config_without_a_file():
    done = subprocess.run([BUILD / "carved", "--check-config"], capture_output=True, text=True, timeout=60,
                          env=clean_env())
    assert done.returncode == 0 and "nothing to check: without --config FILE" in done.stdout


# ---- death ----

@pytest.mark.timed
def test_a_killed_process_gives_its_memory_back(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    ledger, took = observe(daemon, session), []
    for _ in range(3):
        child = make_child(daemon, session)
        child.say(f"charge {GIB}")
        daemon.processes = [(0, child.pid, GIB)]
        daemon.write_state()
        child.kill()
        wait_until(lambda: ledger.state(child.slot) == "dead")
        time.sleep(0.3)
        assert ledger.committed() == GIB  # the driver has not freed it yet
        daemon.processes = []
        daemon.write_state()
        start = time.monotonic()
        wait_until(lambda: ledger.committed() == 0)
        took.append(time.monotonic() - start)
        wait_until(lambda: ledger.state(child.slot) == "free")
    assert sorted(took)[1] < 1, took


def test_a_session_names_the_ended_processes_whose_memory_the_driver_still_has(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = holds_a_gib(daemon, make_child, session)
    assert daemon.show(session)["ended_pids"] == []
    child.kill()
    wait_until(lambda: daemon.show(session)["pids"] == [])
    shown = daemon.show(session)
    assert shown["ended_pids"] == [child.pid] and shown["gpus"][0]["used_bytes"] == GIB
    text = subprocess.run([BUILD / "carve", "--host", str(daemon.runtime / "carved.sock"), "session", "show", session], capture_output=True, text=True,
                          env=clean_env()).stdout
    assert re.search(rf"^ended: .* memory of process {child.pid}$", text, re.M), text
    daemon.processes = []
    daemon.write_state()
    wait_until(lambda: daemon.show(session)["gpus"][0]["used_bytes"] == 0)
    assert daemon.show(session)["ended_pids"] == []


def test_a_forked_child_keeps_the_memory_of_its_killed_parent(daemon, make_child):
    session, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    grandchild = int(child.say("fork"))
    child.kill()
    wait_until(lambda: ledger.state(child.slot) == "dead")
    time.sleep(0.5)
    assert ledger.committed() == GIB
    assert daemon.show(session)["state"] == "active"
    os.kill(grandchild, signal.SIGKILL)
    wait_until(lambda: ledger.committed() == 0)


# ---- what is on its way back ----

def answered(a, within):
    return bool(select.select([a.socket], [], [], within)[0])


def holds_a_gib(daemon, make_child, session):
    """A process that has charged it, and that the driver says it of."""
    child = make_child(daemon, session)
    child.say(f"charge {GIB}")
    daemon.processes = [(0, child.pid, GIB)]
    daemon.write_state()
    return child


@pytest.fixture
def asker(daemon):
    """A session of 4 GiB, its ledger, and a process of it (this one) that asks."""
    session = daemon.grant(vram="4")["id"]
    a = Attached(daemon)
    assert a.ask(WORKLOAD, session)[0] == OK
    yield session, observe(daemon, session), a
    a.close()


def test_an_allocation_without_room_waits_for_memory_of_ended_processes(daemon, make_child, asker):
    session, ledger, a = asker
    child = holds_a_gib(daemon, make_child, session)
    child.kill()
    a.send(attach_message(SWEEP, session))
    assert not answered(a, 0.3)
    a.send(attach_message(SWEEP, session))
    assert a.receive()[0] == MALFORMED  # one question at a time
    assert ledger.committed() == GIB and not answered(a, 0)
    daemon.processes = []
    daemon.write_state()
    assert a.receive()[0] == OK and ledger.committed() == 0


def test_an_allocation_without_room_does_not_wait_for_living_processes(daemon, make_child, asker):
    session, ledger, a = asker
    child = holds_a_gib(daemon, make_child, session)
    assert [a.ask(SWEEP, session) for _ in range(100)] == [(OK, 1, "")] * 100
    # Nor for a child of the dead that has it now.
    grandchild = int(child.say("fork"))
    child.kill()
    assert a.ask(SWEEP, session)[0] == OK and ledger.committed() == GIB
    daemon.processes = []
    daemon.write_state()
    os.kill(grandchild, signal.SIGKILL)
    wait_until(lambda: ledger.committed() == 0)


def test_a_wait_for_memory_that_the_driver_keeps_is_bounded(daemon, make_child, asker):
    session, ledger, a = asker
    child = holds_a_gib(daemon, make_child, session)
    child.kill()
    assert a.ask(SWEEP, session)[0] == OK and ledger.committed() == GIB
    # From then on at once: the driver is not even asked.
    daemon.delay = 7000
    daemon.write_state()
    time.sleep(1.2)
    start = time.monotonic()
    assert a.ask(SWEEP, session)[0] == OK
    assert time.monotonic() - start < 5
    daemon.delay, daemon.processes = 0, []
    daemon.write_state()
    wait_until(lambda: ledger.committed() == 0)


def test_a_process_without_a_slot_gets_that_of_one_that_just_ended(daemon):
    session = daemon.grant(vram="4")["id"]
    script = f"""
import sys, time
sys.path.insert(0, {HERE!r})
from attach_client import *
class D: runtime = __import__('pathlib').Path({str(daemon.runtime)!r})
attached = [Attached(D) for _ in range(255)]
assert all(a.ask(WORKLOAD, {session!r})[0] == OK for a in attached)
print("full", flush=True)
time.sleep(1000)
"""
    child = subprocess.Popen(["/usr/bin/python3", "-c", script], stdout=subprocess.PIPE, env=clean_env())
    assert child.stdout.readline() == b"full\n"
    a = Attached(daemon)
    assert a.ask(WORKLOAD, session)[0] == FULL
    child.kill()
    child.wait()
    assert a.ask(WORKLOAD, session)[0] == OK
    assert daemon.show(session)["pids"] == [os.getpid()]
    a.close()
    child.stdout.close()


def test_a_driver_that_fails_does_not_hold_memory_for_ever(daemon, make_child):
    _, child, ledger = attached(daemon, make_child)
    child.say(f"charge {GIB}")
    daemon.failing = True
    daemon.write_state()
    start = time.monotonic()
    child.kill()
    time.sleep(1)
    committed = ledger.committed()
    if time.monotonic() - start < 3:
        assert committed == GIB
    wait_until(lambda: ledger.committed() == 0)


def test_memory_of_an_ended_session_goes_back_when_the_driver_has_it(daemon, make_child):
    session = daemon.grant(vram="60")["id"]
    child = make_child(daemon, session)
    daemon.processes = [(0, child.pid, 50 * GIB)]
    daemon.write_state()
    child.kill()
    wait_until(lambda: daemon.show(session)["pids"] == [])
    assert daemon.release(session).status == 200
    refused = daemon.request(vram="60")
    assert refused.status == 409 and "hold 50 GiB" in refused.error["message"]
    daemon.processes = []
    daemon.write_state()
    time.sleep(0.25)
    daemon.grant(vram="60")


def test_one_off_ends_when_the_last_attached_process_does(daemon, make_child):
    from own_daemon import ask_in_child
    owner, session = ask_in_child(daemon, {"vram": "1", "ephemeral": True}, "")
    child = make_child(daemon, session["id"])
    owner.kill()
    owner.wait()
    time.sleep(0.3)
    assert daemon.show(session["id"])["state"] == "active"
    child.kill()
    wait_until(lambda: daemon.show(session["id"])["state"] == "ended")


# ---- release and time-out with processes inside ----

def test_release_with_processes_inside(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    refused = daemon.release(session)
    assert refused.status == 409 and str(child.pid) in refused.error["message"]
    assert daemon.release(session, force=True).json["state"] == "released"
    assert child.process.wait(60) == -signal.SIGTERM
    assert daemon.show(session)["reason"] == "released by force"


def test_release_by_force_of_a_process_that_ignores_sigterm(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session, stubborn=True)
    start = time.monotonic()
    assert daemon.release(session, force=True).status == 200
    assert 2.5 < time.monotonic() - start < 30
    assert child.process.wait(60) == -signal.SIGKILL


def test_time_out_ends_the_processes_inside(daemon, make_child):
    for seconds in (3, 30):  # enough for a child to start, also on a busy machine
        session = daemon.grant(vram="4", session_timeout=seconds)["id"]
        child = make_child(daemon, session)
        if child.status == OK:
            break
    assert child.process.wait(60) == -signal.SIGTERM
    wait_until(lambda: daemon.show(session)["state"] == "ended")


# ---- restarts ----

def test_shrinking_below_use_is_refused(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    child.say(f"charge {2 * GIB}")
    path = f"/v1/sessions/{session}"
    refused = daemon.call("PATCH", path, {"vram": "1"})
    assert refused.status == 409 and "2 GiB are in use" in refused.error["message"]
    assert daemon.call("PATCH", path, {"vram": "2"}).status == 200


def test_ledgers_survive_a_kill_of_the_daemon(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    first, second = make_child(daemon, session), make_child(daemon, session)
    ledger = observe(daemon, session)
    first.say(f"charge {GIB}")
    second.say(f"charge {MIB}")
    daemon.kill()
    second.say(f"charge {MIB}")  # workloads go on without it
    daemon.start()
    shown = daemon.show(session)
    assert sorted(shown["pids"]) == sorted([first.pid, second.pid])
    assert shown["gpus"][0]["used_bytes"] == GIB + 2 * MIB
    assert ledger.committed() == GIB + 2 * MIB  # the very same memory
    third = make_child(daemon, session)
    assert third.slot == 3
    second.kill()
    wait_until(lambda: ledger.committed() == GIB)
    assert first.say("resume") == str(OK)
    assert first.say("settle") == str(OK)
    # A resize reaches the limits that the old daemon made.
    assert daemon.call("PATCH", f"/v1/sessions/{session}", {"vram": "6"}).status == 200
    assert daemon.show(session)["vram_bytes"] == 6 * GIB


def test_a_process_that_died_without_a_daemon_is_found_out(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    first, second = make_child(daemon, session), make_child(daemon, session)
    first.say(f"charge {GIB}")
    second.say(f"charge {MIB}")
    daemon.kill()
    first.kill()
    daemon.start()
    wait_until(lambda: daemon.show(session)["gpus"][0]["used_bytes"] == MIB)
    assert daemon.show(session)["pids"] == [second.pid]


@pytest.mark.parametrize("kills", rest_long([10, 50]))
def test_many_kills_of_the_daemon(daemon, make_child, kills):
    """No session lost or invented, and the books stay those of the living."""
    sessions = {}
    for i in range(kills):
        if i % (kills // 5) == 0:
            session = daemon.grant(vram="2")["id"]
            sessions[session] = make_child(daemon, session)
        some = random.Random(i).choice(list(sessions.values()))
        some.say(f"charge {MIB}")
        daemon.restart()
    shown = {s["id"]: s for s in daemon.call("GET", "/v1/sessions").json}
    assert set(shown) == set(sessions)
    assert sum(s["gpus"][0]["used_bytes"] for s in shown.values()) == kills * MIB
    assert all(s["pids"] == [sessions[id].pid] for id, s in shown.items())
    assert daemon.gpu()["available_bytes"] == 70 * GIB


# ---- a database that is of no use: running sessions keep their limits ----

def limit_of(daemon, session):
    a = Attached(daemon)
    assert a.ask(OBSERVE, session)[0] == OK
    limit, = struct.unpack_from("<Q", mmap.mmap(a.fds[0], 4096, prot=mmap.PROT_READ), 128 + 16)
    a.close()
    return limit


def test_a_database_that_is_damaged_while_it_is_used(daemon, make_child):
    session = daemon.grant(vram="4")["id"]
    child = make_child(daemon, session)
    free = daemon.gpu()["available_bytes"]
    for file in daemon.runtime.glob("carve.db*"):
        with open(file, "r+b") as f:
            f.write(b"\xff" * file.stat().st_size)
    refused = daemon.request(vram="1")
    assert refused.status == 409 and "the session cannot be recorded: " in refused.error["message"]
    gpu = daemon.gpu()
    assert gpu["available_bytes"] == free and gpu["sessions"] == 1
    assert child.say(f"charge {MIB}") == "ok" and limit_of(daemon, session) == 4 * GIB
    assert [s["id"] for s in daemon.call("GET", "/v1/sessions").json] == [session]
    daemon.kill()
    for file in daemon.runtime.glob("carve.db*"):
        file.unlink()
    daemon.start()


@pytest.mark.alone
def test_a_database_that_cannot_be_written(make_daemon, make_child, tmp_path):
    """Read-only when a daemon starts: it says so; workloads go on, and are taken up again when it can be written."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", place],
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("cannot mount a file system here")
    daemon = Daemon(dir=tmp_path)
    try:
        daemon.process.terminate()
        daemon.process.wait(60)
        daemon.runtime = place / "run"
        daemon.start()
        session = daemon.grant(vram="4")["id"]
        child = make_child(daemon, session)
        daemon.kill()
        assert subprocess.run(["mount", "-o", "remount,ro", place]).returncode == 0
        daemon.start(wait=False)
        assert daemon.process.wait(60) == 1
        assert "Read-only file system" in daemon.log() or "cannot be written" in daemon.log()
        assert child.say(f"charge {MIB}") == "ok"
        assert subprocess.run(["mount", "-o", "remount,rw", place]).returncode == 0
        daemon.start()
        assert limit_of(daemon, session) == 4 * GIB
        assert daemon.show(session)["gpus"][0]["used_bytes"] == MIB
        assert daemon.gpu()["available_bytes"] == 76 * GIB
    finally:
        daemon.kill()
        subprocess.run(["umount", "-l", place], check=True)


def test_descriptors_that_are_no_ledger_are_left_alone(old_kernel_daemon, tmp_path):
    """Whatever a client shows is not opened, nor its mode changed."""
    daemon = old_kernel_daemon
    session = daemon.grant(vram="4")["id"]
    file = tmp_path / "file"
    file.write_bytes(b"x" * 65536)
    file.chmod(0o640)
    shown = [os.open(file, os.O_PATH), os.open(file, os.O_RDONLY), os.open("/dev/null", os.O_RDONLY), os.pipe()[0],
             os.memfd_create(f"carve-limits:{session}", os.MFD_ALLOW_SEALING)]
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    for kind in (RESUME, SETTLE, OBSERVE):
        for one in shown:
            a = Attached(daemon)
            socket.send_fds(a.socket, [attach_message(kind, session, slot=1)], [one] * (1 + len(shown)))
            assert a.receive()[0] == (OK if kind == OBSERVE else MALFORMED)
            a.close()
    assert file.stat().st_mode & 0o777 == 0o640
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before + 6)  # its ledger and keeper, no more
    for fd in shown:
        os.close(fd)


def test_descriptors_in_empty_messages_are_closed(old_kernel_daemon):
    """As in any other that is not understood: nobody can fill the daemon's table with them."""
    daemon = old_kernel_daemon

    def held():
        return len(os.listdir(f"/proc/{daemon.pid}/fd"))

    assert daemon.call("GET", "/v1/version").status == 200
    before = held()
    with open("/dev/null") as null:
        for _ in range(20):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(str(daemon.runtime / "attach.sock"))
                socket.send_fds(s, [b""], [null.fileno()] * 2)
                s.settimeout(60)
                s.recv(1)  # it hangs up: the message was seen
    # A sample may be under way, which opens files for a moment; what the messages had would stay.
    wait_until(lambda: held() <= before + 1)
