"""The main job, end to end, with the programs of examples/: two workloads on one GPU, each in its own slice."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ON_GPU, ROOT, clean_env, machine_has_gpu, rest_long, run, wait_until

CARVE = BUILD / "carve"
GIB = 1 << 30
MIB = 1 << 20


def gpu_used(host):
    return host.stat()["gpus"][0]["memory_used_bytes"]


def used_in(host, session):
    return host.carve_json("session", "show", session)["gpus"][0]["used_bytes"]


def stands(read, seconds):
    """Whether it is the same all that time."""
    value, end = read(), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)
        if read() != value:
            return False
    return True


def finish(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


@pytest.fixture
def session(host):
    s = host.carve_json("session", "request", "--vram", "4")
    return s["id"]


def test_two_slices_one_greedy(host, session, examples):
    matmul = host.popen([CARVE, "run", examples / "matmul", "128", "4"])
    wait_until(lambda: used_in(host, session) > 0 or matmul.poll() is not None)
    hog = host.carve("run", "--ephemeral", "--vram", "2", examples / "hog")
    assert hog.returncode == 0, hog.stdout + hog.stderr
    got = int(re.search(r"got (\d+) blocks", hog.stdout).group(1))
    assert "CUDA_ERROR_OUT_OF_MEMORY" in hog.stdout
    assert "this GPU has 2048 MiB" in hog.stdout
    assert 4 <= got <= 7, "2 GiB less one context hold so many blocks of 256 MiB"
    assert matmul.poll() is None, "the neighbour was still computing"
    code, out, err = finish(matmul)
    assert code == 0, out + err
    assert "every element equals the CPU's" in out
    assert host.carve("session", "release").returncode == 0
    wait_until(lambda: gpu_used(host) == 0)
    assert host.carve_json("session", "list") == []


def test_a_slice_is_a_gpu_of_that_size(host, examples):
    for spelling, mib in (("2.5", 2560), ("2560MiB", 2560), ("2684.35456MB", 2560), ("3GiB", 3072)):
        done = host.carve("run", "--ephemeral", "--vram", spelling, examples / "hog")
        assert f"this GPU has {mib} MiB" in done.stdout, done.stdout + done.stderr


def test_limit_holds_in_the_drivers_books(host, examples):
    hog = host.popen([CARVE, "run", "--vram", "3", examples / "hog", "3"])
    peak = 0
    while hog.poll() is None:
        peak = max(peak, gpu_used(host), key=int)
    assert 2 * GIB < peak <= 3 * GIB, "what the driver gave is the slice's, and never more"
    assert hog.returncode == 0


def test_daemon_killed_while_a_workload_runs(host, session, examples):
    matmul = host.popen([CARVE, "run", examples / "matmul", "64", "8"])
    wait_until(lambda: used_in(host, session) > 0)
    wait_until(lambda: stands(lambda: used_in(host, session), 1))  # it computes
    before = host.carve_json("session", "show", session)
    os.kill(host.daemon_pid(), signal.SIGKILL)
    after = host.carve_json("session", "show", session)
    for key in ("id", "owner", "vram_bytes", "created", "state"):
        assert after[key] == before[key]
    assert after["pids"] == before["pids"]
    assert after["gpus"][0]["used_bytes"] == before["gpus"][0]["used_bytes"]
    code, out, err = finish(matmul)
    assert code == 0, out + err
    wait_until(lambda: used_in(host, session) == 0)


@pytest.mark.parametrize("kills", rest_long([6, 30]))
def test_the_next_command_works_however_soon(host, session, kills):
    """A daemon that is just being killed still has its socket for a moment."""
    for _ in range(kills):
        os.kill(host.daemon_pid(), signal.SIGKILL)
        assert host.carve_json("session", "show", session)["id"] == session


def test_limits_hold_without_the_daemon(host, session, programs, examples):
    """hog starts allocating before the daemon dies and is refused after it died."""
    hold = host.popen([CARVE, "run", examples / "hog", "4"])
    wait_until(lambda: used_in(host, session) > 2 * GIB)
    os.kill(host.daemon_pid(), signal.SIGKILL)
    assert gpu_used(host) <= 4 * GIB
    code, out, err = finish(hold)
    assert code == 0 and "CUDA_ERROR_OUT_OF_MEMORY" in out
    assert host.carve_json("session", "show", session)["vram_bytes"] == 4 * GIB


@pytest.mark.timed
def test_killed_workload_gives_its_memory_back_within_a_second(host, session, examples):
    """The middle one of five: somebody else may have the machine for a moment."""
    took = []
    for _ in range(5):
        hog = host.popen([CARVE, "run", examples / "hog", "60"])
        wait_until(lambda: used_in(host, session) > 3 * GIB)
        pid = host.carve_json("session", "show", session)["pids"][0]
        os.kill(pid, signal.SIGKILL)
        start = time.monotonic()
        wait_until(lambda: used_in(host, session) == 0)
        took.append(time.monotonic() - start)
        assert finish(hog)[0] == 128 + signal.SIGKILL
    assert sorted(took)[2] < 1, took


def test_no_session(host, examples):
    done = host.carve("run", examples / "matmul")
    assert done.returncode == 125
    assert "session" in done.stderr and "--vram" in done.stderr


def test_preloaded_front_without_a_session_fails_closed(host, examples):
    fronts = ":".join(str(BUILD / "src/front" / n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))
    done = host.run([examples / "hog"], env={"LD_PRELOAD": fronts})
    assert done.returncode != 0
    assert "got" not in done.stdout or "got 0 blocks" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("carve:")]
    assert len(lines) == 1 and "session" in lines[0]
    assert gpu_used(host) == 0 or "got 0 blocks" in done.stdout


def test_preloaded_front_without_a_daemon_fails_closed(host, examples):
    fronts = ":".join(str(BUILD / "src/front" / n) for n in ("libcuda.so.1", "libnvidia-ml.so.1"))
    done = host.run([examples / "hog"], env={
        "LD_PRELOAD": fronts, "CARVE_SESSION": "s-gone", "CARVE_ATTACH": "/nonexistent/attach.sock"})
    assert done.returncode != 0
    assert "got" not in done.stdout or "got 0 blocks" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("carve:")]
    assert len(lines) == 1


DEVICES = """
import ctypes as c
cuda, number, bytes_, name = c.CDLL("libcuda.so.1"), c.c_int(), c.c_size_t(), c.create_string_buffer(96)
print(cuda.cuInit(0), cuda.cuDeviceGetCount(c.byref(number)), cuda.cuDeviceGet(c.byref(number), 0),
      cuda.cuDeviceTotalMem_v2(c.byref(bytes_), 0), cuda.cuDeviceGetName(name, 96, 0), cuda.cuInit(0))
