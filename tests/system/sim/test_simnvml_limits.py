"""Memory limits of cgroups, which drivers from 615 on have, as the simulated driver plays them."""
import json
import sys

import pytest

from cgroup_makers import cgroups, within  # noqa: F401: fixture
from cgroups import MOUNT
from conftest import ON_GPU, Host, open_to_others, sim_run
from nvml_host import FUNCTION_NOT_FOUND, NOT_FOUND, NOT_SUPPORTED, SUCCESS
from programs import SOURCES, python

pytestmark = pytest.mark.skipif(ON_GPU, reason="tests the simulated driver")

GIB, MAX, NO_PERMISSION, OUT_OF_MEMORY = 1 << 30, (1 << 64) - 1, 4, 2
PROGRAM = [sys.executable, SOURCES / "memory_limits.py"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.fixture
def newer():
    h = Host("h100-80gb", "615")
    yield h
    h.close()


def limits(host, *words, user=()):
    done = host.run([*user, *PROGRAM, *words])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def takes(host, path):
    done = host.run(within(path, *python("take_all")))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def left(host):
    return host.stat()["gpus"][0]["cgroup_limits"]


@pytest.mark.parametrize("driver", ["550", "610"])
def test_older_drivers_do_not_have_the_calls(driver):
    done = sim_run("h100-80gb", [*PROGRAM, "get", "/sys/fs/cgroup"], driver=driver)
    assert json.loads(done.stdout)[0] == FUNCTION_NOT_FOUND, done.stderr


def test_a_limit_binds_processes_in_the_cgroup_and_below_it(newer, cgroups):  # noqa: F811
    path = cgroups.make()
    below = cgroups.make(path)
    assert limits(newer, "get", path) == [NOT_SUPPORTED, 0, 0, 0]
    assert limits(newer, "set", path, 0, 2 * GIB)[0] == SUCCESS
    assert limits(newer, "get", path) == [SUCCESS, 0, 2 * GIB, 0]
    # A context takes 520 MiB of it, and is charged, too. Managed memory is not covered.
    assert takes(newer, path) == [0, [2048 - 520, 2048], 1280 + 256 * ((2048 - 520 - 1280) // 256), 0]
    assert takes(newer, below)[1][1] > 70000  # the driver tells of the limit that the own cgroup carries
    assert takes(newer, below)[2] == takes(newer, path)[2]
    assert limits(newer, "set", path, 0, 256 << 20)[0] == SUCCESS
    assert takes(newer, path)[0] == OUT_OF_MEMORY
    assert limits(newer, "set", path, 0, MAX)[0] == SUCCESS
    assert limits(newer, "get", path)[0] == NOT_SUPPORTED and left(newer) == []
    assert takes(newer, path)[2] > 70000


def test_wrong_cgroups_and_users_are_refused(newer, cgroups, another_user):  # noqa: F811
    path = cgroups.make()
    open_to_others(newer)
    assert limits(newer, "set", path, 0, GIB, user=NOBODY)[0] == NO_PERMISSION
    assert limits(newer, "get", path, user=NOBODY)[0] == NOT_SUPPORTED
    for missing in (path / "none", "/tmp", "", f"{path}/../../tmp"):
        assert limits(newer, "set", missing, 0, GIB)[0] == NOT_FOUND
        assert limits(newer, "get", missing)[0] == NOT_FOUND


def test_a_cgroup_that_is_removed_with_its_limit_leaves_it_behind(newer, cgroups):  # noqa: F811
    path = cgroups.make()
    assert limits(newer, "set", path, GIB, GIB)[0] == SUCCESS
    path.rmdir()
    assert limits(newer, "set", path, 0, MAX)[0] == NOT_FOUND
    assert [(one["path"], one["gone"]) for one in left(newer)] == [(str(path), True)]


def test_a_cgroup_that_is_made_anew_at_a_path_has_no_limit(newer, cgroups):  # noqa: F811
    path = cgroups.make()
    assert limits(newer, "set", path, 0, GIB)[0] == SUCCESS
    assert takes(newer, path)[1][1] == 1024
    path.rmdir()
    path.mkdir()
    assert limits(newer, "get", path)[0] == NOT_SUPPORTED
    assert takes(newer, path)[2] > 70000
    assert [one["gone"] for one in left(newer)] == [True]
    assert limits(newer, "set", path, 0, GIB)[0] == SUCCESS
    assert [one["gone"] for one in left(newer)] == [False]
    assert takes(newer, path)[1][1] == 1024


def test_a_gpu_in_mig_mode_has_no_such_limits(cgroups):  # noqa: F811
    done = sim_run("h100-80gb+mig", [*PROGRAM, "set", MOUNT or "/sys/fs/cgroup", 0, GIB], driver="615")
    assert json.loads(done.stdout)[0] == NOT_SUPPORTED, done.stderr
