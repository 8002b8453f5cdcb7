"""Whoever dies, whenever: survivors never wait, and what is used is what the driver says the living hold. Judged by
the driver's own books (`carve sim stat`). CARVE_TEST_KILLS, CARVE_TEST_STATES and CARVE_TEST_STRIDE
make it longer: scripts/soak; CARVE_TEST_SEED makes it another one."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from conftest import BUILD, PATIENCE, rest_long, run, wait_until
from driven import OK, OUT_OF_MEMORY, Driven, driven, on_gpu, peak, session  # noqa: F401: fixtures
from programs import SOURCES

MIB = 1 << 20
GIB = 1 << 30
PROGRAMS = BUILD / "tests/programs"
SEED = int(os.environ.get("CARVE_TEST_SEED", 1))
KILLS = int(os.environ.get("CARVE_TEST_KILLS", 300))
# Each how-manieth state of the world a process is killed in, and each how-manieth instruction of the front it is killed
# at, from a random one on.
STATES = {"tight": 15, "attach": 11, "vmm": 3, "array": 3}
STRIDES = {"linear": 397, "vmm": 331, "pool": 397, "tight": 3997, "array": 251, "attach": 1597, "context": 1499, "fork": 97,
           "exported": 997, "local": 1997}


def used(host, session):
    """By carve's books."""
    return host.carve_json("session", "show", session)["gpus"][0]["used_bytes"]


def driver_bytes(host, pid):
    return sum(p["memory_bytes"] for g in host.stat()["gpus"] for p in g["processes"] if p["pid"] == pid)


def agree(host, session):
    return used(host, session) == on_gpu(host)


def nothing_is_left(host, session):
    """Both books say so, and all of it can be had again."""
    wait_until(lambda: used(host, session) == on_gpu(host) == 0)
    assert host.carve_json("session", "show", session)["pids"] == []
    whole = Driven(host, "--session", session)
    assert whole.say("device 0") == OK and whole.say(f"take linear {whole.room()}") == OK
    assert on_gpu(host) == host.carve_json("session", "show", session)["vram_bytes"]
    whole.close()


# A kill at each of many instructions takes a minute where single steps are slow: one scenario belongs to the gate.
@pytest.mark.parametrize("scenario", [s if s == "linear" else pytest.param(s, marks=pytest.mark.long) for s in STRIDES])
@pytest.mark.once("the front's steps; random kills are the same to the daemon")
def test_killed_at_any_instruction_of_the_front(host, scenario):
    session = host.carve_json("session", "request", "--vram", "4")["id"]
    stride = int(os.environ.get("CARVE_TEST_STRIDE", STRIDES[scenario]))
    states = int(os.environ.get("CARVE_TEST_STATES", STATES.get(scenario, 5)))
    chance = random.Random(SEED)
    for what in (["states", states, chance.randrange(states)], [stride, chance.randrange(stride)]):
        done = host.carve("run", "--session", session, "--", PROGRAMS / "death_tracer", scenario, *what,
                          env={"LD_BIND_NOW": "1"}, timeout=None)
        assert done.returncode == 0, done.stderr
        kills, instructions = map(int, done.stdout.split())
        assert kills > 2 and instructions > 1000
        # The next one asks first thing how much there is.
        wait_until(lambda: used(host, session) == 0)
    nothing_is_left(host, session)
    assert host.stat()["gpus"][0]["memory_peak_bytes"] <= 4 * GIB


@pytest.mark.parametrize("pools, share", rest_long([(["pools"], 1 / 6), (["pools"], 1 / 3), ([], 2 / 3)]))
def test_random_kills_under_load(host, pools, share):
    session = host.carve_json("session", "request", "--vram", "4")["id"]
    kills, seed = int(KILLS * share), random.Random(SEED).randrange(1 << 30)
    done = host.carve("run", "--session", session, "--", PROGRAMS / "death_load", kills, seed, *pools, timeout=None)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    operations, _, _ = map(int, done.stdout.split())
    assert operations > 10 * kills
    nothing_is_left(host, session)
    assert host.stat()["gpus"][0]["memory_peak_bytes"] <= 4 * GIB


# Ways to end, and what is taken so.
ROOM = {"killed": ["linear", "vmm", "async", "graph"], "exited": ["linear", "array", "pool", "module"],
        "execed": ["linear", "mapped", "async"], "parent": ["linear", "managed", "pool", "module"]}


@pytest.mark.parametrize("beside", rest_long([["bystander"], []]), ids=["beside-another", "alone"])
@pytest.mark.parametrize("how, family", [case for how in ROOM for case in rest_long([(how, family) for family in ROOM[how]], 2)])
def test_room_that_the_dead_leave_is_there_at_once(host, how, family, beside):
    rounds = 40 if family == "linear" else 5
    done = host.carve("run", "--vram", "2", "--", PROGRAMS / "death_room", how, family, rounds, *beside, timeout=None)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 400 * MIB
    assert peak(host) <= 2 * GIB
    wait_until(lambda: on_gpu(host) == 0)


