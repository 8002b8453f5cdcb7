"""What a slice on a MIG device looks like from inside. The daemon gives out no MIG devices yet, so one that only
attaches (front_host) stands in for it; driver and MIG devices are the simulated ones."""
import json

import pytest

from conftest import BUILD
from front_host import FRONTS
from programs import python

GIB = 1 << 30
MIB = 1 << 20
SLICE = 3 * GIB


@pytest.fixture
def mig(make_host):
    host = make_host("t4,a100-40gb+mig")
    done = host.run(python("mig_make"))
    assert done.returncode == 0, done.stderr
    host.gpu_uuid, host.uuid, host.neighbour = json.loads(done.stdout)
    return host


def in_slice(host, *argv, limit=SLICE):
    drivers = {"CARVE_DRIVER_CUDA": str(BUILD / "sim/libcuda.so.1"),
               "CARVE_DRIVER_NVML": str(BUILD / "sim/libnvidia-ml.so.1"), "NEIGHBOUR": host.neighbour}
    done = host.run([BUILD / "tests/programs/front_host", "--uuid", host.uuid, "--limit", str(limit), "--context",
                     str(200 * MIB), "--preload", ":".join(map(str, FRONTS)), "--", *argv], env=drivers)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr.splitlines()[-1])


def test_the_mig_device_is_the_slice_is_the_gpu(mig):
    out, books = in_slice(mig, *python("mig_look"))
    seen = json.loads(out)
    free = SLICE - 200 * MIB
    assert seen.pop("cuda uuid") == mig.uuid.removeprefix("MIG-").replace("-", "")
    assert seen == {
        "cuda devices": 1, "cuda total": SLICE, "memory": [free, SLICE], "too much": 2, "all": 0,
        "gpus": 1, "gpu index": 0, "gpu uuid": mig.gpu_uuid, "mig uuid": mig.uuid, "mig index": 0,
        "other mig": 6, "neighbour": 6,  # NVML_ERROR_NOT_FOUND
        "memory of gpu and mig": [[SLICE, 0, SLICE]] * 2, "processes are own": True}
    assert books["peak"] == SLICE and books["refused"] == 1


def test_a_slice_larger_than_the_device_shows_the_device(mig):
    out, _ = in_slice(mig, *python("mig_look", 1 << 40, 1 << 30), limit=30 * GIB)
    seen = json.loads(out)
    assert 4 * GIB < seen["cuda total"] < 5 * GIB and seen["memory"][1] == seen["cuda total"]
    assert seen["memory"][0] < seen["memory"][1]


def test_a_gpu_in_mig_mode_is_shown_as_one_that_gives_no_slices(make_host):
    host = make_host("a100-40gb+mig,h100-80gb")
    assert host.carve("gpu", "list").stdout.endswith("GPU 0 is in MIG mode: no slices of it are granted; carve node set-role "
                                                     "--dynamic-mig-enabled --gpu-ids 0 lets carve make instances of it\n")
    first, second = json.loads(host.carve("check", "--json").stdout)["gpus"]
    for what in ("memory", "compute"):
        assert first[what]["enforced_by"] == "nothing" and "MIG mode" in first[what]["strength"]
        assert "MIG" not in second[what]["strength"]
    assert "in MIG mode" in host.carve("explain", "--vram", "4").stdout
