"""carved, the front and the simulated driver together: the books against the driver's own figures."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from conftest import BUILD, process_ended, wait_until
from daemon_client import UnixConnection
from programs import python

MIB = 1 << 20
GIB = 1 << 30
OUT_OF_MEMORY = 2


class Workload:
    def __init__(self, host, *options):
        self.process = host.popen([BUILD / "carve", "run", *options, "--", *python("told")], stdin=subprocess.PIPE, stderr=None)
        self.pid = int(self.process.stdout.readline())

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def number(self, text):
        return int(self.say(text))

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(60)


@pytest.fixture
def workload(host):
    started = []

    def start(*options):
        started.append(Workload(host, *options))
        return started[-1]

    yield start
    for w in started:
        w.close()


def sessions(host):
    return host.carve_json("session", "list")


def used(host, index=0):
    return sessions(host)[index]["gpus"][0]["used_bytes"]


def kill_daemon(host):
    """kill -9, with the supervisor told to end: the next command starts a daemon."""
    pid, supervisor = host.daemon_pid(), int(pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "lock").read_text().split()[0])
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_ended(pid))
    for number in (signal.SIGTERM, signal.SIGCONT):
        os.kill(supervisor, number)
    wait_until(lambda: process_ended(supervisor))


def driver_bytes(host, pid):
    """The driver's own figure."""
    return sum(p["memory_bytes"] for g in host.stat()["gpus"] for p in g["processes"]
               if p["pid"] == pid)


def test_a_context_is_learned_and_smaller_slices_are_refused(host):
    gpu = wait_until(lambda: next((g for g in host.carve_json("gpu", "list")
                                   if g["context_bytes"]), None))
    cost = gpu["context_bytes"]
    assert 100 * MIB < cost < 2 * GIB
    done = host.carve("run", "--vram", f"{cost - MIB}B", "true")
    assert done.returncode != 0 and "too small" in done.stderr
    assert host.carve("run", "--vram", f"{cost}B", "true").returncode == 0
    # Known at once by the next daemon.
    kill_daemon(host)
    assert host.carve_json("gpu", "list")[0]["context_bytes"] == cost


@pytest.mark.parametrize("visible", ["1", "", "-1"])
def test_the_daemon_ignores_cuda_visible_devices(make_host, visible):
    """Of the job that happens to start it."""
    host = make_host("t4:2")
    env = {"CUDA_VISIBLE_DEVICES": visible}
    wait_until(lambda: all(g["context_bytes"] for g in host.carve_json("gpu", "list", env=env)))


def test_the_cost_of_a_context_is_probed_again(make_host):
    host = make_host("t4")
    assert host.carve("sim", "fault", "hang", "--call", "cuCtxCreate_v2", "--error", "2", "--count", "1").returncode == 0
    assert host.carve_json("gpu", "list")[0]["context_bytes"] == 0
    wait_until(lambda: "context.unknown" in pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text())
    wait_until(lambda: host.carve_json("gpu", "list")[0]["context_bytes"])


def test_the_probe_of_managed_memory_is_tried_again_when_no_session_has_a_slice(make_host):
    """There was no room for any when the daemon began; what a context costs it learned."""
    host = make_host("t4")

    def learned():
        return re.findall("context.learned .* managed=(.*)",
                          pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text())

    assert host.carve("sim", "fault", "hang", "--call", "cuMemAllocManaged", "--error", "2", "--count",
                      "1").returncode == 0
    cost = wait_until(lambda: host.carve_json("gpu", "list")[0]["context_bytes"])
    session = host.carve_json("session", "request", "--vram", "1")["id"]
    time.sleep(3)
    assert learned() == ["unknown"]
    assert host.carve("session", "release", session).returncode == 0
    wait_until(lambda: learned() == ["unknown", "apart"])
    assert host.carve_json("gpu", "list")[0]["context_bytes"] == cost


