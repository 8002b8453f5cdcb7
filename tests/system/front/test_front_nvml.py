"""The view of NVML inside a slice, over the simulated driver's NVML."""
import json
import sys

import pytest

from conftest import BUILD, clean_env, run, wait_until
from programs import SOURCES, python

MIB = 1 << 20
GIB = 1 << 30


def look(host, *run, foreign=(), env=None):
    argv = python("nvml_look", *foreign)
    done = host.run(argv, env=env or {}) if not run else host.carve("run", *run, "--", *argv)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def pair(make_host):
    return make_host("h100-80gb,a100-40gb")


def test_the_slice_is_the_gpu(pair):
    all_gpus = look(pair)
    assert all_gpus["count"] == 2
    uuids = [d["uuid"] for d in all_gpus["devices"]]
    seen = look(pair, "--vram", "3", "--gpu-ids", "1", foreign=uuids)
    assert seen["count"] == 1
    device = seen["devices"][0]
    assert device["uuid"] == uuids[1] and device["index"] == 0
    assert device["memory"] == {"total": 3 * GIB, "free": 3 * GIB, "used": 0}
    assert device["memory2"] == {"total": 3 * GIB, "reserved": 0, "free": 3 * GIB, "used": 0}
    assert seen["beyond"] == 2  # NVML_ERROR_INVALID_ARGUMENT
    assert seen["foreign"] == [6, 0]  # NVML_ERROR_NOT_FOUND


def test_decimal_sizes_show_exactly(pair):
    seen = look(pair, "--gpu-memory", "4G", "--gpu-ids", "0")
    assert seen["devices"][0]["memory"]["total"] == 4_000_000_000


def test_several_gpus_are_numbered_by_the_slice(pair):
    uuids = [d["uuid"] for d in look(pair)["devices"]]
    seen = look(pair, "--vram", "2", "--gpus", "2")
    assert [d["uuid"] for d in seen["devices"]] == uuids
    assert [d["index"] for d in seen["devices"]] == [0, 1]
    assert {d["memory"]["total"] for d in seen["devices"]} == {2 * GIB}


def test_without_a_session_there_is_no_gpu(pair, build):
    seen = look(pair, env={"LD_PRELOAD": str(build / "src/front/libnvidia-ml.so.1")})
    assert seen["count"] == 0 and seen["beyond"] == 2


def test_an_error_has_a_text_where_there_is_no_driver(build):
    """Programs print it, and one that gets no text crashes."""
    done = run([sys.executable, SOURCES / "nvml_error.py", build / "src/front/libnvidia-ml.so.1"])
    assert done.returncode == 0, done.stderr
    code, text = json.loads(done.stdout)
    assert code == 12 and "no slice" in text  # NVML_ERROR_LIBRARY_NOT_FOUND


@pytest.mark.timed
def test_utilization_is_the_slices(host, build):
    argv = python("nvml_busy")
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    work = host.popen([build / "carve", "run", "--session", session, "--", *python("busy")])
    wait_until(lambda: int(host.run(argv).stdout) > 50 or work.poll() is not None)
    assert work.poll() is None
    seen = [int(host.carve("run", "--session", session, "--", *argv).stdout),
            int(host.carve("run", "--ephemeral", "--vram", "2", "--", *argv).stdout)]
    work.terminate()
    work.communicate(timeout=60)
    assert seen[0] > 50, "its own work shows"
    assert seen[1] == 0, "the neighbour's does not"


def test_a_slice_is_told_of_its_own_gpu_and_processes_alone(tmp_path):
    """By calls that hand out devices or name processes in passing, over a driver that tells of all."""
    (tmp_path / "gpus").write_text("".join(f"gpu {80 * GIB} 0 0 Fake {i}\n" for i in range(3)))
    (tmp_path / "run").mkdir(mode=0o700)
    libraries = f"{BUILD}/tests/programs/fake_nvml:{BUILD}/bench/null_driver"
    env = clean_env({"FAKE_NVML": str(tmp_path / "gpus"), "LD_LIBRARY_PATH": libraries,
                     "CARVE_RUNTIME_DIR": str(tmp_path / "run")})
    done = run([BUILD / "carve", "run", "--ephemeral", "--vram", "2", "--gpu-ids", "1", "--", *python("nvml_told")], env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    mine = told["events"]
    assert len(mine) == 1 and mine[0].endswith("1")
    assert told["nearest"] == told["of_processor"] == told["of_unit"] == mine
    assert told["excluded"] == 0
    assert told["encoder"] == told["capture"] == told["accounted"] == ["own"]
    assert told["encoder_stats"] == told["capture_stats"] == [1, 30, 0]
    assert told["account"] == {"own": 0, "other": 6}  # NVML_ERROR_NOT_FOUND
    assert told["clear"] == 4  # NVML_ERROR_NO_PERMISSION
    assert told["protected"] == 2 * GIB


def test_topology_of_a_simulated_host(pair):
    """Without a slice there is the other GPU; in one there is none."""
    program = ("import ctypes as c; n = c.CDLL('libnvidia-ml.so.1'); n.nvmlInit_v2(); d, k = c.c_void_p(), c.c_uint(0); "
               "n.nvmlDeviceGetHandleByIndex_v2(0, c.byref(d)); "
               "r = n.nvmlDeviceGetTopologyNearestGpus(d, 40, c.byref(k), None); print(r, k.value)")
    argv = ["/usr/bin/python3", "-c", program]
    assert pair.run(argv).stdout.split() == ["0", "1"]
    assert pair.carve("run", "--ephemeral", "--vram", "2", "--", *argv).stdout.split() == ["0", "0"]


FRONT = SOURCES.parents[1] / "src" / "front" / "nvml"
UNINITIALIZED, NO_PERMISSION = 1, 4


def test_nothing_in_a_slice_changes_the_gpu_for_others(host):
    """Root neither, whom the driver would let."""
    rows = [line.split("\t") for line in (FRONT / "symbol-classes.tsv").read_text().splitlines()]
    affinity = {"nvmlDeviceClearCpuAffinity", "nvmlDeviceSetCpuAffinity"}
    names = {row[0] for row in rows if row[1] == "change"} - affinity
    argv = python("nvml_changes", *sorted(names))
    before, after = json.loads(host.carve("run", "--ephemeral", "--vram", "2", "--", *argv).stdout)
    assert len(before) > 50 and set(before.values()) == {UNINITIALIZED}
    assert after == dict.fromkeys(after, NO_PERMISSION) and after.keys() == before.keys()
    # The processors of its own thread are the program's.
    done = host.carve("run", "--ephemeral", "--vram", "2", "--", *python("nvml_changes", *sorted(affinity)))
    assert NO_PERMISSION not in json.loads(done.stdout)[1].values()


def test_a_program_in_a_slice_has_the_drivers_libraries_loaded_from_the_start(host):
    """As docs/user/limits.md says: RTLD_NOLOAD asks what is loaded, and loads nothing."""
    look = ("import ctypes, os\nfor name in ('libcuda.so.1', 'libnvidia-ml.so.1'):\n"
            "    ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)")
    argv = ["/usr/bin/python3", "-c", look]
    assert host.run(argv).returncode != 0
    done = host.carve("run", "--ephemeral", "--vram", "2", "--", *argv)
    assert done.returncode == 0, done.stderr
