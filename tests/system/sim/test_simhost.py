"""The simulated host by itself: its server, its books, its time; the driver libraries are not involved."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from conftest import BUILD, ON_GPU, clean_env, run, wait_until

pytestmark = pytest.mark.skipif(ON_GPU, reason="tests the simulated host")

SIMHOST = BUILD / "sim" / "simhost"
CLIENT = BUILD / "tests" / "programs" / "sim_client"
MIB = 1 << 20
CONTEXT, LINEAR = 0, 1
H100_ROOM = (81559 - 551) * MIB


def simhost(*argv, **kw):
    return run([SIMHOST, *argv], **kw)


class Client:
    """A process that speaks the host's protocol."""

    def __init__(self, env, role="cuda", **kw):
        self.process = subprocess.Popen([CLIENT, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env, **kw)
        self.pid = int(self.process.stdout.readline().split()[1])

    def send(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()

    def receive(self):
        return self.process.stdout.readline().split()

    def ask(self, *words):
        self.send(*words)
        return self.receive()

    def ok(self, *words):
        answer = self.ask(*words)
        assert answer[0] == "ok", (words, answer)
        return answer[1:]

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)

    def kill(self):
        self.process.kill()
        self.process.wait(60)


class SimHost:
    def __init__(self, spec, *options):
        self.process = subprocess.Popen(
            [SIMHOST, "run", "--gpus", spec, *options, "--", "sh", "-c", "env -0; echo; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_env())
        line = self.process.stdout.readline().decode()
        self.env = dict(e.split("=", 1) for e in line.rstrip("\n").split("\0") if e)
        self.dir = pathlib.Path(self.env["SIMGPU_HOST"])
        self.clients = []

    def client(self, role="cuda", **kw):
        self.clients.append(Client(self.env, role, **kw))
        return self.clients[-1]

    def run(self, *argv):
        return run(argv, env=self.env)

    def stat(self):
        done = simhost("stat", "--json", env=self.env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def used(self, gpu=0):
        return self.stat()["gpus"][gpu]["memory_used_bytes"]

    def process_stat(self, pid, gpu=0):
        return next((p for p in self.stat()["gpus"][gpu]["processes"] if p["pid"] == pid), None)

    def trace(self, path):
        done = simhost("trace", path, env=self.env)
        assert done.returncode == 0, done.stderr
        return json.loads(pathlib.Path(path).read_text())["traceEvents"]

    def close(self):
        for client in self.clients:
            client.process.kill()
            client.process.wait()
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        assert not self.dir.exists()


@pytest.fixture
def sim():
    hosts = []

    def make(spec="h100-80gb", *options):
        hosts.append(SimHost(spec, *options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


# ---- life of a host ----

def test_exit_codes_and_environment():
    done = simhost("run", "--gpus", "t4-16gb", "--env", "A={host}/x:{host}", "--", "sh", "-c",
                   'echo "$SIMGPU_HOST $A"; echo "$LD_LIBRARY_PATH"; exit 7')
    first, second = done.stdout.splitlines()
    host, value = first.split()
    assert done.returncode == 7
    assert value == f"{host}/x:{host}"
    assert second.split(":")[0] == str(SIMHOST.parent)
    assert not os.path.exists(host)
    assert simhost("run", "--", "/nowhere/nothing").returncode == 127
    assert simhost("run", "--", "nothing-of-that-name").returncode == 127
    assert simhost("run", "--", "/etc/passwd").returncode == 126
    assert simhost("run", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    assert simhost("run", "--", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("spec,part", [
    ("h100", "'h100'"), ("h100-80gb:0", "'h100-80gb:0'"), ("h100-80gb:65", "'h100-80gb:65'"),
    ("h100-80gb,,t4-16gb", "''"), ("t4-16gb+mig", "'t4-16gb+mig'"), ("h100-80gb:x", "'h100-80gb:x'"),
    ("h100-80gb+gim", "'h100-80gb+gim'"), ("t4-16gb:63,t4-16gb:2", "'t4-16gb:2'"), ("", "''"),
    ("h100-80gb:2:3", "'h100-80gb:2:3'"), ("x" * 200, "'xxxx"),
])
def test_bad_spec_is_one_line(spec, part):
    done = simhost("run", "--gpus", spec, "--", "true")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert part in done.stderr and "h100-80gb:2" in done.stderr


@pytest.mark.parametrize("begun, names", [("h200", "h200-141gb, h200-nvl-141gb;"), ("A30:2", "a30-24gb;")])
def test_a_model_that_is_written_in_part_is_answered_with_whole_names(begun, names):
    done = simhost("run", "--gpus", begun, "--", "true")
    assert done.returncode == 2 and "no such GPU model" in done.stderr and names in done.stderr


def test_bad_arguments():
    for argv in (["run", "--driver", "123"], ["run", "--env", "X"], ["run", "--bogus"], ["stat", "x"],
                 ["trace"], ["fault", "bogus"], ["fault", "hang"], ["fault", "all"], ["fault", "alloc", "--gpu", "-1"], ["bogus"], []):
        done = simhost(*argv)
        assert done.returncode == 2, argv
    for verb in ("run", "list", "stat", "trace", "fault"):
        done = simhost(verb, "--help")
        assert done.returncode == 0 and "simhost " + verb in done.stdout
    done = simhost("stat")
    assert done.returncode == 4 and "simulated host" in done.stderr
    done = simhost("stat", "--json")
    assert done.returncode == 4 and json.loads(done.stderr)["error"]["code"] == 4


def test_list():
    models = json.loads(simhost("list", "--json").stdout)
    assert {"h100-80gb", "a100-40gb"} <= {m["key"] for m in models}
    assert all(m["memory_bytes"] > 1 << 30 for m in models)


def test_the_list_has_straight_columns():
    models = json.loads(simhost("list", "--json").stdout)
    lines = simhost("list").stdout.splitlines()
    assert len(lines) == len(models)
    assert len({line.index(m["name"]) for line, m in zip(lines, models)}) == 1
    assert len({line.index(" MiB") for line in lines}) == 1


def test_hosts_are_separate(sim):
    one, two = sim("h100-80gb:2,a100-40gb"), sim("h100-80gb")
    a, b = one.stat(), two.stat()
    uuids = [g["uuid"] for g in a["gpus"] + b["gpus"]]
    assert len(set(uuids)) == 4
    assert [g["index"] for g in a["gpus"]] == [0, 1, 2]
    client = one.client()
    buses = [client.ok("gpu", i)[1] for i in range(3)]
    assert len(set(buses)) == 3
    client.ok("reserve", 0, LINEAR, MIB)
    assert one.used() == MIB and two.used() == 0


def test_nested_run_shares_the_host(sim):
    host = sim()
    done = host.run(SIMHOST, "run", "--", "sh", "-c", "echo $SIMGPU_HOST")
    assert done.stdout.strip() == str(host.dir)
    done = host.run(SIMHOST, "run", "--gpus", "t4-16gb", "--", "sh", "-c", "echo $SIMGPU_HOST")
    assert done.stdout.strip() != str(host.dir)


def test_directory_goes_with_what_others_put_there():
    done = simhost("run", "--", "sh", "-c",
                   "mkdir -p $SIMGPU_HOST/a/b && touch $SIMGPU_HOST/a/b/c && chmod 0 $SIMGPU_HOST/a/b;"
                   "echo $SIMGPU_HOST")
    assert not os.path.exists(done.stdout.strip())


def test_killed_runner_leaves_nothing():
    process = subprocess.Popen([SIMHOST, "run", "--", "sh", "-c", "echo $SIMGPU_HOST; exec sleep 30"],
                               stdout=subprocess.PIPE, text=True, env=clean_env(),
                               start_new_session=True)
    host = process.stdout.readline().strip()
    process.kill()
    process.wait()
    wait_until(lambda: not os.path.exists(host))
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.alone
def test_dead_hosts_are_swept():
    stale = pathlib.Path("/tmp/simgpu-stale0")
    stale.mkdir(exist_ok=True)
    (stale / "lock").touch()
    (stale / "rest").touch()
    assert simhost("run", "--", "true").returncode == 0
    assert not stale.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(number):
    script = f"trap 'echo got; exit 9' {number.name[3:]}; echo $SIMGPU_HOST; while :; do sleep 0.05; done"
    process = subprocess.Popen([SIMHOST, "run", "--", "sh", "-c", script], stdout=subprocess.PIPE,
                               text=True, env=clean_env())
    host = process.stdout.readline().strip()
    process.send_signal(number)
    assert process.stdout.read().split() == ["got"]
    assert process.wait(60) == 9
    assert not os.path.exists(host)


def test_stop_and_continue():
    # A process group of its own: in one whose members' parents are all elsewhere (tests started by setsid),
    # the kernel drops SIGTSTP.
    process = subprocess.Popen([SIMHOST, "run", "--", "sh", "-c", "echo up; read x; echo $x"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=clean_env(), preexec_fn=os.setpgrp)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: pathlib.Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T")
    process.send_signal(signal.SIGCONT)
    assert process.communicate("there\n", timeout=60)[0] == "there\n"
    assert process.returncode == 0


def test_no_host_no_device():
    done = run([CLIENT], env=clean_env())
    assert done.returncode == 1 and "ENODEV" in done.stderr
    done = run([CLIENT], env=clean_env({"SIMGPU_HOST": "/tmp/simgpu-none"}))
    assert done.returncode == 1 and "ENODEV" in done.stderr


# ---- memory ----

def test_memory_books(sim):
    host = sim("h100-80gb:2")
    client = host.client()
    context = client.ok("reserve", 0, CONTEXT, 520 * MIB)[0]
    client.ok("reserve", 0, LINEAR, 100 * MIB)
    client.ok("reserve", 1, LINEAR, 7 * MIB)
    assert client.pid == client.process.pid
    assert host.used(0) == 620 * MIB and host.used(1) == 7 * MIB
    watcher = host.client("nvml")
    assert watcher.ok("list", 0) == [f"{client.pid}:{620 * MIB}"]
    assert watcher.ok("gpu", 0)[2] == str(620 * MIB)
    assert client.ask("free", 999999) == ["error", "ENOENT"]
    client.ok("free", context)
    process = host.process_stat(client.pid)
    assert process["memory_bytes"] == 100 * MIB and process["memory_peak_bytes"] == 620 * MIB
    assert process["memory"][0]["kinds"] == {"linear": 100 * MIB}
    assert process["memory"][0]["peak_kinds"] == {"context": 520 * MIB, "linear": 100 * MIB}
    assert host.stat()["gpus"][0]["memory_peak_bytes"] == 620 * MIB
    client.end()
    wait_until(lambda: host.used(0) == 0 and host.used(1) == 0)


def test_full_device(sim):
    host = sim("h100-80gb")
    client = host.client()
    count, why = client.ok("fill", 0, 64 * MIB)
    assert int(count) == H100_ROOM // (64 * MIB) and why == "ENOMEM"
    assert client.ask("reserve", 0, LINEAR, 1 << 62) == ["error", "ENOMEM"]
    assert client.ask("reserve", 0, LINEAR, (1 << 64) - 1) == ["error", "ENOMEM"]
    assert client.ask("reserve", 0, LINEAR, 0) == ["error", "EINVAL"]
    assert client.ask("reserve", 1, LINEAR, MIB) == ["error", "ENODEV"]


def test_killed_process_leaves_nothing(sim):
    host = sim()
    client = host.client()
    client.ok("reserve", 0, LINEAR, 5000 * MIB)
    client.kill()
    wait_until(lambda: host.used() == 0)


def test_memory_is_free_as_soon_as_its_process_is_gone(sim):
    host = sim()
    watcher = host.client("nvml")
    for _ in range(100):
        client = host.client()
        client.ok("reserve", 0, LINEAR, MIB)
        assert watcher.ok("look", 0) == [str(MIB), str(H100_ROOM)]
        client.kill()
        assert watcher.ok("look", 0)[0] == "0"
    assert watcher.ask("look", 1) == ["error", "ENODEV"]


def test_forked_child_keeps_the_memory(sim):
    host = sim()
    client = host.client()
    client.ok("reserve", 0, LINEAR, 300 * MIB)
    child, refused = client.ok("fork")
    assert refused == "ECHILD"
    client.kill()
    time.sleep(0.2)
    assert host.used() == 300 * MIB
    assert host.client("nvml").ok("list", 0) == [f"{client.pid}:{300 * MIB}"]
    os.kill(int(child), signal.SIGKILL)
    wait_until(lambda: host.used() == 0)


def test_race_for_the_last_bytes(sim, tmp_path):
    host = sim("t4-16gb")
    clients = [host.client() for _ in range(16)]
    for client in clients:
        client.send("fill", 0, 3 * MIB)
    counts = [client.receive() for client in clients]
    capacity = host.stat()["gpus"][0]["memory_total_bytes"] - \
        host.stat()["gpus"][0]["memory_reserved_bytes"]
    assert sum(int(c[1]) for c in counts) == capacity // (3 * MIB)
    assert all(c[2] == "ENOMEM" for c in counts)
    levels = [e["args"]["bytes"] for e in host.trace(tmp_path / "trace")
              if e["name"] == "device memory gpu 0"]
    assert len(levels) == capacity // (3 * MIB)
    assert max(levels) <= capacity


def test_shared_memory_outlives_its_maker(sim):
    host = sim()
    one, two = host.client(), host.client()
    block = one.ok("reserve", 0, LINEAR, 64 * MIB)[0]
    token = one.ok("export", block)[0]
    reference, size, content, note = two.ok("import", token)
    assert int(size) == 64 * MIB and content == "content" and note == "note"
    assert two.ask("import", "00" + token[2:])[0] == "error"
    assert host.used() == 64 * MIB
    watcher = host.client("nvml")
    assert watcher.ok("list", 0) == [f"{one.pid}:{64 * MIB}"]
    one.kill()
    wait_until(lambda: watcher.ok("list", 0) == [f"{two.pid}:{64 * MIB}"])
    assert host.used() == 64 * MIB
    two.ok("free", reference)
    assert host.used() == 0
    assert two.ask("import", token) == ["error", "ENOENT"]


def test_shareable_descriptor_keeps_the_memory(sim):
    host = sim()
    one = host.client()
    block = one.ok("reserve", 0, 3, 32 * MIB)[0]
    fd = one.ok("export_fd", block)[0]
    reference = one.ok("import_fd", fd)[0]
    one.ok("free", block)
    one.ok("free", reference)
    assert host.used() == 32 * MIB  # the descriptor holds it
    again = one.ok("import_fd", fd)
    assert again[2:] == ["content", "note"]
    one.ok("close", fd)
    one.ok("free", again[0])
    wait_until(lambda: host.used() == 0)
    assert one.ask("import_fd", 0) == ["error", "EINVAL"]


def test_many_processes_on_many_gpus(sim):
    host = sim("h100-80gb:32,t4-16gb:32")
    clients = [host.client() for _ in range(200)]
    for i, client in enumerate(clients):
        client.ok("reserve", i % 64, LINEAR, MIB)
    stat = host.stat()
    assert len(stat["gpus"]) == 64
    assert sum(g["memory_used_bytes"] for g in stat["gpus"]) == 200 * MIB
    for client in clients:
        client.process.kill()
    wait_until(lambda: not any(g["memory_used_bytes"] for g in host.stat()["gpus"]))


# ---- time ----

@pytest.mark.timed
def test_kernels_take_their_time(sim):
    host = sim()
    client = host.client()
    took = [int(client.ok("run", 0, 10_000_000, 20)[0]) for _ in range(5)]
    assert 200e6 <= min(took) < 1e9, took
    process = host.process_stat(client.pid)
    assert process["busy_ns"] == 1_000_000_000 and process["launches"] == 100
    assert host.stat()["gpus"][0]["busy_ns"] == 1_000_000_000


def switches(pid):
    """How often it has slept."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M).group(1))


def server_of(host):
    return int(pathlib.Path(f"/proc/{host.process.pid}/task/{host.process.pid}/children").read_text().split()[0])


def test_short_kernels_are_cheap(sim):
    """Nobody is woken for each of them."""
    host = sim()
    client, server = host.client(), server_of(host)
    before = switches(client.pid) + switches(server)
    assert int(client.ok("run", 0, 1_000, 200_000)[0]) >= 200e6
    assert switches(client.pid) + switches(server) - before < 20_000
    assert host.process_stat(client.pid)["busy_ns"] == 200_000_000


@pytest.mark.timed
def test_eight_processes_share_equally(sim):
    host = sim()
    clients = [host.client() for _ in range(8)]
    for i, client in enumerate(clients):
        client.send("run", 0, (i + 1) * 500_000, 8_000_000_000 // ((i + 1) * 500_000))
    # All of them are there, with work for 8 s each.
    wait_until(lambda: [p["busy_ns"] > 0 for p in host.stat()["gpus"][0]["processes"]] == [True] * 8)
    before = {p["pid"]: p["busy_ns"] for p in host.stat()["gpus"][0]["processes"]}
    time.sleep(2)
    after = {p["pid"]: p["busy_ns"] for p in host.stat()["gpus"][0]["processes"]}
    shares = [after[c.pid] - before[c.pid] for c in clients]
    total = sum(shares)
    assert total > 1.9e9
    assert all(abs(s / total - 1 / 8) < 0.01 * 1 / 8 + 2e6 / total for s in shares), shares


def test_turns_in_the_trace_do_not_overlap(sim, tmp_path):
    host = sim()
    clients = [host.client() for _ in range(3)]
    for client in clients:
        client.send("sync", 0, 700_000, 100)
    for client in clients:
        assert client.receive()[0] == "ok"
    turns = sorted((e["args"]["start_ns"], e["args"]["ns"]) for e in host.trace(tmp_path / "trace")
                   if e["name"] == "compute")
    assert sum(ns for _, ns in turns) == 3 * 100 * 700_000
    assert all(a + ns <= b for (a, ns), (b, _) in zip(turns, turns[1:]))


def test_ended_processes_are_remembered(sim):
    host = sim("h100-80gb:2")
    client = host.client()
    block = client.ok("reserve", 1, LINEAR, 9 * MIB)[0]
    client.ok("free", block)
    client.ok("run", 1, 1_000_000, 3)
    client.end()
    ended = wait_until(lambda: host.stat()["gpus"][1]["ended"])
    assert not host.stat()["gpus"][0]["ended"] and not host.stat()["gpus"][1]["processes"]
    assert [(e["pid"], e["memory_peak_bytes"], e["busy_ns"], e["launches"]) for e in ended] == \
        [(client.pid, 9 * MIB, 3_000_000, 3)]


def test_trace_has_the_turn_that_goes_on(sim, tmp_path):
    host = sim()
    client = host.client()
    client.send("run", 0, 600_000_000_000, 1)
    wait_until(lambda: (p := host.process_stat(client.pid)) and p["busy_ns"] > 0.2e9)
    events = host.trace(tmp_path / "trace")
    turns = [e for e in events if e["ph"] == "X"]
    assert [t["pid"] for t in turns] == [client.pid] and 0.2e9 < turns[0]["args"]["ns"] < 300e9
    assert {e["args"]["name"] for e in events if e["ph"] == "M" and e["pid"] == client.pid} >= \
        {"GPU 0 compute", "GPU 0 h2d"}


def test_idle_host_burns_nothing(sim):
    host = sim()
    client = host.client()
    client.send("run", 0, 600_000_000_000, 1)
    wait_until(lambda: (p := host.process_stat(client.pid)) and p["busy_ns"] > 0)
    server = server_of(host)

    def ticks():
        fields = pathlib.Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1)
    assert ticks() - before <= 2


def test_utilization(sim):
    """Of the last second: as much as there was, and all of it later."""
    host = sim()
    client, watcher = host.client(), host.client("nvml")
    client.send("run", 0, 600_000_000_000, 1)
    seen = []

    def whole():
        seen.append([int(w) for w in watcher.ok("utilization", 0)])
        return seen[-1][0] > 950

    wait_until(whole)
    assert seen[-1][1] > 0.9e9, seen


def test_killed_process_stops_computing(sim):
    host = sim()
    client = host.client()
    client.send("run", 0, 60_000_000_000, 1)
    time.sleep(0.2)
    client.kill()
    wait_until(lambda: not host.stat()["gpus"][0]["processes"])
    busy = host.stat()["gpus"][0]["busy_ns"]
    time.sleep(0.1)
    assert host.stat()["gpus"][0]["busy_ns"] == busy


# ---- looking and faults ----

def test_unsupported_calls_are_named(sim):
    host = sim()
    client = host.client()
    for name in ("cuFoo", "cuBar", "cuFoo"):
        client.ok("unsupported", name)
    client.ok("list", 0)
    process = host.process_stat(client.pid)
    assert process["unsupported"] == 3
    assert process["unsupported_calls"] == {"cuFoo": 2, "cuBar": 1}
    assert "cuBar" in simhost("stat", env=host.env).stdout


def test_allocation_faults(sim):
    host = sim("h100-80gb:2")
    client = host.client()

    def fault(*argv):
        done = simhost("fault", *argv, env=host.env)
        assert done.returncode == 0, done.stderr

    fault("alloc", "--gpu", "0", "--skip", "1", "--count", "2")
    answers = [client.ask("reserve", 0, LINEAR, MIB)[0] for _ in range(4)]
    assert answers == ["ok", "error", "error", "ok"]
    fault("alloc", "--pid", str(client.pid))
    assert client.ask("reserve", 1, LINEAR, MIB) == ["error", "ENOMEM"]
    assert host.client().ask("reserve", 1, LINEAR, MIB)[0] == "ok"
    fault("all", "--clear")
    assert client.ask("reserve", 1, LINEAR, MIB)[0] == "ok"
    fault("alloc", "--delay", "0.3", "--count", "1")
    start = time.monotonic()
    client.ok("reserve", 0, LINEAR, MIB)
    assert time.monotonic() - start >= 0.3
    start = time.monotonic()
    fault("alloc", "--for", "1")
    answer = client.ask("reserve", 0, LINEAR, MIB)
    if time.monotonic() - start < 1:  # else it may have been over
        assert answer == ["error", "ENOMEM"]
    wait_until(lambda: client.ask("reserve", 0, LINEAR, MIB)[0] == "ok")
    assert time.monotonic() - start >= 1


def test_faults_that_clients_ask_for(sim):
    host = sim("h100-80gb:2")
    client = host.client()
    launch, nvml = 1, 5
    assert client.ok("fault", launch, 0, "cuLaunchKernel") == ["0", "0"]
    assert simhost("fault", "launch", "--gpu", "1", "--call", "cuLaunchKernel", "--error", "700",
                   "--count", "1", env=host.env).returncode == 0
    assert client.ok("fault", launch, 0, "cuLaunchKernel") == ["0", "0"]
    assert client.ok("fault", launch, 1, "cuLaunchKernelEx") == ["0", "0"]
    assert client.ok("fault", nvml, 1, "cuLaunchKernel") == ["0", "0"]
    assert client.ok("fault", launch, 1, "cuLaunchKernel") == ["1", "700"]
    assert client.ok("fault", launch, 1, "cuLaunchKernel") == ["0", "0"]


def test_lost_gpu(sim):
    host = sim("h100-80gb:2")
    client = host.client()
    assert simhost("fault", "lost", "--gpu", "1", env=host.env).returncode == 0
    assert client.ask("reserve", 1, LINEAR, MIB) == ["error", "EIO"]
    assert client.ask("reserve", 0, LINEAR, MIB)[0] == "ok"
    assert int(client.ok("gpu", 1)[3]) & 1
    assert simhost("fault", "lost", "--gpu", "7", env=host.env).returncode == 2
    assert simhost("fault", "lost", "--clear", env=host.env).returncode == 0
    assert client.ask("reserve", 1, LINEAR, MIB)[0] == "ok"
    start = time.monotonic()
    assert simhost("fault", "lost", "--for", "1", env=host.env).returncode == 0
    answer = client.ask("reserve", 0, LINEAR, MIB)
    if time.monotonic() - start < 1:  # else it may have been over
        assert answer == ["error", "EIO"]
    wait_until(lambda: client.ask("reserve", 0, LINEAR, MIB)[0] == "ok")
