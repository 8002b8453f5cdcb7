"""A driver that is newer than carve: functions that nobody has classified reach it as they are, are told, and what they take counts."""
import json

import pytest

from conftest import BUILD
from programs import python

MIB = 1 << 20


@pytest.fixture
def newer(make_host):
    """A host whose driver has such a function."""
    host = make_host("h100-80gb", "615")
    host.env["LD_LIBRARY_PATH"] = f"{BUILD}/tests/programs/newer_driver:{host.env['LD_LIBRARY_PATH']}"
    return host


@pytest.mark.parametrize("how", ["name", "address"])
def test_memory_that_an_unclassified_function_takes_is_counted(newer, how):
    """By the driver's figures of processes, which the daemon reads all the time."""
    done = newer.carve("run", "--vram", "2", "--", *python("take_newest", how, 1024 * MIB))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"counted": 1024 * MIB, "refused": True, "granted": True}


def test_check_names_functions_that_nobody_classified(newer):
    done = newer.carve("check", "--json")
    found = json.loads(done.stdout)
    condition, = (c for c in found["conditions"] if c["name"] == "functions")
    assert (done.returncode, condition["state"]) == (1, "problem")
    assert condition["message"] == "carve does not know 1 function of the driver: cuMemTakeNewest"
    assert found["driver"]["unknown_functions"] == ["cuMemTakeNewest"]
    assert any("cuMemTakeNewest" in line and "within a second" in line for line in found["missing"])
    assert "cuMemTakeNewest" in newer.carve("check").stdout


@pytest.mark.parametrize("how", ["name", "cuGraphAddNode", "cuGraphAddNode_v3"])
def test_memory_nodes_of_the_newest_form_are_the_slices(make_host, how):
    host = make_host("h100-80gb", "615")
    for size, result in (512, [0, 512]), (3000, [2, 0]):
        done = host.carve("run", "--ephemeral", "--vram", "2", "--", *python("newer_memory", how, size))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == result


@pytest.mark.parametrize("release", ["535", "550", "580", "595", "610", "615"])
def test_every_function_of_the_played_releases_is_classified(make_host, release):
    found = json.loads(make_host("h100-80gb", release).carve("check", "--json").stdout)
    assert found["driver"]["unknown_functions"] == []
    assert [c["state"] for c in found["conditions"] if c["name"] == "functions"] == ["ok"]
