"""The view of a slice from inside adds up in every moment, whoever takes and gives memory meanwhile."""
import os

import pytest

from conftest import BUILD, wait_until

pytestmark = pytest.mark.once("the front's figures; the daemon has nothing to do meanwhile")

GIB = 1 << 30
SECONDS = int(os.environ.get("CARVE_TEST_SECONDS", 4))


@pytest.mark.parametrize("vram", [4, 8])
def test_free_and_used_add_up_in_every_moment(host, vram):
    # With 4 GiB there are refusals all the time, with 8 none.
    done = host.carve("run", "--vram", vram, "--", BUILD / "tests/programs/limit_view", SECONDS, 4,
                      timeout=SECONDS + 60)
    assert done.returncode == 0, done.stderr
    looks, changes = map(int, done.stdout.split())
    assert looks > 100 * SECONDS and changes > 10 * SECONDS
    wait_until(lambda: host.stat()["gpus"][0]["memory_used_bytes"] == 0)


def test_those_who_take_and_give_end_with_the_one_who_looks(host):
    """Also where it ends before they have begun."""
    for _ in range(20):
        # Whoever is left holds its output open.
        assert host.run([BUILD / "tests/programs/limit_view", 0, 24], timeout=60).returncode == 0
