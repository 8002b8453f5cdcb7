"""A driver that is there only after the daemon has started: its module was loaded later, or its GPUs were lost at that time."""
import pytest

from conftest import wait_until
from daemon_client import GIB
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures


@pytest.mark.parametrize("missing", ["GPUs", "driver"])
def test_a_driver_that_comes_after_the_daemon_is_found(daemon, missing):
    """Nobody has to start the daemon anew: its supervisor does, and sessions of before are there."""
    session = daemon.grant(vram="4", ephemeral=False)["id"]
    gpus, daemon.gpus = daemon.gpus, []
    if missing == "GPUs":
        daemon.write_state()
    else:
        (daemon.dir / "state").unlink()
    daemon.restart()
    assert daemon.call("GET", "/v1/gpus").json == []
    refused = daemon.request(vram="1")
    assert refused.status == 409 and "no GPU" in refused.error["message"]
    pid = daemon.pid
    daemon.gpus = gpus
    daemon.write_state()
    daemon.wait_for_worker(pid)
    wait_until(lambda: daemon.call("GET", "/v1/gpus").json)
    assert daemon.pid != pid and "gpu.found count=1" in daemon.log()
    assert daemon.show(session)["vram_bytes"] == 4 * GIB
    wait_until(lambda: daemon.request(vram="1").status == 201)
