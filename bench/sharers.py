"""Who divides a GPU among the slices of a scenario: carve, the driver by itself, or another interposer."""
import json
import shlex

from bench import peers, workload


class Carve:
    """A session each, under time-slicing as the scenario says. `library`: peers.by_name()'s, for all of them."""
    name, library = "carve", None

    def prepare(self, build, scenario):
        workload.set_mode(build, scenario.mode, scenario.lease_ms, scenario.granularity)

    def command(self, build, size, line, scratch):
        return [str(build / "carve"), "run", "--ephemeral", *map(str, size), "--", "sh", "-c", line("")]

    def settle(self, build):
        workload.wait_no_sessions(build)


class Driver:
    """Nothing but the driver, which shares as it always does, whatever anybody asked for."""
    name, library = "driver", None

    def prepare(self, build, scenario):
        """There is nothing to set."""

    def command(self, build, size, line, scratch):
        return ["sh", "-c", line("")]

    def settle(self, build):
        """What has ended has left nothing."""


class Peer(Driver):
    """A library in every process, told by its own variables what its slice is to have."""

    def __init__(self, peer):
        self.peer, self.name = peer, peer.name

    def command(self, build, size, line, scratch):
        mib, percent = amounts(build, size)
        scratch.mkdir(exist_ok=True)
        given = self.peer.environment(mib, percent, scratch)
        return ["sh", "-c", line(shlex.join(["env", *(f"{k}={v}" for k, v in given.items())]))]


def amounts(build, size):
    """(MiB, percent of the GPU's time) that carve's size options stand for; 100% where none is asked for."""
    options = dict(zip(size[::2], size[1::2]))
    total = json.loads(workload.carve(build, "gpu", "list", "--json"))[0]["memory_bytes"] / (1 << 20)
    part = options.get("--gpu")
    return (total * part if part else options["--vram"] * 1024), 100 * options.get("--gpu-compute", part or 1)


CARVE, DRIVER = Carve(), Driver()


def others(given, library=None):
    """What carve is shown beside: the driver's default sharing, then the peers."""
    Carve.library = Driver.library = library
    return [DRIVER, *map(Peer, given)]


def why_not(by, env):
    """Why a peer cannot be run at all; None: it can."""
    return peers.why_not(by.peer, env) if isinstance(by, Peer) else None
