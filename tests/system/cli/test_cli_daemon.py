"""The daemon that the command line tool finds, or starts."""
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

import pytest

from command import CARVE, NOBODY, active, fails
from conftest import clean_env, machine_has_gpu, run, wait_until


@pytest.mark.once("a sanitizer brings its own libraries")
def test_a_command_loads_few_libraries():
    """Each brings others along, and every command waits for all of them."""
    listed = subprocess.run(["ldd", CARVE], check=True, capture_output=True, text=True).stdout
    loaded = {line.split()[0].partition(".so")[0] for line in listed.splitlines() if "=>" in line}
    assert {"libjansson", "libc"} <= loaded <= {"libjansson", "libncursesw", "libtinfo", "libc"}


@pytest.mark.timed
@pytest.mark.once("it judges the time that a command takes")
@pytest.mark.parametrize("words, most_ms", [(["--version"], 3), (["gpu", "list"], 5)])
def test_short_commands_take_a_few_milliseconds(host, words, most_ms):
    host.carve("gpu", "list")

    def median_ms(argv):
        taken = []
        for _ in range(40):
            began = time.perf_counter()
            host.run(argv)
            taken.append(time.perf_counter() - began)
        return 1000 * statistics.median(taken)

    # The time to start any program is the machine's.
    assert median_ms([CARVE, *words]) - median_ms(["true"]) <= most_ms


def test_a_killed_daemon_is_followed_by_another(host):
    granted = host.carve_json("session", "request", "--vram", "2")
    before = host.daemon_pid()
    os.kill(before, signal.SIGKILL)
    assert [s["id"] for s in active(host)] == [granted["id"]]
    assert host.daemon_pid() != before
    assert host.carve("run", "true").returncode == 0


def test_a_daemon_killed_under_a_command(host):
    process = host.popen([CARVE, "run", "--vram", "2", "sh", "-c", "echo ready; read x; exit 6"],
                         stdin=subprocess.PIPE)
    process.stdout.readline()
    os.kill(host.daemon_pid(), signal.SIGKILL)
    assert len(active(host)) == 1
    process.communicate("\n", timeout=60)
    assert process.returncode == 6
    wait_until(lambda: active(host) == [])


def test_a_daemon_that_hangs_is_named(host):
    host.carve("session", "list")
    daemon = daemon_now(host)
    os.kill(daemon, signal.SIGSTOP)
    try:
        fails(host.carve("session", "list"), 4, f"the daemon (process {daemon}) does not answer")
        # Not as long as it would wait for room.
        fails(host.carve("run", "--vram", "1", "--wait-for", "3600", "true"), 125, "does not answer")
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_every_verb_names_a_daemon_that_hangs(host):
    host.carve("session", "list")
    daemon = daemon_now(host)
    os.kill(daemon, signal.SIGSTOP)
    try:
        asked = [host.popen([CARVE, *verb.split()]) for verb in (
            "gpu list", "session show", "session request --vram 1", "session release", "quota list", "timeslicing",
            "explain --vram 1", "top --once")]
        for process in asked:
            _, err = process.communicate(timeout=60)
            assert process.returncode == 4 and f"the daemon (process {daemon}) does not answer" in err
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_commands_of_daemons_that_are_killed(host):
    """At any moment: each command succeeds, and leaves no session."""
    killed = 0
    for i in range(20):
        process = host.popen([CARVE, "run", "--ephemeral", "--vram", "1", "true"])
        time.sleep(i * 0.003)
        with contextlib.suppress(ProcessLookupError):  # the last one is named until the next one listens
            if pid := daemon_now(host):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    assert killed > 5
    wait_until(lambda: active(host) == [])


def daemon_now(host):
    """The daemon that listens, or 0: asking does not start one."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(host.env["CARVE_RUNTIME_DIR"] + "/carved.sock")
        except OSError:
            return 0
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def test_a_workloads_daemon_is_started_again_at_once(host, examples):
    host.carve("session", "request", "--vram", "4")
    with host.popen([CARVE, "run", "sh", "-c", "echo ready; read x; exec $0", examples / "hog"],
                    stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            before = daemon_now(host)
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: daemon_now(host) not in (0, before))
        _, err = process.communicate("\n", timeout=60)
    assert process.returncode == 0, err
    with open(f"/proc/{daemon_now(host)}/environ") as file:
        assert "CARVE_SESSION" not in file.read()


def test_many_that_start_the_daemon_at_once(make_host):
    host = make_host("h100-80gb")
    script = f"for i in 1 2 3 4 5 6; do {CARVE} check --json & done; wait"
    done = host.run(["sh", "-c", script])
    assert done.stderr == ""
    pids = [int(pid) for pid in re.findall(r'"pid": (\d+)', done.stdout)]
    assert len(pids) == 6 and set(pids) == {host.daemon_pid()}


@pytest.fixture
def bare():
    """No driver, no daemon, and a runtime directory of the test's own."""
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        path = directory + "/run"
        yield path
        done = run([CARVE, "check", "--json", "--host", path + "/carved.sock"])
        daemon = json.loads(done.stdout)["daemon"] if done.stdout else None
        if daemon:
            os.kill(daemon["pid"], signal.SIGTERM)