def test_the_probe_of_a_new_daemon_is_not_outside_use(make_host):
    """Whatever the moment: a new daemon makes a context itself to learn what it costs."""
    host = make_host("t4")
    for i in range(30):
        env = {"CARVE_RUNTIME_DIR": f"{host.dir}/run{i}"}
        gpu, = host.carve_json("gpu", "list", env=env)
        assert gpu["outside_bytes"] == 0
        # A list waits for the probe, but not for ever.
        wait_until(lambda: host.carve_json("gpu", "list", env=env)[0]["context_bytes"])
        done = host.carve("session", "request", "--vram-strict", "--vram",
                          f"{gpu['available_bytes']}B", env=env)
        assert done.returncode == 0, done.stderr
        pid = int(pathlib.Path(env["CARVE_RUNTIME_DIR"], "lock").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists()
                   or ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text())


def test_the_books_are_the_drivers(host, workload):
    w = workload("--vram", "4")
    assert w.number("init") == 0
    assert used(host) == driver_bytes(host, w.pid) > 100 * MIB
    for size in (1, 511, 4096, MIB, 2 * MIB + 1, 100 * MIB, 7 * MIB + 13):
        assert w.number(f"alloc {size}") == 0
        assert used(host) == driver_bytes(host, w.pid)
    for _ in range(7):
        assert w.number("free") == 0
        assert used(host) == driver_bytes(host, w.pid)
    assert w.number("destroy") == 0
    assert used(host) == driver_bytes(host, w.pid)


def test_a_slice_ends_at_its_size(host, workload):
    w = workload("--vram", "2")
    assert w.number("init") == 0
    free, total = map(int, w.say("info").split())
    assert total == 2 * GIB and free == 2 * GIB - used(host)
    got = 0
    while w.number(f"alloc {256 * MIB}") == 0:
        got += 1
    assert got == free // (256 * MIB)
    assert w.number(f"alloc {256 * MIB}") == OUT_OF_MEMORY
    assert driver_bytes(host, w.pid) <= 2 * GIB
    assert sessions(host)[0]["gpus"][0]["refused"] == 2


@pytest.mark.timed
def test_sigkill_gives_memory_back_within_a_second(host, workload):
    assert host.carve("session", "request", "--vram", "4").returncode == 0
    took = []
    for _ in range(3):
        w = workload()
        w.say("init")
        assert w.number(f"alloc {GIB}") == 0
        assert used(host) > GIB
        os.kill(w.pid, signal.SIGKILL)
        start = time.monotonic()
        wait_until(lambda: used(host) == 0)
        took.append(time.monotonic() - start)
        assert w.process.wait(60) == 128 + 9
    assert sorted(took)[1] < 1, took


def test_a_forked_child_keeps_the_memory(host, workload):
    assert host.carve("session", "request", "--vram", "4").returncode == 0
    w = workload()
    w.say("init")
    w.say(f"alloc {GIB}")
    child = w.number("fork")
    os.kill(w.pid, signal.SIGKILL)
    time.sleep(1)
    assert used(host) > GIB
    assert host.carve_json("gpu", "list")[0]["outside_bytes"] == 0
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: used(host) == 0)


def test_a_killed_daemon_changes_nothing_for_workloads(host, workload):
    w = workload("--vram", "2")
    w.say("init")
    assert w.number(f"alloc {GIB}") == 0
    before = sessions(host)
    kill_daemon(host)
    assert w.number(f"alloc {GIB}") == OUT_OF_MEMORY
    assert w.number(f"alloc {100 * MIB}") == 0
    after = sessions(host)
    assert [s["id"] for s in after] == [s["id"] for s in before]
    assert after[0]["pids"] == [w.pid]
    assert used(host) == driver_bytes(host, w.pid)
    assert w.number("free") == 0
    assert used(host) == driver_bytes(host, w.pid)
    w.close()
    wait_until(lambda: sessions(host) == [])


@pytest.mark.long
def test_fifty_kills_of_the_daemon_under_load(host, workload):
    workers = [workload("--ephemeral", "--vram", "3") for _ in range(3)]
    for w in workers:
        assert w.number("init") == 0
    ids = {s["id"] for s in sessions(host)}
    for i in range(50):
        w = workers[i % 3]
        assert w.number(f"alloc {3 * MIB}") == 0
        kill_daemon(host)
        if i % 5 == 0:
            assert w.number("free") == 0
        shown = sessions(host)
        assert {s["id"] for s in shown} == ids
    by_pid = {s["pids"][0]: s["gpus"][0]["used_bytes"] for s in sessions(host)}
    assert by_pid == {w.pid: driver_bytes(host, w.pid) for w in workers}