"""
NO_DEVICE, NOT_INITIALIZED = 100, 3


def environment_of(host, session):
    """What a program of the session gets, copied out."""
    said = host.carve("run", "--isolation", "preload", "--session", session, "env").stdout
    return {k: v for k, v in (line.split("=", 1) for line in said.splitlines() if "=" in line)
            if k.startswith("CARVE_") or k == "LD_PRELOAD"}


def release(host, session):
    host.carve("session", "release", session)


def resize_onto_another_instance(host, session):
    assert host.carve("session", "resize", session, "--vram", "20").returncode == 0
    other = host.popen([CARVE, "run", "--ephemeral", "--mig-profile", "1g.10gb", "sh", "-c", "echo up; cat"], stdin=subprocess.PIPE)
    assert other.stdout.readline() == "up\n"
    return other


@pytest.mark.parametrize("gpus, size, change", [("h100-80gb:2", ("--vram", "2"), release),
                                                ("h100-80gb+mig", ("--mig-profile", "1g.10gb"), release),
                                                ("h100-80gb+mig", ("--mig-profile", "1g.10gb"), resize_onto_another_instance)])
def test_the_environment_of_a_session_that_is_no_longer_so_has_no_device(make_host, gpus, size, change):
    """The driver would tell of GPUs and instances that are others'."""
    host = make_host(gpus)
    if "+mig" in gpus:
        assert host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
    session = host.carve_json("session", "request", *size)["id"]
    env = environment_of(host, session)
    works = host.run([sys.executable, "-c", DEVICES], env=env)
    assert (works.stdout.split(), works.stderr) == (["0"] * 6, "")
    other = change(host, session)
    done = host.run([sys.executable, "-c", DEVICES], env=env)
    assert [int(n) for n in done.stdout.split()] == [NO_DEVICE, *[NOT_INITIALIZED] * 4, NO_DEVICE]
    line, = done.stderr.splitlines()
    assert line.startswith("carve: no GPU for process ") and "session" in line
    if other:
        other.communicate("")


def test_more_than_the_gpu_has(host):
    done = host.carve("session", "request", "--vram", "1000")
    assert done.returncode == 3
    assert "1000" in done.stderr and "GPU 0" in done.stderr
    done = host.carve("run", "--vram", "1000", "true")
    assert done.returncode == 125
    assert host.carve_json("session", "list") == []


def test_unknown_session(host):
    for verb in (("show", "s-nothere"), ("release", "s-nothere")):
        done = host.carve("session", *verb)
        assert done.returncode == 1
        assert "s-nothere" in done.stderr and len(done.stderr.splitlines()) <= 2
    assert host.carve("run", "--session", "s-nothere", "true").returncode == 125