def bare_carve(directory, *argv, **env):
    return run([CARVE, *argv], env=clean_env(dict(env, CARVE_RUNTIME_DIR=directory)))


def test_a_stale_socket_is_replaced(bare):
    os.mkdir(bare, 0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(bare + "/carved.sock")
    assert bare_carve(bare, "session", "list").returncode == 0


def test_no_gpu(bare):
    if machine_has_gpu():
        pytest.skip("this machine has a GPU")
    fails(bare_carve(bare, "gpu", "list"), 1, "no GPU found", "carve sim")
    done = bare_carve(bare, "gpu", "list", "--json")
    assert done.returncode == 1 and json.loads(done.stdout) == []
    fails(bare_carve(bare, "run", "--vram", "4", "true"), 125, "no GPU")
    done = bare_carve(bare, "session", "request", "--vram", "4")
    assert done.returncode in (1, 3) and "no GPU" in done.stderr
    done = bare_carve(bare, "check")
    assert done.returncode == 1 and "libcuda.so.1 is not found" in done.stdout
    assert "CAP_SYS_ADMIN" not in done.stdout  # with it there would be no driver, either


def test_a_daemon_that_cannot_start_is_reported():
    fails(bare_carve("/proc/none", "gpu", "list"), 4, "/proc/none")
    fails(bare_carve("/tmp/" + "x" * 120, "gpu", "list"), 2, "too long")
    fails(bare_carve("/proc/none", "run", "--vram", "4", "true"), 125, "/proc/none")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        fails(bare_carve(directory, "gpu", "list"), 5, directory, "chmod 700")
        done = bare_carve(directory, "check")
        assert done.returncode == 5 and "chmod 700 it, or set CARVE_RUNTIME_DIR" in done.stdout
        assert "GPUs:     unknown, as no daemon answers" in done.stdout
        found = json.loads(bare_carve(directory, "check", "--json").stdout)
        text = "version unknown" if found["driver"]["cuda"] else "not found"
        assert done.stdout.startswith(f"driver:   {text}")
        assert done.stdout.count("\nproblem: ") == len(found["missing"]) > 0
        os.chmod(directory, 0o700)
        # A directory in the database's place: carved ends at once, and its own words are shown.
        os.mkdir(directory + "/carve.db")
        done = bare_carve(directory, "gpu", "list")
        fails(done, 4, "cannot start carved")
        assert "does not listen after" not in done.stderr
        with open(directory + "/carved.log", "a") as log:
            log.write("carved: an old story\n")
        done = bare_carve(directory, "gpu", "list")
        fails(done, 4, "cannot start carved: ", "carve.db")
        assert "old story" not in done.stderr
    if os.geteuid() == 0:
        fails(bare_carve("/proc", "gpu", "list"), 4, "/proc/carved.log: No such file")


def test_another_users_daemon_directory():
    if os.geteuid() != 0 or subprocess.run([*NOBODY, CARVE, "--version"],
                                           capture_output=True).returncode != 0:
        pytest.skip("needs root, and a build that other users can read")
    with tempfile.TemporaryDirectory() as directory:
        for path in (directory, directory + "/carve"):
            done = run([*NOBODY, CARVE, "gpu", "list"],
                       env=clean_env({"CARVE_RUNTIME_DIR": path}))
            fails(done, 5, path, "belongs to user root")


def test_a_slice_does_not_reach_the_daemon_it_starts(bare):
    inside = {"CARVE_SESSION": "s-x", "CARVE_ATTACH": "/none", "LD_PRELOAD": "libc.so.6"}
    done = bare_carve(bare, "check", "--json", **inside)
    pid = json.loads(done.stdout)["daemon"]["pid"]
    with open(f"/proc/{pid}/environ") as file:
        environment = file.read()
    assert "CARVE_SESSION" not in environment and "LD_PRELOAD" not in environment
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