def refusals_counted(d, log, count):
    """System calls of so many refusals, by name."""
    trace = subprocess.Popen(["strace", "-f", "-c", "-o", log, "-p", str(d.pid)], stdin=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
    if "attached" not in trace.stderr.readline():
        pytest.skip("strace is not permitted here")
    for _ in range(count):
        assert d.say(f"take linear {100 * MIB}") == OUT_OF_MEMORY
    trace.send_signal(signal.SIGINT)
    trace.communicate(timeout=60)
    lines = [line.split() for line in log.read_text().splitlines()[2:-2]]
    # The other calls of the test's program and the simulated driver.
    return {words[-1]: int(words[3]) for words in lines if words[-1] not in ("read", "write", "getpid", "recvfrom")}


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.once("the front's calls")
@pytest.mark.needs_sim("counts the driver's system calls, too")
def test_a_refusal_costs_one_question(host, driven, session, tmp_path):
    """In system calls (docs/dev/front.md): one question where others hold what is missing; and one of the driver, which is a message
    and its answer here."""
    mine = driven("--session", session)
    assert mine.say(f"take linear {mine.room()}") == OK
    assert refusals_counted(mine, tmp_path / "alone", 50) == {"sendmsg": 50, "recvmsg": 50}
    assert mine.say("give") == OK
    other = driven("--session", session)
    assert mine.say(f"take linear {mine.room()}") == OK
    counted = refusals_counted(mine, tmp_path / "beside", 50)
    assert counted == {"poll": 50, "prctl": 50, "statx": 50, "sendmsg": 100, "recvmsg": 100}


def test_a_daemon_that_hangs_holds_refusals_up_once(host, driven, session):
    mine, other = driven("--session", session), driven("--session", session)
    assert mine.say(f"take linear {mine.room()}") == OK
    daemon = host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        assert mine.say(f"take linear {100 * MIB}") == OUT_OF_MEMORY
        start = time.monotonic()
        for _ in range(20):
            assert mine.say(f"take linear {100 * MIB}") == OUT_OF_MEMORY
        assert time.monotonic() - start < PATIENCE  # each would wait for 8 s
    finally:
        os.kill(daemon, signal.SIGCONT)
    # It goes on, and is asked again.
    wait_until(lambda: mine.say(f"take linear {100 * MIB}") == OUT_OF_MEMORY and agree(host, session))
    os.kill(other.pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{other.pid}"))
    assert mine.say(f"take linear {100 * MIB}") == OK
    assert mine.say("give") == mine.say("context") == OK and agree(host, session)


def test_a_forked_child_is_not_charged_and_keeps_what_the_driver_keeps(host, driven, session):
    mine = driven("--session", session)
    assert mine.say(f"take linear {100 * MIB}") == OK
    child = mine.say("fork")
    assert agree(host, session)
    held = on_gpu(host)
    os.kill(mine.pid, signal.SIGKILL)
    wait_until(lambda: mine.pid not in host.carve_json("session", "show", session)["pids"])
    # The driver's memory lives on with the child, and so does the charge.
    assert used(host, session) == on_gpu(host) == held
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: used(host, session) == on_gpu(host) == 0)


def test_exec_gives_everything_back_and_begins_anew(host, driven, session):
    mine, other = driven("--session", session), driven("--session", session)
    assert mine.say(f"take linear {300 * MIB}") == mine.say(f"take vmm {100 * MIB}") == OK
    assert mine.say("exec") == mine.pid
    wait_until(lambda: used(host, session) == on_gpu(host) == driver_bytes(host, other.pid) > 0)
    assert mine.say("device 0") == OK
    assert mine.say(f"take linear {mine.room()}") == OK
    assert used(host, session) == on_gpu(host) == 2 * GIB
    assert mine.say("exec") == mine.pid
    wait_until(lambda: used(host, session) == driver_bytes(host, other.pid))


def test_threads_share_one_account(host, driven, session):
    mine = driven("--session", session)
    room, held = mine.room(), on_gpu(host)
    for family in ("linear", "vmm", "array") + ("async",) * 8:
        assert mine.say(f"threads 8 {family} {20 * MIB}") == OK
    assert (mine.room(), on_gpu(host)) == (room, held)
    assert host.carve_json("session", "show", session)["pids"] == [mine.pid]


def test_contexts_and_what_goes_with_them(host, driven, session):
    mine = driven("--session", session)
    room, held = mine.room(), on_gpu(host)
    assert mine.say("context") == OK
    assert agree(host, session)
    for family in ("linear", "array", "pitch", "managed"):
        assert mine.say(f"take {family} {20 * MIB}") == OK
    assert agree(host, session) and on_gpu(host) > held + 80 * MIB
    # Destroyed with live memory in it: all of that is gone.
    assert mine.say("destroy") == mine.say("forget") == OK
    assert agree(host, session) and on_gpu(host) == held
    assert mine.say("device 0") == OK and mine.room() == room
    assert mine.say(f"take linear {room}") == OK
    assert mine.say("reset 0") == mine.say("forget") == OK
    wait_until(lambda: agree(host, session))
    assert on_gpu(host) < held
    assert mine.say("device 0") == OK
    assert (mine.room(), on_gpu(host)) == (room, held)
    assert mine.say(f"take linear {room}") == OK


def test_pid_reuse_harms_nobody():
    """In a PID namespace, where a PID can be asked for."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*namespace, "sh", "-c", "echo 9 > /proc/sys/kernel/ns_last_pid"], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs to make a PID namespace")
    done = run([*namespace, BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", "/usr/bin/python3", SOURCES / "pid_reuse.py",
                BUILD / "carve", PROGRAMS / "limit_driven"])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["used"] == said["driver"] == 2 * GIB - said["room"]
    assert said["pids"] == [said["pid"]]