@pytest.mark.needs_sim("counts on a GPU of 80 GB of its own")
@pytest.mark.parametrize("lists", [False, True])
def test_managed_memory_of_a_slice_is_not_promised_twice(host, lists):
    """The driver has it in the GPU's use, and in no process's figure."""
    if lists:
        assert host.carve("sim", "fault", "list-managed").returncode == 0
    inside = host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "40", "--", *python("managed", 30 * GIB)], stdin=subprocess.PIPE)
    assert inside.stdout.readline() == "up\n"
    gpu = host.carve_json("gpu", "list")[0]
    assert gpu["outside_bytes"] == 0 and gpu["used_bytes"] > 30 * GIB
    assert host.carve("run", "--ephemeral", "--vram", "30", "--vram-strict", "true").returncode == 0
    inside.communicate("")


@pytest.mark.needs_sim("counts on a GPU that nobody else uses")
def test_memory_that_slices_allocate_and_free_is_not_counted_as_outside(host):
    """The driver gives the GPU's use and the processes' figures one after the other."""
    session = host.carve_json("session", "request", "--vram", "20")["id"]
    inside = [host.popen([BUILD / "carve", "run", "--session", session, "--", *python("churn")])
              for _ in range(3)]
    for each in inside:
        assert each.stdout.readline() == "up\n"
    gpu = host.carve_json("gpu", "list")[0]
    rest = gpu["memory_bytes"] - gpu["reserved_bytes"] - gpu["promised_bytes"]
    connection = UnixConnection(pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.sock"))

    def call(method, path, body=None):
        connection.request(method, path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or "null")

    def request():
        return call("POST", "/v1/sessions", {"vram_bytes": rest, "vram_strict": True, "ephemeral": True})

    for i in range(1000):
        status, granted = request()
        assert status == 201, (i, granted)
        assert call("DELETE", f"/v1/sessions/{granted['id']}")[0] in (200, 204)
    # Memory taken outside meanwhile is found, though no process's figure has it.
    outside = host.popen(python("managed", 10 * GIB), stdin=subprocess.PIPE)
    assert outside.stdout.readline() == "up\n"
    wait_until(lambda: host.carve_json("gpu", "list")[0]["outside_bytes"] >= 10 * GIB)
    connection.close()  # it may have been idle for long
    assert request()[0] == 409
    outside.communicate("")
    for each in inside:
        each.kill()


def test_a_session_grows_into_no_memory_that_a_program_outside_carve_has_by_now(host):
    """Nobody is in the session, so that no sample was taken since the program came."""
    host.carve_json("session", "request", "--vram", "4")
    with host.popen(python("hold", 60 << 10), stdin=subprocess.PIPE) as outside:
        assert outside.stdout.readline() == "0\n"
        refused = host.carve("session", "resize", "40")
        assert refused.returncode == 3 and "this session can have 18." in refused.stderr, (refused.stdout, refused.stderr)
    assert host.carve("session", "resize", "40").returncode == 0


def test_programs_outside_carve_are_not_promised_over(host):
    outside = host.popen(python("told"), stdin=subprocess.PIPE)
    outside.stdout.readline()
    before = host.carve_json("gpu", "list")[0]["available_bytes"]
    most = before * 7 // 8 // GIB
    for line in ("init", f"alloc {before // 4}"):
        outside.stdin.write(line + "\n")
        outside.stdin.flush()
        assert outside.stdout.readline().strip() == "0"
    gpu = host.carve_json("gpu", "list")[0]
    assert gpu["outside_bytes"] == driver_bytes(host, outside.pid) > before // 4
    assert host.carve("session", "request", "--gpu-ids", "0", "--vram", most).returncode == 3
    outside.kill()
    outside.wait()
    assert host.carve("session", "request", "--gpu-ids", "0", "--vram", most, "--wait-for", "5").returncode == 0
