"""How CUDA numbers devices inside a slice, over the simulated driver, and what the user's own
CUDA_VISIBLE_DEVICES does there."""
import json

import pytest

from programs import python

GIB = 1 << 30
MIB = 1 << 20


def look(host, *run, visible=None):
    argv = python("devices_look")
    if visible is not None:
        argv = ["env", f"CUDA_VISIBLE_DEVICES={visible}", *argv]
    done = host.carve("run", *run, "--", *argv)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def trio(make_host):
    return make_host("h100-80gb:3")


@pytest.fixture
def uuids(trio):
    return [g["uuid"] for g in trio.stat()["gpus"]]


@pytest.mark.parametrize("gpu", [0, 1, 2])
def test_the_slices_gpu_is_device_0(trio, uuids, gpu):
    seen = look(trio, "--vram", "2", "--gpu-ids", str(gpu))
    assert [d["uuid"] for d in seen["devices"]] == [uuids[gpu]]
    assert seen["devices"][0] == {"uuid": uuids[gpu], "total": 2 * GIB, "taken": 64 * MIB}


@pytest.mark.parametrize("visible, order", [
    (None, [1, 2]), ("0,1", [1, 2]), ("1,0", [2, 1]), ("1", [2]), ("0", [1]), ("2", []), ("", []), ("-1", []),
    ("0,7,1", [1]), ("uuid 2,uuid 1", [2, 1]), ("short 2", [2]), ("uuid 0", []),
])
def test_visible_devices_count_within_the_slice(trio, uuids, visible, order):
    if visible:
        visible = ",".join({"uuid": lambda i: uuids[int(i)], "short": lambda i: uuids[int(i)][:14]}.get(
            word.split()[0], lambda i: i)(word.split()[-1]) for word in visible.split(","))
    seen = look(trio, "--vram", "2", "--gpus", "2", "--gpu-ids", "1,2", visible=visible)
    assert [d["uuid"] for d in seen["devices"]] == [uuids[i] for i in order]
    assert seen["init"] == (0 if order else 100)  # CUDA_ERROR_NO_DEVICE
    # Each GPU has a limit of its own, and is charged for what was taken on it.
    for i, device in enumerate(seen["devices"]):
        assert device["total"] == 2 * GIB and device["taken"] == (i + 1) * 64 * MIB
        assert seen["used"][device["uuid"]] == device["taken"] + 520 * MIB
    assert list(seen["used"]) == [uuids[1], uuids[2]], "NVML does not look at CUDA_VISIBLE_DEVICES"


def test_a_whole_gpu_has_its_size(trio, uuids):
    seen = look(trio, "--gpu", "1")
    assert [d["uuid"] for d in seen["devices"]] == [uuids[0]]
    assert 78 * GIB < seen["devices"][0]["total"] < 80 * GIB


def test_the_program_is_left_as_it_is(host):
    argv = python("process_manners")
    alone, inside = host.run(argv), host.carve("run", "--vram", "2", "--", *argv)
    assert alone.returncode == inside.returncode == 0, alone.stderr + inside.stderr
    assert json.loads(inside.stdout) == json.loads(alone.stdout)
    assert inside.stderr == ""