def test_commands_that_cannot_run(host, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for argv, code in ((["/nonexistent/x"], 127), (["no-such-command-here"], 127), ([plain], 126),
                       ([tmp_path], 126)):
        done = host.carve("run", "--vram", "1", *argv)
        assert done.returncode == code, done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert host.carve_json("session", "list") == []


def test_no_gpu(tmp_path):
    env = clean_env({"CARVE_RUNTIME_DIR": str(tmp_path / "rt"), "LD_LIBRARY_PATH": ""})
    if machine_has_gpu():
        pytest.skip("this machine has a GPU")
    done = run([CARVE, "session", "request", "--vram", "1"], env=env)
    assert done.returncode != 0
    assert "no GPU found" in done.stderr and "carve sim" in done.stderr
    done = run([CARVE, "gpu", "list"], env=env)
    assert "no GPU found" in done.stdout + done.stderr and "carve sim" in done.stdout + done.stderr


def test_exit_codes_and_streams_pass_through(host):
    pipe = host.popen([CARVE, "run", "--vram", "1", "sh", "-c", "cat; echo err >&2; exit 7"],
                      stdin=subprocess.PIPE)
    out, err = pipe.communicate("in and out", timeout=60)
    assert (pipe.returncode, out) == (7, "in and out")
    assert err.splitlines()[-1] == "err"
    done = host.carve("run", "--vram", "1", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM


def test_second_session_is_an_error_that_names_the_first(host, session):
    done = host.carve("session", "request", "--vram", "1")
    assert done.returncode == 1
    assert session in done.stderr and "--name NAME" in done.stderr
    assert host.carve("run", "--vram", "1", "true").returncode == 0


def test_one_off_ends_with_its_last_process(host, examples):
    done = host.carve("run", "--vram", "1", "sh", "-c", "true")
    assert done.returncode == 0
    wait_until(lambda: host.carve_json("session", "list") == [])
    # The command leaves a process behind that uses the GPU: the slice lives as long as it does.
    script = f"setsid {examples}/matmul 64 3 </dev/null >/dev/null 2>&1 & sleep 1"
    assert host.carve("run", "--vram", "1", "sh", "-c", script).returncode == 0
    assert len(host.carve_json("session", "list")) == 1
    wait_until(lambda: host.carve_json("session", "list") == [])


def test_http_api_with_curl(host, session):
    sock = host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    gpus = json.loads(host.run(["curl", "-s", "--unix-socket", sock, "http://localhost/v1/gpus"]).stdout)
    assert gpus[0]["name"].startswith("NVIDIA H100" if not ON_GPU else "")
    assert gpus[0]["memory_bytes"] > gpus[0]["available_bytes"] > gpus[0]["memory_bytes"] * 7 // 8 - 4 * GIB
    for key in ("index", "uuid", "memory_bytes", "sessions", "backend", "compute_mode", "mig"):
        assert key in gpus[0]
    sessions = json.loads(host.run(["curl", "-s", "--unix-socket", sock,
                                    "http://localhost/v1/sessions"]).stdout)
    assert [s["id"] for s in sessions] == [session]


def test_requests_survive_the_daemons_death(host):
    """Whenever the daemon dies, `session request` succeeds, and what it names is what there is."""
    sock = host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    for delay in [i * 0.001 for i in range(20)]:
        pid = host.daemon_pid() if os.path.exists(sock) else None
        asking = host.popen([CARVE, "session", "request", "--vram", "1", "--json"])
        time.sleep(delay)
        if pid:
            os.kill(pid, signal.SIGKILL)
        code, out, err = finish(asking)
        assert code == 0, err
        assert [s["id"] for s in host.carve_json("session", "list")] == [json.loads(out)["id"]]
        assert host.carve("session", "release").returncode == 0


def test_asking_twice_with_an_id_is_asking_once(host):
    sock = host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    host.carve("gpu", "list")

    def post(body):
        done = host.run(["curl", "-s", "-d", json.dumps(body), "--unix-socket", sock,
                         "http://localhost/v1/sessions"])
        return json.loads(done.stdout)

    first = post({"vram": "1", "id": "s-mine42"})
    assert first["id"] == "s-mine42"
    assert post({"vram": "1", "id": "s-mine42"})["created"] == first["created"]
    assert len(host.carve_json("session", "list")) == 1
    for bad in ("", "x", "s-", "s-ABCDEF", "s-aaaaaaaaaaaaaaaaaaaaaaa", "s-a/../b", 7):
        assert post({"vram": "1", "id": bad})["error"]["code"] == 2
