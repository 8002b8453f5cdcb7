"""carve check: every condition that it looks at, as it should be and flipped."""
import ctypes
import json
import os
import re
import shutil
import signal
import struct
import subprocess

import pytest

from conftest import BUILD, clean_env, run, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from disk import disk_of, fill

CARVE = BUILD / "carve"
HEALTHY = {"etc": {}, "proc": {"1": {"comm": "systemd\n"}}, "sys": {"fs": {"cgroup": {"cgroup.controllers": "cpu\n"}}}}


@pytest.fixture
def root(tmp_path):
    """A host's files, made from a tree: {name: tree or text}."""
    def make(tree, at=tmp_path / "root"):
        for name, content in tree.items():
            path = at / name
            if isinstance(content, dict):
                path.mkdir(parents=True, exist_ok=True)
                make(content, path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
        return at
    make(HEALTHY)
    return make


@pytest.fixture
def check(daemon, root, tmp_path):
    """check(name, **environment): that condition, as `carve check --json` has it, and whether it is missing."""
    def look(name, preexec_fn=None, **env):
        done = run([CARVE, "check", "--json", "--host", daemon.runtime / "carved.sock"], preexec_fn=preexec_fn,
                   env=clean_env(dict(daemon.env(), CARVE_CHECK_ROOT=str(tmp_path / "root"), **env)))
        found = json.loads(done.stdout)
        condition, = [c for c in found["conditions"] if c["name"] == name]
        listed = any(condition["message"] in line for line in found["missing"])
        assert listed == (condition["state"] == "problem")
        assert bool(condition["advice"]) == (condition["state"] != "ok"), condition
        if listed:
            assert done.returncode == 1
        return condition
    return look


def test_all_is_well(check):
    for name in ("preload", "mps", "compute_mode", "owner", "outside", "versions", "disk", "permissions", "memfd",
                 "pidfd", "membarrier", "cgroup", "persistence"):
        assert check(name)["state"] == "ok", check(name)


def test_another_library_is_preloaded(check, root):
    assert check("preload", LD_PRELOAD="libm.so.6")["state"] == "note"
    other = check("preload", LD_PRELOAD="libm.so.6 libvgpu.so")
    assert other["state"] == "problem" and "libvgpu.so" in other["message"]
    ours = BUILD / "src/front/libcuda.so.1"
    assert check("preload", LD_PRELOAD=f"{ours}:{ours.parent}/libnvidia-ml.so.1")["state"] == "ok"
    root({"etc": {"ld.so.preload": "/usr/lib/libcuda-hook.so\n"}})
    assert "/etc/ld.so.preload preloads /usr/lib/libcuda-hook.so" in check("preload")["message"]


def test_mps(check, root):
    root({"tmp": {"nvidia-mps": {"control": ""}}})
    assert check("mps")["state"] == "note"
    assert "/tmp/elsewhere" not in check("mps", CUDA_MPS_PIPE_DIRECTORY="/tmp/elsewhere")["message"]
    root({"proc": {"77": {"comm": "nvidia-cuda-mps\n"}}})
    runs = check("mps")
    assert runs["state"] == "problem" and "(process 77)" in runs["message"]
    assert "quit | nvidia-cuda-mps-control" in runs["advice"]


@pytest.mark.parametrize("mode, words", [(3, "exclusive: one process at a time"), (2, "prohibited: no program")])
def test_compute_mode(check, daemon, mode, words):
    daemon.modes[0] = mode
    daemon.write_state()
    found = check("compute_mode")
    assert found["state"] == "problem" and words in found["message"] and "--compute-mode=0" in found["advice"]


def test_each_gpu_in_the_wrong_mode_is_named(make_daemon, tmp_path):
    daemon = make_daemon(gpus=[(80 * GIB, 0, GIB, "Fake H100")] * 16)
    daemon.modes[0] = daemon.modes[1] = daemon.modes[15] = 3
    daemon.write_state()
    done = run([CARVE, "check", "--json", "--host", daemon.runtime / "carved.sock"], env=clean_env(daemon.env()))
    found = {c["name"]: c["message"] for c in json.loads(done.stdout)["conditions"]}
    assert [n for n in range(16) if f"GPU {n} is in compute mode exclusive" in found["compute_mode"]] == [0, 1, 15]
    assert re.findall(r"1 GiB of GPU (\d+)", found["outside"]) == [str(n) for n in range(16)]


def test_another_daemon_has_the_gpu(make_daemon, tmp_path):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "Fake H100")] * 16)
    owner = daemon.pid
    read, write = os.pipe()
    other = subprocess.Popen([BUILD / "carved", "--runtime-dir", tmp_path / "second", "--ready-fd", str(write)],
                             env=daemon.env(), stderr=subprocess.DEVNULL, pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"R"
    os.close(read)
    done = run([CARVE, "check", "--json", "--host", tmp_path / "second/carved.sock"], env=daemon.env())
    other.terminate()
    other.wait(60)
    found, = [c for c in json.loads(done.stdout)["conditions"] if c["name"] == "owner"]
    assert found["state"] == "problem"
    assert re.findall(rf"GPU (\d+) is held by another daemon \(process {owner} of ", found["message"]) == [
        str(n) for n in range(16)]


def test_programs_outside(check, daemon):
    daemon.gpus[0] = (80 * GIB, 0, 3 * GIB, "Fake H100")
    daemon.write_state()
    found = check("outside")
    assert found["state"] == "note" and "3 GiB of GPU 0" in found["message"]
    assert "no more than that is kept free" in found["message"]


def test_the_daemons_program_was_replaced(daemon, check, tmp_path):
    daemon.process.terminate()
    daemon.process.wait(60)
    copy = tmp_path / "carved"
    shutil.copy(BUILD / "carved", copy)
    read, write = os.pipe()
    daemon.process = subprocess.Popen([copy, "--runtime-dir", daemon.runtime, "--ready-fd", str(write)],
                                      env=daemon.env(), stderr=subprocess.DEVNULL, pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"R"
    os.close(read)
    assert str(copy) in check("versions")["message"]
    copy.unlink()
    shutil.copy(BUILD / "carved", copy)
    replaced = check("versions")
    assert replaced["state"] == "note" and "was replaced" in replaced["message"]
    done = subprocess.run([copy, *replaced["advice"].split("carved ")[1].split(), "--runtime-dir",
                           daemon.runtime], env=daemon.env(), stdout=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0
    assert "was replaced" not in check("versions")["message"]  # the advice helps


def test_a_daemon_of_another_version(tmp_path, root):
    from fake_daemon import Fake
    fake = Fake(str(tmp_path))
    fake.answers["GET", "/v1/version"] = (200, {"version": "9.9", "pid": 1})
    done = run([CARVE, "check", "--json", "--host", fake.dir + "/carved.sock"])
    fake.server.shutdown()
    found, = [c for c in json.loads(done.stdout)["conditions"] if c["name"] == "versions"]
    assert found["state"] == "problem" and "carved 9.9" in found["message"]
    assert "carved --takeover" in found["advice"]


@pytest.mark.usefixtures("another_user")
@pytest.mark.parametrize("apart", [False, True], ids=["one directory", "a state directory"])
def test_a_full_disk(root, tmp_path, apart):
    with disk_of("8m", tmp_path / "disk") as disk:
        home = tmp_path / "daemon" if apart else disk
        home.mkdir(exist_ok=True)
        daemon = Daemon(dir=home, args=["--state-dir", disk / "state"] if apart else [])
        try:
            def look():
                done = run([CARVE, "check", "--json", "--host", daemon.runtime / "carved.sock"], env=daemon.env())
                found = json.loads(done.stdout)
                condition, = [c for c in found["conditions"] if c["name"] == "disk"]
                return condition["state"], condition["message"]
            assert look()[0] == "ok"
            fill(disk / "filler")
            state, message = look()
            assert state == "problem" and re.search(rf"disk of {disk}\S* is full", message)
            os.unlink(disk / "filler")
            assert look()[0] == "ok"
        finally:
            daemon.kill()


def test_devices_that_cannot_be_opened(check, root, daemon, tmp_path):
    path = root({"dev": {"nvidiactl": "", "nvidia0": ""}}) / "dev/nvidiactl"
    assert check("permissions")["message"] == "the driver's devices may be opened"
    path.chmod(0o600)
    os.chmod(daemon.dir, 0o755)
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        if folder.owner() == "root" and str(folder) != "/tmp":
            folder.chmod(0o755)
    done = run([CARVE, "check", "--json", "--host", "/none/carved.sock"], user=65534, group=65534,
               env=clean_env({"CARVE_CHECK_ROOT": str(tmp_path / "root")}))
    found, = [c for c in json.loads(done.stdout)["conditions"] if c["name"] == "permissions"]
    assert found["state"] == "problem" and "/dev/nvidiactl cannot be opened" in found["message"]


def test_cgroups_of_version_1(check, tmp_path):
    (tmp_path / "root/sys/fs/cgroup/cgroup.controllers").unlink()
    assert check("cgroup")["state"] == "note"


def test_gpus_that_fall_asleep(root, tmp_path):
    def look():
        done = run([CARVE, "check", "--json", "--host", "/none/carved.sock"],
                   env=clean_env({"CARVE_CHECK_ROOT": str(tmp_path / "root")}))
        return next(c for c in json.loads(done.stdout)["conditions"] if c["name"] == "persistence")

    assert look()["state"] == "ok"
    root({"proc": {"driver": {"nvidia": {"version": "NVRM version: 550\n"}}}})
    assert look()["state"] == "note" and "nvidia-persistenced" in look()["advice"]
    root({"proc": {"88": {"comm": "nvidia-persiste\n"}}})
    assert look()["state"] == "ok"


def refuse_syscall(number):
    """In a child: this system call is not there (ENOSYS), as under a container's filter."""
    def install():
        def op(code, jt, jf, k):
            return struct.pack("<HBBI", code, jt, jf, k)

        program = (op(0x20, 0, 0, 0) + op(0x15, 0, 1, number) + op(0x06, 0, 0, 0x00050000 | 38) +
                   op(0x06, 0, 0, 0x7fff0000))
        text = ctypes.create_string_buffer(program)
        header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(text)))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header, 0, 0) == 0
    return install


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("name, number, words", [
    ("memfd", 319, "no ledger can be made"), ("pidfd", 434, "cannot be watched"),
    ("membarrier", 324, "cannot be divided")])
