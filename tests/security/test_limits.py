"""The driver's own limits of cgroups in a system daemon, which sets them through a process of root's: a user's program that goes
round the front is held."""
import json
import pathlib
import shutil

import pytest

from cgroup_makers import cgroups, within  # noqa: F401: fixture
from conftest import wait_until
from programs import python

from .lab import ALICE, BUILD, CARVE, ROOT, Lab, as_user


@pytest.fixture
def lab(make_lab, make_host, cgroups):  # noqa: F811
    made = Lab(make_host("h100-80gb", "615"))
    made.place = cgroups.make()
    wait_until(lambda: json.loads(made.carve(ROOT, "gpu", "list", "--json").stdout)[0]["backend"] == "cgroup")
    yield made
    made.close()


def test_a_users_program_that_goes_round_the_front_is_held(lab):
    driver = lab.dir / "driver"
    driver.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(BUILD / "sim" / name, driver / name)
    leaves = f'echo $$ > {lab.place}/cgroup.procs && echo left; exec "$@"'
    around = ["env", "-u", "LD_PRELOAD", f"LD_LIBRARY_PATH={driver}", *python("take_all")]
    done = lab.host.run(within(lab.place, *as_user(ALICE), CARVE, "run", "--ephemeral", "--vram", "4", "--",
                               "sh", "-c", leaves, "sh", *around), env=lab.env(ALICE))
    assert done.returncode == 0, done.stderr
    assert "left" not in done.stdout, "the cgroup is root's"
    assert json.loads(done.stdout)[2] < 4096
    wait_until(lambda: not lab.host.stat()["gpus"][0]["cgroup_limits"])
    wait_until(lambda: not [entry for entry in lab.place.iterdir() if entry.is_dir()])


def test_a_user_clears_no_limit(lab):
    limits = ["/usr/bin/python3", pathlib.Path(__file__).parents[1] / "programs" / "memory_limits.py"]
    assert json.loads(lab.host.run([*as_user(ALICE), *limits, "set", lab.place, 0, (1 << 64) - 1], env=lab.env(ALICE)).stdout)[0] == 4
