"""How calls and look-ups reach the front, over the null driver (bench/null_driver): no GPU, no daemon."""
import os
import shutil

import pytest

from conftest import BUILD, clean_env, run
from front_host import FRONTS, NULL_DRIVER

pytestmark = pytest.mark.once("the front beside a stand-in for the daemon: neither is instrumented")

PROGRAM = BUILD / "tests/programs/front_loading"


def preloaded(*argv, driver=NULL_DRIVER, fronts=FRONTS, **extra):
    env = clean_env({"LD_PRELOAD": ":".join(map(str, fronts)), **extra})
    if driver:
        env["CARVE_DRIVER_CUDA"] = str(driver)
    return run([PROGRAM, *argv], env=env)


def holds(done):
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("check", ["symbols", "unrelated", "forwarding", "stack-arguments", "proc-address"])
@pytest.mark.parametrize("order", [1, -1])
def test_check(check, order):
    holds(preloaded(check, fronts=FRONTS[::order]))


def test_cuda_front_alone():
    holds(preloaded("symbols", fronts=FRONTS[:1]))


def test_libraries_that_do_not_name_the_driver_are_bound_in_silence():
    # Bound before the front is relocated, as what comes later in the list is.
    holds(preloaded("forwarding", fronts=[*FRONTS, BUILD / "tests/programs/libfront_unlinked.so"], LD_BIND_NOW="1"))


def test_every_spelling_of_the_library_leads_to_the_front():
    holds(preloaded("open", "libcuda.so.1", "libcuda.so", NULL_DRIVER, FRONTS[0],
                    "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"))


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so", str(NULL_DRIVER)])
def test_dlmopen_leads_to_the_front(name):
    holds(preloaded("dlmopen", name))


def test_callers_rpath_keeps_working(tmp_path):
    programs = BUILD / "tests/programs"
    (tmp_path / "part").mkdir()
    shutil.copy(programs / "libfront_origin.so", tmp_path)
    shutil.copy(programs / "libfront_origin_part.so", tmp_path / "part")
    holds(preloaded("origin", tmp_path / "libfront_origin.so"))


def test_driver_is_found_in_the_library_path(tmp_path):
    # The first directory holds the front itself, which is no driver.
    os.link(FRONTS[0], tmp_path / "libcuda.so.1") if os.stat(tmp_path).st_dev == os.stat(
        FRONTS[0]).st_dev else os.symlink(FRONTS[0], tmp_path / "libcuda.so.1")
    path = f"{tmp_path}:/nowhere:{NULL_DRIVER.parent}"
    holds(preloaded("forwarding", driver=None, LD_LIBRARY_PATH=path))
    holds(preloaded("forwarding", driver=FRONTS[0], LD_LIBRARY_PATH=path))


@pytest.mark.skipif(os.path.exists("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), reason="a driver is installed")
def test_without_a_driver_the_library_is_absent():
    holds(preloaded("absent", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", driver=None,
                    LD_LIBRARY_PATH=""))