def test_check_names_missing_kernel_features(check, name, number, words):
    found = check(name, preexec_fn=refuse_syscall(number))
    assert found["state"] == "problem" and words in found["message"] and "kernel of" in found["advice"]


def test_notes_and_problems_are_told_to_people(daemon, root, tmp_path):
    daemon.gpus[0] = (80 * GIB, 0, 3 * GIB, "Fake H100")
    daemon.modes[0] = 3
    daemon.write_state()
    argv = [CARVE, "check", "--host", daemon.runtime / "carved.sock"]
    env = dict(daemon.env(), CARVE_CHECK_ROOT=str(tmp_path / "root"))
    lines = run(argv, env=env).stdout.splitlines()
    # A driver that is not installed is to mend, too.
    found = json.loads(run([*argv, "--json"], env=env).stdout)
    missing, passed = len(found["missing"]), sum(c["state"] == "ok" for c in found["conditions"])
    assert any(line.startswith("note: ") and "3 GiB of GPU 0" in line for line in lines)
    assert [line.split(":", 1)[1].strip() for line in lines if line.startswith("problem: ")] == found["missing"]
    assert sum("nvidia-smi --compute-mode=0" in line for line in lines) == 1, "a problem is one line"
    assert lines[-1] == f"{passed} of {passed + 1 + missing} checks passed (`-v` lists them).", lines
    assert not any(line.startswith("passed: ") for line in lines)
    for option in ("-v", "--verbose"):
        told = run([*argv, option], env=env).stdout.splitlines()
        assert [line.split(":", 1)[1].strip() for line in told if line.startswith("passed: ")] == \
            [c["message"] for c in found["conditions"] if c["state"] == "ok"]
        assert told[-1] == f"{passed} of {passed + 1 + missing} checks passed."


def test_equal_gpus_have_one_block(make_host):
    host = make_host("h100-80gb:8")
    lines = host.carve("check").stdout.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("GPU")] == ["GPUs 0-7"]
    assert sum(line.startswith("  memory:") for line in lines) == 1
    assert len(host.carve_json("check")["gpus"]) == 8


def test_gpus_that_differ_have_blocks_of_their_own(make_host):
    host = make_host("h100-80gb:2,a100-40gb,h100-80gb+mig,a100-40gb")
    lines = host.carve("check").stdout.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("GPU")] == ["GPUs 0,1", "GPUs 2,4", "GPU 3"]


def test_functions_of_nvml_that_nobody_classified_are_a_note(check, daemon, tmp_path):
    """They take nothing: nothing is missing for slices to work."""
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-o", library, "-x", "c", "-"], input="int nvmlDeviceGetNewest_v9(void) { return 0; }", text=True, check=True)
    assert check("nvml_functions")["state"] == "ok"
    newer = check("nvml_functions", LD_LIBRARY_PATH=f"{tmp_path}:{daemon.env().get('LD_LIBRARY_PATH', '')}")
    assert (newer["state"], newer["message"]) == ("note", "carve does not know 1 function of NVML: nvmlDeviceGetNewest_v9")
